/* Promise: free never changes errno; a malloc that succeeds does not either; ENOMEM only on failure (glibc tst-free-errno). */
#include "check.h"

int main(void)
{
    static void *p[500];
    volatile size_t far = PTRDIFF_MAX;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 500; i++) {
            size_t n = i % 10 ? (size_t)i * 5 : (size_t)(i + 1) * 50000;
            errno = 1000 + i;
            p[i] = i % 3 == 0 ? malloc(n) : i % 3 == 1 ? calloc(1, n) : memalign(64, n);
            CHECK(p[i] && errno == 1000 + i);
            p[i] = realloc(p[i], n + 3000);
            CHECK(p[i] && errno == 1000 + i);
        }
        for (int i = 0; i < 500; i++) {
            errno = 2000 + i;
            free(p[i]);
            if (errno != 2000 + i)
                FAIL("free changed errno to %d", errno);
        }
        errno = 77;
        CHECK(!malloc(far) && errno == ENOMEM);
        errno = 78;
        free(0);
        CHECK(errno == 78);
        malloc_trim(0);
    }
    return 0;
}
