/* Promise: atfork handlers of the program that allocate and free, registered before and after the library's own, with other
 * threads allocating: no dead-lock (peers.md trap 5).
 * libs: -pthread
 * timeout: 60 */
#include "check.h"
#include <pthread.h>

static volatile int stop;
static void *held;
static int calls;

static void prepare(void) { held = must(12345); fill(held, 100, 1); calls++; }
static void in_parent(void) { CHECK(holds(held, 100, 1)); free(held); free(must(70000)); }
static void in_child(void) { CHECK(holds(held, 100, 1)); free(held); free(must(70000)); calls += 100; }

__attribute__((constructor(101))) static void early(void) { pthread_atfork(prepare, in_parent, in_child); }

static void more(void) { free(must(3000)); }

static void *churn(void *arg)
{
    for (unsigned i = 0; !stop; i++)
        free(must(i % 9000));
    return arg;
}

int main(void)
{
    pthread_t t[3];
    CHECK(pthread_atfork(more, more, more) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&t[i], 0, churn, 0) == 0);
    for (int i = 0; i < 200; i++) {
        pid_t p = fork();
        if (!p) {
            CHECK(calls >= 100);
            for (int k = 0; k < 300; k++)
                free(must(k * 31));
            exit(0);
        }
        child_ok(p);
    }
    CHECK(calls == 200);
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], 0);
    return 0;
}
