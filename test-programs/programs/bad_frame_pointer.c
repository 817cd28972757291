/* Promise: rbp is an ordinary register in code without frame pointers. malloc called with rbp = garbage, an unmapped address, a
 * misaligned one or a loop does not crash the stack walk (peers.md "Problems seen": bytehound's crash). */
#include "check.h"

static void *call_with_rbp(size_t n, uintptr_t rbp)
{
    void *p;
    __asm__ volatile("push %%rbp\n\t"
                     "mov %%rsp, %%r12\n\t"
                     "sub $128, %%rsp\n\t"
                     "and $-16, %%rsp\n\t"
                     "mov %2, %%rbp\n\t"
                     "call malloc@PLT\n\t"
                     "mov %%r12, %%rsp\n\t"
                     "pop %%rbp"
                     : "=a"(p)
                     : "D"(n), "r"(rbp)
                     : "rsi", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "memory", "cc", "xmm0", "xmm1", "xmm2",
                       "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
    return p;
}

int main(void)
{
    uintptr_t loop[4];
    loop[0] = (uintptr_t)loop;
    loop[1] = (uintptr_t)main;
    uintptr_t bad[] = {0, 1, 8, 4096, (uintptr_t)-8, (uintptr_t)-1, 0x7ffffffffff8, 0x800000000000, (uintptr_t)main, (uintptr_t)loop,
                       (uintptr_t)loop + 3, (uintptr_t)loop + 1000000, (uintptr_t)loop + (8 << 20), (uintptr_t)loop & ~4095ul,
                       0xdeadbeefdeadbee8, (uintptr_t)&stdout};
    for (int r = 0; r < 50; r++)
        for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
            char *p = call_with_rbp(100 + i, bad[i]);
            CHECK(p);
            fill(p, 100 + i, i);
            free(p);
        }
    return 0;
}
