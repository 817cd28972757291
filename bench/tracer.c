/* pairs N ROUNDS: the best of so many rounds of N malloc/free pairs of 64 bytes, in nanoseconds a pair. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    long n = argc > 1 ? atol(argv[1]) : 300000, rounds = argc > 2 ? atol(argv[2]) : 15;
    void *volatile p;
    double best = 1e18;
    for (long r = 0; r < rounds; r++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (long i = 0; i < n; i++) {
            p = malloc(64);
            free(p);
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        double t = ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n;
        if (t < best)
            best = t;
    }
    printf("%.2f\n", best);
    return 0;
}
