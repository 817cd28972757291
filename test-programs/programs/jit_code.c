/* Promise: malloc called from code in anonymous memory (a JIT: no module, no unwind tables), from 1,200,000 return addresses:
 * the walk stops without a fault, a full site table costs only attribution, and blocks outlive their code.
 * timeout: 120 */
#include "check.h"
#include <sys/mman.h>

enum { STUB = 32, STUBS = 300000, ROUNDS = 4 };
typedef void *(*stub_fn)(size_t);
static unsigned char *live[STUBS];

/* push rbx / sub rsp, 16 / mov rax, malloc / call rax / add rsp, 16 / pop rbx / ret: a frame no unwinder can know of. */
static void write_stub(unsigned char *c)
{
    void *(*target)(size_t) = malloc;
    static const unsigned char head[] = {0x53, 0x48, 0x83, 0xec, 0x10, 0x48, 0xb8}, tail[] = {0xff, 0xd0, 0x48, 0x83, 0xc4, 0x10, 0x5b, 0xc3};
    memcpy(c, head, sizeof head);
    memcpy(c + sizeof head, &target, 8);
    memcpy(c + sizeof head + 8, tail, sizeof tail);
}

int main(void)
{
    long start = 0;
    for (int round = 0; round < ROUNDS; round++) {
        /* Another place each time: the blocks of the round before are still live. */
        unsigned char *code = mmap((void *)(0x200000000000 + (uintptr_t)round * 0x10000000), (size_t)STUB * STUBS,
                                   PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(code != MAP_FAILED);
        for (int i = 0; i < STUBS; i++)
            write_stub(code + (size_t)i * STUB);
        CHECK(mprotect(code, (size_t)STUB * STUBS, PROT_READ | PROT_EXEC) == 0);
        for (int i = 0; i < STUBS; i++) {
            size_t n = 16 + i % 50;
            if (live[i]) {
                CHECK(holds(live[i], n, i));
                free(live[i]);
            }
            stub_fn f = (stub_fn)(code + (size_t)i * STUB);
            live[i] = f(n);
            CHECK(live[i] && (uintptr_t)live[i] % 16 == 0);
            fill(live[i], n, i);
        }
        CHECK(munmap(code, (size_t)STUB * STUBS) == 0);
        if (round == 0)
            start = rss_kib();
    }
    for (int i = 0; i < STUBS; i++) {
        CHECK(holds(live[i], 16 + i % 50, i));
        free(live[i]);
    }
    if (rss_kib() > start + 200000)
        FAIL("grew from %ld to %ld KiB", start, rss_kib());
    return 0;
}
