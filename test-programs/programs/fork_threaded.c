/* Promise: fork in a process whose 8 threads allocate all the time leaves the child a working heap: it allocates,
 * frees the parent's blocks, makes threads, and forks again (peers.md trap 5).
 * libs: -pthread
 * timeout: 180 */
#include "check.h"
#include <pthread.h>

static volatile int stop;

static void *churn(void *arg)
{
    uint32_t s = 77 + (uint32_t)(uintptr_t)arg;
    void *slot[64] = {0};
    while (!stop) {
        int k = rnd(&s) % 64;
        free(slot[k]);
        slot[k] = malloc(rnd(&s) % 200 ? rnd(&s) % 3000 : rnd(&s) % 400000);
    }
    for (int k = 0; k < 64; k++)
        free(slot[k]);
    return 0;
}

static void *one(void *arg)
{
    void *p = must(1000);
    free(arg);
    return p;
}

__attribute__((noreturn)) static void in_child(void **parents, int n, int depth)
{
    for (int i = 0; i < n; i++) {
        CHECK(holds(parents[i], 16 + i * 11, i));
        if (i % 2) {
            free(parents[i]);
            parents[i] = must(16 + i * 11);
            fill(parents[i], 16 + i * 11, i);
        }
    }
    pthread_t t;
    void *r;
    CHECK(pthread_create(&t, 0, one, must(50)) == 0);
    CHECK(pthread_join(t, &r) == 0);
    free(r);
    if (depth) {
        pid_t p = fork();
        if (!p)
            in_child(parents, n, depth - 1);
        child_ok(p);
    }
    exit(0);
}

int main(void)
{
    enum { N = 300, T = 8, FORKS = 30 };
    void *mine[N];
    pthread_t t[T];
    for (int i = 0; i < N; i++) {
        mine[i] = must(16 + i * 11);
        fill(mine[i], 16 + i * 11, i);
    }
    for (long i = 0; i < T; i++)
        CHECK(pthread_create(&t[i], 0, churn, (void *)i) == 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t p = fork();
        if (!p)
            in_child(mine, N, i % 3);
        child_ok(p);
    }
    stop = 1;
    for (int i = 0; i < T; i++)
        pthread_join(t[i], 0);
    return 0;
}
