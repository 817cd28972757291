/* Promise: malloc(0) gives a distinct pointer each time, not NULL, freeable, growable (bash does it). */
#include "check.h"

int main(void)
{
    static char *p[2000];
    for (int i = 0; i < 2000; i++) {
        p[i] = i % 3 ? malloc(0) : calloc(0, 10);
        CHECK(p[i] && (uintptr_t)p[i] % 16 == 0);
    }
    for (int i = 0; i < 2000; i++)
        for (int k = 0; k < i; k++)
            CHECK(p[i] != p[k]);
    for (int i = 0; i < 2000; i += 2) {
        p[i] = realloc(p[i], 40);
        CHECK(p[i]);
        fill(p[i], 40, i);
    }
    for (int i = 0; i < 2000; i += 2)
        CHECK(holds(p[i], 40, i));
    for (int i = 0; i < 2000; i++)
        free(p[i]);
    void *q = 0;
    CHECK(posix_memalign(&q, 64, 0) == 0);
    free(q);
    free(0);
    return 0;
}
