/* Another shared object of about the same size: it is often mapped where plug_a was. Its frames differ. */
#include <stdlib.h>
#include <string.h>

static void *deeper(size_t n, int depth)
{
    char room[256];
    room[0] = (char)depth;
    if (depth)
        return deeper(n, depth - room[0] / room[0]);
    return calloc(1, n);
}

__attribute__((noinline)) void *plug_make(size_t n)
{
    char *p = deeper(n, 5);
    if (p)
        memset(p, 'B', n);
    return p;
}
