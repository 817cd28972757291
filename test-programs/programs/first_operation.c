/* Promise: malloc works before any constructor, in .preinit_array, and what it gave stays valid in main
 * (peers.md trap 1: clang makes 4446 calls before a preload's constructor). */
#include "check.h"

enum { N = 3000 };
static void *early[N];
static int early_made;

static void make(void)
{
    for (int i = 0; i < N; i++) {
        early[i] = must(1 + i % 700);
        fill(early[i], 1 + i % 700, i);
    }
    for (int i = 0; i < N; i += 3) {
        free(early[i]);
        early[i] = 0;
    }
    early_made = 1;
}

static void preinit(int argc, char **argv, char **envp)
{
    (void)argc, (void)argv, (void)envp;
    make();
}
__attribute__((section(".preinit_array"), used)) static void (*const entry)(int, char **, char **) = preinit;

static void *ctor_block;
__attribute__((constructor(101))) static void ctor(void)
{
    CHECK(early_made);
    ctor_block = calloc(100, 10);
    CHECK(ctor_block);
    void *big = must(8 << 20);
    fill(big, 4096, 3);
    free(big);
}

int main(void)
{
    for (int i = 0; i < N; i++)
        if (early[i]) {
            CHECK(malloc_usable_size(early[i]) >= (size_t)(1 + i % 700));
            CHECK(holds(early[i], 1 + i % 700, i));
            early[i] = realloc(early[i], 2000);
            CHECK(holds(early[i], 1 + i % 700, i));
            free(early[i]);
        }
    free(ctor_block);
    return 0;
}
