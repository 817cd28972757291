/* Promise: static destructors of the program and of a shared library, in any order, with threads still running and
 * allocating while exit() runs.
 * libs: -pthread -ldl
 * plugins: plug_fini.cc */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string>
#include <vector>

static void (*add)(const char *);
struct Late {
    std::vector<std::string> v;
    ~Late()
    {
        for (auto &s : v)
            CHECK(s.size() == 40);
        if (add)
            add("from a destructor");
    }
};
static Late late;

static void *runs_on(void *)
{
    for (unsigned i = 0;; i++)
        free(must(i % 5000));
}

int main()
{
    void *h = dlopen("./plug_fini.so", RTLD_NOW);
    if (!h)
        FAIL("dlopen: %s", dlerror());
    add = (void (*)(const char *))dlsym(h, "plug_add");
    for (int i = 0; i < 500; i++) {
        add(std::to_string(i).c_str());
        late.v.push_back(std::string(40, 'k'));
    }
    pthread_t t;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&t, 0, runs_on, 0) == 0);
    usleep(20000);
    return 0;
}
