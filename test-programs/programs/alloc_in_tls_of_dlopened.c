/* Promise: thread-local storage of a dlopen'ed object, which the loader makes with malloc at first touch and frees at
 * thread exit, works on old and new threads, with allocations in its constructors (peers.md trap 3).
 * libs: -ldl -pthread
 * plugins: plug_tls.cc */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

static int (*touch)(int);
static pthread_barrier_t opened;

static void use(void)
{
    for (int i = 0; i < 200; i++)
        CHECK(touch(i) == 21 + i);
}

static void *old_thread(void *arg)
{
    pthread_barrier_wait(&opened); /* the thread is older than the object */
    use();
    return arg;
}

static void *new_thread(void *arg)
{
    use();
    return arg;
}

int main(void)
{
    pthread_t t[8];
    pthread_barrier_init(&opened, 0, 5);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], 0, old_thread, 0) == 0);
    void *h = dlopen("./plug_tls.so", RTLD_NOW);
    if (!h)
        FAIL("dlopen: %s", dlerror());
    touch = (int (*)(int))dlsym(h, "plug_touch");
    CHECK(touch);
    pthread_barrier_wait(&opened);
    for (int round = 0; round < 50; round++) {
        for (int i = 4; i < 8; i++)
            CHECK(pthread_create(&t[i], 0, new_thread, 0) == 0);
        for (int i = 4; i < 8; i++)
            pthread_join(t[i], 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], 0);
    use();
    return 0;
}
