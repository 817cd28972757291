/* Promise: under `ulimit -v 200000` the allocator still works (no reserve that cannot be had), gives NULL with ENOMEM at the
 * limit, and goes on after memory is freed. */
#include "check.h"
#include <sys/resource.h>

static void *p[400];

static int eat(size_t n)
{
    int i = 0;
    for (; i < 400; i++) {
        errno = 0;
        p[i] = malloc(n);
        if (!p[i])
            break;
        memset(p[i], i, 4096);
    }
    if (i == 400)
        FAIL("400 blocks of %zu under a limit of 200000 KiB", n);
    CHECK(errno == ENOMEM);
    return i;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        struct rlimit r = {200000 * 1024, 200000 * 1024};
        CHECK(setrlimit(RLIMIT_AS, &r) == 0);
        execl("/proc/self/exe", argv[0], "limited", (char *)0);
        FAIL("exec: errno %d", errno);
    }
    int first = 0;
    for (int round = 0; round < 5; round++) {
        int n = eat(4 << 20);
        if (round == 0)
            first = n;
        if (n < 15 || n < first - 2)
            FAIL("round %d: only %d blocks of 4 MiB (first round %d)", round, n, first);
        for (int i = 0; i < n; i++) {
            CHECK(*(char *)p[i] == (char)i);
            free(p[i]);
        }
    }
    void **list = 0, **q; /* small ones to the limit */
    long small = 0;
    while ((q = malloc(1000))) {
        *q = list;
        list = q;
        small++;
    }
    CHECK(errno == ENOMEM && small > 50000);
    for (; list; list = q) {
        q = *list;
        free(list);
    }
    for (int i = 0; i < 1000; i++)
        free(must(5000));
    return 0;
}
