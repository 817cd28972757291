/* Promise: C++ exceptions thrown deep through frames that allocate, on several threads: the unwinder's own allocations
 * (__cxa_allocate_exception) and the frees of every cleaned-up object are right, and nothing leaks.
 * libs: -pthread
 * timeout: 120 */
#include "check.h"
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Big {
    char room[3000];
    std::string why;
};

__attribute__((noinline)) static int deep(int n, int kind)
{
    std::string s(20 + n * 7, 'a');
    auto p = std::make_unique<std::vector<int>>(n + 1, n);
    if (n == 0) {
        if (kind % 3 == 0)
            throw std::runtime_error(std::string(200, 'e'));
        if (kind % 3 == 1)
            throw Big{{1}, std::string(300, 'b')};
        throw kind;
    }
    try {
        return deep(n - 1, kind) + (*p)[0];
    } catch (const std::runtime_error &e) {
        CHECK(s[5] == 'a' && std::string(e.what()).size() >= 200);
        if (n % 4 == 0)
            throw std::runtime_error(std::string(e.what()) + "+");
        throw;
    }
}

static void rounds(int from)
{
    int caught = 0;
    for (int i = from; i < from + 1500; i++)
        try {
            deep(i % 40, i);
        } catch (const std::runtime_error &) {
            caught++;
        } catch (const Big &b) {
            caught += b.why.size() == 300 && b.room[0] == 1;
        } catch (int k) {
            caught += k == i;
        }
    CHECK(caught == 1500);
}

int main()
{
    rounds(0);
    long start = 0;
    for (int i = 0; i < 6; i++) {
        std::thread a(rounds, i), b(rounds, i + 1);
        a.join();
        b.join();
        if (i == 1)
            start = rss_kib();
    }
    if (rss_kib() > start + 8192)
        FAIL("grew from %ld to %ld KiB", start, rss_kib());
    std::exception_ptr kept;
    std::thread t([&] { try { deep(10, 0); } catch (...) { kept = std::current_exception(); } });
    t.join(); /* the exception outlives its thread */
    try {
        std::rethrow_exception(kept);
    } catch (const std::runtime_error &) {
        return 0;
    }
    FAIL("not rethrown");
}
