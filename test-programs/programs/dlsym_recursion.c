/* Promise: dlsym and dlerror, which allocate inside the loader, do not recurse or dead-lock, on many threads and for
 * symbols that do not exist (peers.md trap 2); the malloc that dlsym finds is the one that the program calls.
 * libs: -ldl -pthread */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

static void *body(void *arg)
{
    char name[64];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "no_such_symbol_%d", i);
        CHECK(!dlsym(RTLD_NEXT, name));
        char *e = dlerror();
        CHECK(e && strstr(e, name));
        CHECK(!dlopen("./no-such-file.so", RTLD_LAZY));
        if (i % 2)
            CHECK(dlerror());
        void *p = must(i);
        free(p);
    }
    return arg; /* a pending dlerror string is freed by the thread's exit */
}

int main(void)
{
    pthread_t t[6];
    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(&t[i], 0, body, 0) == 0);
    for (int i = 0; i < 6; i++)
        pthread_join(t[i], 0);
    void *(*m)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
    void (*f)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "free");
    CHECK(m && f);
    void *p = m(1234);
    CHECK(p && malloc_usable_size(p) >= 1234);
    free(p);
    f(must(50));
    return 0;
}
