/* Promise: fork called by several threads at once, each child with a working heap, no deadlock of the atfork handlers.
 * libs: -pthread
 * timeout: 120 */
#include "check.h"
#include <pthread.h>

static void *forker(void *arg)
{
    for (int i = 0; i < 40; i++) {
        char *s = must(200);
        fill(s, 200, i);
        pid_t p = fork();
        if (!p) {
            CHECK(holds(s, 200, i));
            free(s);
            for (int k = 0; k < 200; k++)
                free(must(k * 37));
            _exit(0);
        }
        child_ok(p);
        free(s);
    }
    return arg;
}

int main(void)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], 0, forker, 0) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], 0);
    return 0;
}
