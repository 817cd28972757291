/* Promise: free or realloc of a pointer that malloc never gave (stack, static, mmap, brk, interior) and a second free end
 * in a clear message, or are ignored and the heap stays right: never silent corruption (invariant 4; peers.md trap 8).
 * libs: -pthread */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

static char area[8192] __attribute__((aligned(64)));
static char *cross;

static void heap_is_right(void *foreign)
{
    static unsigned char *p[4000];
    for (int i = 0; i < 4000; i++) {
        p[i] = must(1 + i % 1500);
        CHECK(p[i] != foreign);
        fill(p[i], 1 + i % 1500, i);
    }
    for (int i = 0; i < 4000; i++)
        if (!holds(p[i], 1 + i % 1500, i))
            FAIL("two live blocks overlap: silent corruption");
    for (int i = 0; i < 4000; i++)
        free(p[i]);
}

static void *free_cross(void *arg) { free(cross); return arg; }

/* One misuse; returns the pointer that must never be handed out afterwards, or 0. Cases from FIRST_OURS on are not
 * detected by glibc. */
enum { STACK, STATIC, MMAP, BRK, INTERIOR, INTERIOR_BIG, MISALIGNED, TWICE, TWICE_LATER, REALLOC_STACK, TWICE_LARGE, FIRST_OURS,
       TWICE_HUGE = FIRST_OURS, TWICE_THREAD, INTERIOR_HUGE, LOW, NON_CANONICAL, REALLOC_FREED, CASES };

static void *misuse(int c)
{
    static char stack_like[256] __attribute__((aligned(16)));
    char local[512] __attribute__((aligned(16))) = {0};
    char *p = stack_like;
    pthread_t t;
    switch (c) {
    case STACK: free(p = local + 64); return p;
    case STATIC: free(p = area + 256); return p;
    case MMAP: free(p = (char *)mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 4096); return p;
    case BRK: p = sbrk(65536); p = (char *)(((uintptr_t)p + 8192) & ~4095ul); free(p + 64); return p + 64;
    case INTERIOR: p = must(640); memset(p, 0, 640); free(p + 320); return p + 320;
    case INTERIOR_BIG: p = must(40000); memset(p, 0, 40000); free(p + 16384); return p + 16384;
    case MISALIGNED: p = must(640); free(p + 8); return p + 8;
    case TWICE: p = must(100); free(p); free(p); return 0;
    case TWICE_LATER: p = must(100); free(p); free(must(500)); free(must(7)); free(p); return 0;
    case REALLOC_STACK: p = realloc(local + 64, 1000); CHECK(p != local + 64); return 0;
    case TWICE_LARGE: p = must(100000); free(p); free(p); return 0;
    case TWICE_HUGE: p = must(64 << 20); free(p); free(p); return 0;
    case TWICE_THREAD: free(cross = must(200)); CHECK(!pthread_create(&t, 0, free_cross, 0)); pthread_join(t, 0); return 0;
    case INTERIOR_HUGE: p = must(64 << 20); free(p + (1 << 20)); return p + (1 << 20);
    case LOW: free((void *)16); free((void *)4096); return 0;
    case NON_CANONICAL: free((void *)0x7fffffffffff0); free((void *)0xfffffffffffffff0); return 0;
    default: p = must(300); free(p); p = realloc(p, 600); return 0;
    }
}

static void run(int c)
{
    int out[2], st;
    char text[8192];
    size_t n = 0;
    CHECK(pipe(out) == 0);
    pid_t pid = fork();
    if (!pid) {
        dup2(out[1], 2);
        heap_is_right(misuse(c));
        _exit(0);
    }
    close(out[1]);
    for (ssize_t k; n < sizeof text - 1 && (k = read(out[0], text + n, sizeof text - 1 - n)) > 0;)
        n += k;
    text[n] = 0;
    close(out[0]);
    CHECK(waitpid(pid, &st, 0) == pid);
    int quiet = WIFEXITED(st) && WEXITSTATUS(st) == 0;
    int told = WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT && n > 10;
    printf("case %d: %s%s\n", c, quiet ? "ignored" : told ? "refused: " : "", told ? text : "");
    if (!quiet && !told)
        FAIL("case %d: status 0x%x, said: %s", c, st, text);
}

int main(void)
{
    setvbuf(stdout, 0, _IONBF, 0);
    for (int c = 0; c < (under_preload() ? CASES : FIRST_OURS); c++)
        run(c);
    return 0;
}
