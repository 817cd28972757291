// -DMEMLEDGER_ONLY and MEMLEDGER_EXCLUDE: built so that this file is wanted.
#include <stdlib.h>
#include <stdio.h>
void *volatile kept;
int main(void)
{
    kept = malloc(10); // calls=1
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
