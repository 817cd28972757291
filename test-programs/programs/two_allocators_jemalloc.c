/* Promise: a program linked to jemalloc (as Debian's redis is) runs under the preload with the whole family going to one
 * allocator; its own extensions still work (peers.md trap 7: our floor preload crashed redis).
 * needs: /usr/lib/x86_64-linux-gnu/libjemalloc.so.2
 * libs: -Wl,--no-as-needed -l:libjemalloc.so.2 -pthread */
#include "check.h"
#include <pthread.h>

int mallctl(const char *, void *, size_t *, void *, size_t);
void *mallocx(size_t, int);
void dallocx(void *, int);

static void *body(void *arg)
{
    uint32_t s = 9;
    void *p[200] = {0};
    for (int i = 0; i < 60000; i++) {
        int k = rnd(&s) % 200;
        CHECK(malloc_usable_size(p[k]) >= (p[k] ? 1 : 0));
        if (k % 4 == 0) {
            p[k] = realloc(p[k], 1 + rnd(&s) % 5000);
            CHECK(p[k]);
            continue;
        }
        free(p[k]);
        p[k] = 0;
        if (k % 4 == 1)
            CHECK(posix_memalign(&p[k], 64, 1 + rnd(&s) % 3000) == 0);
        if (k % 4 == 2)
            p[k] = calloc(1, 1 + rnd(&s) % 3000);
        if (k % 4 == 3)
            p[k] = aligned_alloc(128, 128 * (1 + rnd(&s) % 9));
    }
    for (int k = 0; k < 200; k++)
        free(p[k]);
    return arg;
}

int main(void)
{
    pthread_t t[3];
    size_t allocated = 0, len = sizeof allocated;
    uint64_t epoch = 1;
    CHECK(mallctl("epoch", 0, 0, &epoch, sizeof epoch) == 0);
    CHECK(mallctl("stats.allocated", &allocated, &len, 0, 0) == 0);
    void *x = mallocx(1000, 0); /* jemalloc's own names stay jemalloc's */
    CHECK(x);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&t[i], 0, body, 0) == 0);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], 0);
    dallocx(x, 0);
    free(strdup("made by libc through the program's malloc"));
    return 0;
}
