/* Promise: objects outlive the shared object that made them, also when another one is mapped at its address, 1000 times
 * over; look-ups keyed by return address do not mix the two up or crash (peers.md trap 13).
 * libs: -ldl
 * plugins: plug_a.c plug_b.c
 * timeout: 120 */
#include "check.h"
#include <dlfcn.h>

static char *live[4000];

int main(void)
{
    void *base_a = 0;
    int reused = 0, n = 0;
    for (int i = 0; i < 2000; i++) {
        void *h = dlopen(i % 2 ? "./plug_b.so" : "./plug_a.so", RTLD_NOW | RTLD_LOCAL);
        if (!h)
            FAIL("dlopen: %s", dlerror());
        void *(*make)(size_t) = (void *(*)(size_t))dlsym(h, "plug_make");
        CHECK(make);
        Dl_info info;
        CHECK(dladdr((void *)make, &info));
        if (i % 2 == 0)
            base_a = info.dli_fbase;
        else
            reused += info.dli_fbase == base_a;
        for (int k = 0; k < 2; k++) {
            live[n] = make(100 + n % 900);
            CHECK(live[n]);
            n++;
        }
        CHECK(dlclose(h) == 0);
    }
    if (!reused)
        FAIL("plug_b was never mapped where plug_a was: the case was not reached");
    for (int i = 0; i < n; i++) {
        char want = (i / 2) % 2 ? 'B' : 'A';
        for (int k = 0; k < 100 + i % 900; k++)
            CHECK(live[i][k] == want);
        free(live[i]);
    }
    return 0;
}
