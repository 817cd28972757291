/* Promise: 10,000 threads made and ended one after the other, each leaving some memory to others, do not grow the process:
 * heaps of ended threads are used again.
 * libs: -pthread
 * timeout: 120 */
#include "check.h"
#include <pthread.h>

static void *body(void *arg)
{
    void *p[100];
    free(arg); /* made by the thread before */
    for (int i = 0; i < 100; i++)
        p[i] = must(16 + i * 20);
    memset(p[50], 1, 16 + 50 * 20);
    for (int i = 0; i < 99; i++)
        free(p[i]);
    return p[99];
}

int main(void)
{
    long start = 0;
    void *pass = must(100);
    for (int i = 0; i < 10000; i++) {
        pthread_t t, u;
        void *r;
        CHECK(pthread_create(&t, 0, body, pass) == 0);
        CHECK(pthread_create(&u, 0, body, 0) == 0);
        CHECK(pthread_join(t, &pass) == 0);
        CHECK(pthread_join(u, &r) == 0);
        free(r);
        if (i == 200)
            start = rss_kib();
    }
    free(pass);
    long end = rss_kib();
    if (end > start + 8192)
        FAIL("resident size grew from %ld to %ld KiB over 20,000 threads", start, end);
    return 0;
}
