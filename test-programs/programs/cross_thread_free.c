/* Promise: blocks made by one thread and freed (or resized) by another keep their contents, and memory stays bounded when
 * one side only allocates and the other only frees.
 * libs: -pthread */
#include "check.h"
#include <pthread.h>

enum { RING = 512, TOTAL = 1500000 };
static struct item { unsigned char *p; unsigned n; } ring[RING];
static unsigned head, tail;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;

static void *maker(void *arg)
{
    uint32_t s = 99;
    for (int i = 0; i < TOTAL; i += 128) {
        struct item b[128];
        for (int k = 0; k < 128; k++) {
            b[k].n = 1 + rnd(&s) % (k ? 600 : 20000);
            b[k].p = must(b[k].n);
            b[k].p[0] = (unsigned char)b[k].n;
            b[k].p[b[k].n - 1] = (unsigned char)b[k].n;
        }
        pthread_mutex_lock(&mu);
        while (head - tail > RING - 128)
            pthread_cond_wait(&cv, &mu);
        for (int k = 0; k < 128; k++)
            ring[head++ % RING] = b[k];
        pthread_cond_broadcast(&cv);
        pthread_mutex_unlock(&mu);
    }
    return arg;
}

int main(void)
{
    pthread_t t;
    CHECK(pthread_create(&t, 0, maker, 0) == 0);
    long start = 0;
    int made = (TOTAL + 127) / 128 * 128;
    for (int i = 0; i < made;) {
        struct item b[128];
        pthread_mutex_lock(&mu);
        while (head == tail)
            pthread_cond_wait(&cv, &mu);
        for (int k = 0; k < 128; k++)
            b[k] = ring[tail++ % RING];
        pthread_cond_broadcast(&cv);
        pthread_mutex_unlock(&mu);
        for (int k = 0; k < 128; k++, i++) {
            CHECK(b[k].p[0] == (unsigned char)b[k].n && b[k].p[b[k].n - 1] == (unsigned char)b[k].n);
            if (i % 5 == 0) {
                b[k].p = realloc(b[k].p, b[k].n + 500);
                CHECK(b[k].p && b[k].p[b[k].n - 1] == (unsigned char)b[k].n);
            }
            free(b[k].p);
        }
        if (i == 128 * 1000)
            start = rss_kib();
    }
    pthread_join(t, 0);
    if (rss_kib() > start + 16384)
        FAIL("grew from %ld to %ld KiB", start, rss_kib());
    return 0;
}
