/* cmicro pair|calls OPERATIONS: nanoseconds for malloc and free of 8 to 240 bytes, as "operations ns" on standard output.
 * pair: one after the other, below 20 frames. calls: each malloc at the end of a chain of its own, one of 16 of four wrappers, so that
 * what walks the stack finds another one each time. Built without frame pointers. Five timed parts; the median counts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEEP __attribute__((noinline, noclone))
#define NO_TAIL __asm__ volatile("" ::: "memory")

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static KEEP void pair(long n)
{
    for (size_t size = 8; size <= 240; size += 8)
        for (long i = 0; i < n / 30; i++) {
            char *p = malloc(size);
            if (!p)
                abort();
            *(volatile char *)p = 1;
            free(p);
        }
}

#define LEAF(name) static KEEP void *name(size_t n, unsigned path) { (void)path; void *p = malloc(n); NO_TAIL; return p; }
#define LAYER(name, a, b) static KEEP void *name(size_t n, unsigned path) { void *p = path & 1 ? b(n, path >> 1) : a(n, path >> 1); NO_TAIL; return p; }
LEAF(leaf0)
LEAF(leaf1)
LAYER(third0, leaf0, leaf1)
LAYER(third1, leaf1, leaf0)
LAYER(second0, third0, third1)
LAYER(second1, third1, third0)
LAYER(first0, second0, second1)
LAYER(first1, second1, second0)

static unsigned char paths[1024];

static KEEP void calls(long n)
{
    for (long i = 0; i < n; i++) {
        unsigned path = paths[i % 1024];
        char *p = (path & 8 ? first1 : first0)(8 + (size_t)(i % 30) * 8, path);
        if (!p)
            abort();
        *(volatile char *)p = 1;
        free(p);
    }
}

static int order(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b; }

static KEEP void timed(void (*work)(long), long n)
{
    double parts[5];
    work(n / 10);
    for (int k = 0; k < 5; k++) {
        double from = now();
        work(n / 5);
        parts[k] = (now() - from) / (double)(n / 5);
    }
    qsort(parts, 5, sizeof *parts, order);
    printf("%ld %.4f\n", n, parts[2]);
}

static KEEP void below(int frames, void (*work)(long), long n)
{
    if (frames)
        below(frames - 1, work, n);
    else
        timed(work, n);
    NO_TAIL;
}

int main(int argc, char **argv)
{
    unsigned x = 2463534242u;
    for (int i = 0; i < 1024; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        paths[i] = (unsigned char)(x & 15);
    }
    if (argc != 3 || atol(argv[2]) < 150)
        return fprintf(stderr, "cmicro pair|calls OPERATIONS\n"), 2;
    if (!strcmp(argv[1], "pair"))
        below(20, pair, atol(argv[2]) / 150 * 150);
    else if (!strcmp(argv[1], "calls"))
        below(20, calls, atol(argv[2]));
    else
        return fprintf(stderr, "cmicro: no workload %s\n", argv[1]), 2;
    return 0;
}
