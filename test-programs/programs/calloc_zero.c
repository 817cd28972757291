/* Promise: calloc gives zeroed memory, fresh or used before, of every size, and checks overflow of the product. */
#include "check.h"

static void zeroed(const unsigned char *p, size_t n)
{
    CHECK(p);
    for (size_t i = 0; i < n; i++)
        if (p[i])
            FAIL("byte %zu of %zu is %d", i, n, p[i]);
}

int main(void)
{
    static unsigned char *p[3000];
    uint32_t s = 11;
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 3000; i++) {
            size_t n = i % 100 ? rnd(&s) % 2000 : rnd(&s) % 3000000;
            p[i] = i % 2 ? calloc(1, n) : calloc(n, 1);
            zeroed(p[i], n);
            memset(p[i], 0xff, malloc_usable_size(p[i])); /* dirty also what was not asked for */
        }
        for (int i = 0; i < 3000; i++)
            free(p[i]);
    }
    for (size_t n = 1 << 20; n <= 256 << 20; n *= 4) {
        unsigned char *q = calloc(n / 8, 8);
        zeroed(q, n > 4 << 20 ? 4 << 20 : n);
        zeroed(q + n - 4096, 4096);
        memset(q, 1, n);
        free(q);
    }
    volatile size_t big = SIZE_MAX / 2 + 2;
    errno = 0;
    CHECK(!calloc(big, 2) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(1ul << 33, 1ul << 33) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(SIZE_MAX, SIZE_MAX) && errno == ENOMEM);
    free(calloc(0, 0));
    free(calloc(0, SIZE_MAX));
    return 0;
}
