/* Promise: malloc and free work in atexit handlers, static destructors and ELF destructors, also for blocks
 * made in main and after every C++ static object is gone (peers.md trap 1: over 1000 calls for clang). */
#include "check.h"
#include <string>
#include <vector>

static void *from_main[500];
static int stage;

static void work(int add)
{
    std::vector<std::string> v;
    for (int i = 0; i < 2000; i++)
        v.push_back(std::string(10 + i % 300, 'a' + i % 26));
    for (int i = 0; i < 2000; i++)
        CHECK(v[i].size() == (size_t)(10 + i % 300) && v[i][5] == 'a' + i % 26);
    void *big = must(3 << 20);
    fill(big, 100, 1);
    free(big);
    stage += add;
}

struct Static {
    std::vector<int> kept = std::vector<int>(1000, 7);
    ~Static() { CHECK(kept[999] == 7); work(10); }
} object;

static void at_exit() { work(1); }

__attribute__((destructor(101))) static void last()
{
    CHECK(stage == 11);
    work(100);
    for (int i = 0; i < 500; i++) {
        CHECK(holds(from_main[i], 1 + i * 3, i));
        free(from_main[i]);
    }
    if (write(1, "last destructor ran\n", 20) != 20)
        _exit(1);
}

int main()
{
    atexit(at_exit);
    for (int i = 0; i < 500; i++) {
        from_main[i] = must(1 + i * 3);
        fill(from_main[i], 1 + i * 3, i);
    }
    return 0;
}
