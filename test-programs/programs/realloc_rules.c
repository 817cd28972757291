/* Promise: realloc keeps contents growing and shrinking, in place or moving, up to 1 GiB; NULL means malloc; size 0 frees and
 * gives NULL as in glibc; failure keeps the old block and sets ENOMEM; reallocarray checks overflow (peers.md trap 9).
 * timeout: 120 */
#include "check.h"

static void steps(size_t from, size_t to, size_t num, size_t den)
{
    char *p = must(from);
    size_t n = from;
    fill(p, n, 3);
    while (n < to) { /* grow */
        size_t m = n * num / den + 1;
        p = realloc(p, m);
        CHECK(p && malloc_usable_size(p) >= m && holds(p, from, 3));
        p[n] = p[m - 1] = 1;
        n = m;
    }
    while (n > from) { /* shrink */
        n = n * den / num;
        if (n < from)
            n = from;
        p = realloc(p, n);
        CHECK(p && holds(p, from, 3));
    }
    free(p);
}

static void huge(void)
{
    size_t n = 1 << 20;
    char *p = must(n);
    for (; n <= 1ul << 30; n *= 2) {
        for (size_t i = n == 1 << 20 ? 0 : n / 2; i < n; i += 4096)
            p[i] = (char)(i >> 12);
        if (n < 1ul << 30) {
            p = realloc(p, n * 2);
            CHECK(p);
        }
        for (size_t i = 0; i < n; i += 4096)
            if (p[i] != (char)(i >> 12))
                FAIL("byte %zu lost growing from %zu", i, n);
    }
    p = realloc(p, 100000);
    for (size_t i = 0; i < 100000; i += 4096)
        CHECK(p && p[i] == (char)(i >> 12));
    CHECK(rss_kib() < 600000);
    free(p);
}

int main(void)
{
    volatile size_t far = SIZE_MAX / 2 + 1;
    steps(1, 3000, 11, 10);
    steps(50, 300000, 3, 2);
    steps(70000, 40 << 20, 5, 4);
    steps(200, 200 << 20, 7, 1);
    huge();
    char *p = realloc(0, 100);
    CHECK(p);
    fill(p, 100, 9);
    errno = 0;
    CHECK(!realloc(p, far) && errno == ENOMEM && holds(p, 100, 9));
    errno = 0;
    CHECK(!reallocarray(p, far, 2) && errno == ENOMEM && holds(p, 100, 9));
    errno = 0;
    CHECK(!reallocarray(p, SIZE_MAX / 8, 16) && errno == ENOMEM && holds(p, 100, 9));
    p = reallocarray(p, 50, 40);
    CHECK(p && holds(p, 100, 9) && malloc_usable_size(p) >= 2000);
    errno = 0;
    CHECK(!realloc(p, 0) && errno == 0);
    char *big = must(50 << 20);
    fill(big, 1000, 1);
    errno = 0;
    CHECK(!realloc(big, far) && errno == ENOMEM && holds(big, 1000, 1));
    CHECK(!realloc(big, 0));
    p = realloc(0, 0);
    CHECK(p);
    p = realloc(p, 10);
    CHECK(p);
    free(p);
    return 0;
}
