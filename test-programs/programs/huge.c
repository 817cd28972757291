/* Promise: 4 GiB that is never touched costs no resident memory; sizes near the end of the address space fail cleanly with
 * ENOMEM and the program goes on; huge blocks come and go without growth. */
#include "check.h"

int main(void)
{
    long start = rss_kib();
    char *p = malloc(4ul << 30);
    CHECK(p && malloc_usable_size(p) >= 4ul << 30);
    p[0] = 1;
    p[(4ul << 30) - 1] = 2;
    p[2ul << 30] = 3;
    CHECK(rss_kib() < start + 16384);
    char *z = calloc(1, 2ul << 30);
    CHECK(z && !z[0] && !z[1ul << 30] && rss_kib() < start + 16384);
    CHECK(p[0] == 1 && p[(4ul << 30) - 1] == 2);
    free(z);
    free(p);
    static const size_t bad[] = {SIZE_MAX, SIZE_MAX - 15, SIZE_MAX - 4095, SIZE_MAX - 65535, (size_t)PTRDIFF_MAX + 1,
                                 PTRDIFF_MAX, PTRDIFF_MAX - 4096, 1ul << 62, 1ul << 48, 1ul << 47};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        volatile size_t n = bad[i];
        errno = 0;
        void *q = malloc(n);
        if (q || errno != ENOMEM)
            FAIL("malloc(%#zx) gives %p, errno %d", n, q, errno);
        errno = 0;
        CHECK(!calloc(1, n) && errno == ENOMEM);
    }
    for (int i = 0; i < 2000; i++) {
        char *q = must((1 << 20) + (size_t)i * 40000);
        q[0] = q[(1 << 20) + (size_t)i * 40000 - 1] = 1;
        free(q);
    }
    CHECK(rss_kib() < start + 100000);
    return 0;
}
