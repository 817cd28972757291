/* Promise: a C++ program linked to mimalloc runs under the preload: malloc and operator new come from one allocator, mi_malloc
 * stays mimalloc's (peers.md trap 7).
 * needs: /usr/lib/x86_64-linux-gnu/libmimalloc.so.2
 * libs: -Wl,--no-as-needed -l:libmimalloc.so.2 -pthread */
#include "check.h"
#include <map>
#include <string>
#include <thread>
#include <vector>

extern "C" {
void *mi_malloc(size_t);
void mi_free(void *);
}

static void body()
{
    std::map<int, std::string> m;
    for (int i = 0; i < 20000; i++) {
        m[i * 7919 % 5000] += std::string(i % 50, 'x');
        if (i % 3 == 0)
            m.erase(i % 5000);
        free(must(i % 3000));
    }
    void *p = mi_malloc(500);
    CHECK(p);
    fill(p, 500, 2);
    std::vector<char *> v;
    for (int i = 0; i < 500; i++)
        v.push_back(strdup("text"));
    CHECK(holds(p, 500, 2));
    mi_free(p);
    for (char *s : v)
        free(s);
}

int main()
{
    std::thread a(body), b(body);
    a.join();
    b.join();
    body();
    return 0;
}
