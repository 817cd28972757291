/* Works until its standard input ends: each round allocates and frees from two sites; every 1000th object of `leaky` is lost. */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

void *volatile sink;

__attribute__((noinline)) static void busy(size_t n)
{
    void *p = malloc(n); /* busy site */
    sink = p;
    free(p);
}

__attribute__((noinline)) static void leaky(long i)
{
    void *p = malloc(48); /* leaky site */
    sink = p;
    if (i % 1000 != 0)
        free(p);
}

int main(void)
{
    struct pollfd in = {.fd = 0, .events = POLLIN};
    if (write(1, "ready\n", 6) != 6)
        return 1;
    for (long i = 1;; i++) {
        busy(100 + i % 300);
        leaky(i);
        if (i % 1000 == 0) {
            usleep(500);
            if (poll(&in, 1, 0) != 0)
                return 0;
        }
    }
}
