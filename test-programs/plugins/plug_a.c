/* A shared object that allocates and leaves its blocks live when it is unloaded. */
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void *plug_make(size_t n)
{
    char *p = malloc(n);
    if (p)
        memset(p, 'A', n);
    return p;
}

static void *held;
__attribute__((constructor)) static void load(void) { held = calloc(1, 777); }
__attribute__((destructor)) static void unload(void) { free(held); }
