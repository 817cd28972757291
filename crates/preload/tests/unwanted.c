// Built so that this file is not wanted: it has no tags, and so no rows.
#include <stdlib.h>
#include <stdio.h>
extern char first[] __asm__("__start_alloc_tags") __attribute__((weak, visibility("hidden")));
void *volatile kept;
int main(void)
{
    kept = malloc(10);
    puts(first ? "there is a tag" : "ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
