/* Promise: four threads that allocate, each hit by signals whose handler allocates too, with cross-thread frees: no dead-lock
 * on a lock that the interrupted code holds (invariant 4; peers.md trap 11).
 * only: preload
 * libs: -pthread
 * timeout: 90 */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

static _Atomic(void *) shared[128];
static volatile int stop;
static atomic_long hits;

static void handler(int sig)
{
    (void)sig;
    long h = atomic_fetch_add(&hits, 1);
    void *p = malloc(h % 3000);
    free(atomic_exchange(&shared[h % 128], p));
}

static void *body(void *arg)
{
    uint32_t s = 1 + (uint32_t)(uintptr_t)arg;
    while (!stop) {
        size_t n = 1 + rnd(&s) % 2000;
        unsigned char *p = must(n);
        fill(p, n, (unsigned)n);
        for (int i = 0; i < 20; i++)
            free(atomic_exchange(&shared[rnd(&s) % 128], malloc(rnd(&s) % 4000)));
        CHECK(holds(p, n, (unsigned)n));
        free(p);
    }
    return 0;
}

int main(void)
{
    pthread_t t[4];
    struct sigaction sa = {0};
    sa.sa_handler = handler;
    sa.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &sa, 0);
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], 0, body, (void *)(i * 77)) == 0);
    long sent = 0;
    while (atomic_load(&hits) < 40000) {
        pthread_kill(t[sent++ % 4], SIGUSR1);
        if (sent % 16 == 0)
            usleep(100);
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], 0);
    return 0;
}
