/* Promise: of 1 GiB of small objects, freed, at most 5 % stays resident after malloc_trim or one second; also when freed in
 * random order, and made by other threads.
 * libs: -pthread
 * timeout: 120 */
#include "check.h"
#include <pthread.h>

enum { N = 4000000 };
static void **p;

static void *make(void *arg)
{
    uint32_t s = 7 + (uint32_t)(uintptr_t)arg;
    for (long i = (long)arg; i < N; i += 2) {
        size_t n = 100 + rnd(&s) % 330;
        p[i] = must(n);
        memset(p[i], 1, n);
    }
    return 0;
}

static void release(int shuffled)
{
    uint32_t s = 1;
    for (int i = N - 1; i >= 0; i--) {
        int k = shuffled ? (int)(rnd(&s) % (unsigned)(i + 1)) : i;
        void *q = p[k];
        p[k] = p[i];
        free(q);
    }
}

int main(void)
{
    p = calloc(N, sizeof *p);
    memset(p, 1, N * sizeof *p);
    long start = rss_kib();
    for (int round = 0; round < 3; round++) {
        pthread_t t[2];
        if (round < 2) {
            make((void *)0);
            make((void *)1);
        } else {
            for (long i = 0; i < 2; i++)
                CHECK(pthread_create(&t[i], 0, make, (void *)i) == 0);
            for (int i = 0; i < 2; i++)
                pthread_join(t[i], 0);
        }
        long full = rss_kib() - start;
        CHECK(full > 900 * 1024);
        release(round > 0);
        malloc_trim(0);
        long left = rss_kib() - start;
        for (int i = 0; i < 10 && left > full / 20; i++, left = rss_kib() - start) {
            usleep(100000);
            free(must(100)); /* a decay that needs a call gets one */
        }
        printf("round %d: %ld KiB in use, %ld KiB left\n", round, full, left);
        if (left > full / 20)
            FAIL("round %d: %ld KiB of %ld stay resident", round, left, full);
    }
    return 0;
}
