/* Promise: every power-of-two alignment from 1 B to 1 MiB by posix_memalign, aligned_alloc and memalign, and valloc, pvalloc;
 * EINVAL rules as the manual says; malloc, calloc and realloc always give 16 (peers.md trap 10).
 * timeout: 60 */
#include "check.h"

static void use(void *p, size_t al, size_t n, unsigned seed)
{
    CHECK(p);
    if ((uintptr_t)p % al)
        FAIL("%p is not aligned to %zu", p, al);
    CHECK(malloc_usable_size(p) >= n);
    fill(p, n, seed);
    void *q = realloc(p, n * 2 + 1); /* alignment may be lost, contents not */
    CHECK(q && holds(q, n, seed) && (uintptr_t)q % 16 == 0);
    free(q);
}

int main(void)
{
    static const size_t sizes[] = {0, 1, 7, 16, 24, 100, 255, 1000, 4096, 5000, 65536, 100000, 1 << 20, 3 << 20};
    void *hold[4 * 14];
    for (size_t al = 1; al <= 1 << 20; al *= 2) {
        int h = 0;
        for (unsigned i = 0; i < 14; i++) {
            size_t n = sizes[i];
            void *p = (void *)8;
            int e = posix_memalign(&p, al, n);
            if (al < sizeof(void *)) {
                CHECK(e == EINVAL && p == (void *)8);
            } else {
                CHECK(e == 0);
                use(p, al, n, i);
                CHECK(posix_memalign(&hold[h++], al, n) == 0);
                fill(hold[h - 1], n, i);
            }
            use(memalign(al, n), al, n, i + 50);
            use(aligned_alloc(al, (n + al - 1) / al * al), al, n, i + 90);
        }
        for (int i = 0; i < h; i++) {
            CHECK((uintptr_t)hold[i] % al == 0 && holds(hold[i], sizes[i], i));
            free(hold[i]);
        }
    }
    void *p = (void *)8;
    CHECK(posix_memalign(&p, 0, 10) == EINVAL && posix_memalign(&p, 24, 10) == EINVAL);
    CHECK(posix_memalign(&p, 6, 10) == EINVAL && p == (void *)8);
    volatile size_t far = (size_t)PTRDIFF_MAX;
    errno = 3;
    CHECK(posix_memalign(&p, 64, far) == ENOMEM && p == (void *)8);
    errno = 0;
    CHECK(!memalign(64, far) && errno == ENOMEM);
    errno = 0;
    CHECK(!aligned_alloc(4096, far) && errno == ENOMEM);
    errno = 0;
    CHECK(!memalign(far / 2 + 1, 100) && (errno == ENOMEM || errno == EINVAL));
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < 14; i++) {
        use(valloc(sizes[i]), page, sizes[i], i);
        void *v = pvalloc(sizes[i]);
        size_t whole = (sizes[i] + page - 1) / page * page;
        use(v, page, whole, i);
    }
    for (size_t n = 0; n < 20000; n += 1 + n / 20) {
        void *a = must(n), *b = calloc(1, n), *c = realloc(0, n);
        CHECK(b && c && ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0);
        c = realloc(c, n + 40);
        CHECK(c && (uintptr_t)c % 16 == 0);
        free(a), free(b), free(c);
    }
    return 0;
}
