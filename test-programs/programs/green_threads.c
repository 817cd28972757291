/* Promise: malloc on foreign stacks (makecontext on mmap'ed memory that ends at an unmapped page on both sides): the stack
 * walk reads nothing outside; many such stacks, unmapped again while their blocks live on. */
#include "check.h"
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 65536, FIBERS = 40 };
static ucontext_t main_ctx, ctx[FIBERS];
static void *made[FIBERS][100];

__attribute__((noinline)) static void *deeper(int depth, size_t n)
{
    volatile char pad[64];
    pad[0] = 1;
    void *p = depth ? deeper(depth - pad[0], n) : malloc(n);
    pad[1] = pad[0];
    return p;
}

static void body(int id)
{
    for (int i = 0; i < 100; i++) {
        made[id][i] = deeper(i % 20, 10 + i * 5);
        CHECK(made[id][i]);
        fill(made[id][i], 10 + i * 5, i + id);
        if (i % 10 == 0)
            swapcontext(&ctx[id], &main_ctx);
    }
}

int main(void)
{
    for (int round = 0; round < 20; round++) {
        char *map[FIBERS];
        for (int i = 0; i < FIBERS; i++) {
            map[i] = mmap(0, STACK + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(map[i] != MAP_FAILED && mprotect(map[i] + 4096, STACK, PROT_READ | PROT_WRITE) == 0);
            getcontext(&ctx[i]);
            ctx[i].uc_stack.ss_sp = map[i] + 4096;
            ctx[i].uc_stack.ss_size = STACK;
            ctx[i].uc_link = &main_ctx;
            makecontext(&ctx[i], (void (*)(void))body, 1, i);
        }
        for (int turn = 0; turn < 11; turn++)
            for (int i = 0; i < FIBERS; i++)
                swapcontext(&main_ctx, &ctx[i]);
        for (int i = 0; i < FIBERS; i++)
            munmap(map[i], STACK + 8192);
        for (int i = 0; i < FIBERS; i++)
            for (int k = 0; k < 100; k++) {
                CHECK(holds(made[i][k], 10 + k * 5, k + i));
                free(made[i][k]);
            }
    }
    return 0;
}
