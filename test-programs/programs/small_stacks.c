/* Promise: threads with the smallest stack (PTHREAD_STACK_MIN) may call the whole family: malloc's slow paths, unwinding and
 * thread exit use little stack, and the library's static TLS takes little of it.
 * libs: -pthread */
#include "check.h"
#include <limits.h>
#include <pthread.h>

static void *body(void *arg)
{
    static const unsigned sizes[] = {1, 100, 1000, 10000, 100000, 1000000, 8000000};
    void *p[7];
    for (int r = 0; r < 30; r++) {
        for (int i = 0; i < 7; i++) {
            p[i] = r % 2 ? malloc(sizes[i]) : calloc(1, sizes[i]);
            CHECK(p[i]);
            *(char *)p[i] = (char)i;
            p[i] = realloc(p[i], sizes[i] * 2);
            CHECK(p[i] && *(char *)p[i] == (char)i);
        }
        void *a = memalign(4096, 100);
        CHECK(a);
        free(a);
        for (int i = 0; i < 7; i++)
            free(p[i]);
    }
    return arg;
}

int main(void)
{
    pthread_attr_t at;
    pthread_t t[16];
    pthread_attr_init(&at);
    CHECK(pthread_attr_setstacksize(&at, (size_t)PTHREAD_STACK_MIN) == 0);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 16; i++)
            CHECK(pthread_create(&t[i], &at, body, 0) == 0);
        for (int i = 0; i < 16; i++)
            pthread_join(t[i], 0);
    }
    return 0;
}
