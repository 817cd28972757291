/* Promise: vfork shares memory with the parent, so nothing the child does before exec may harm the parent's heap;
 * the program that is exec'ed starts afresh (peers.md trap 5). */
#include "check.h"

int main(int argc, char **argv)
{
    if (argc > 1) { /* the exec'ed one */
        void *p = must(100);
        free(p);
        return 7;
    }
    void *mine[100];
    for (int i = 0; i < 100; i++) {
        mine[i] = must(100 + i);
        fill(mine[i], 100 + i, i);
    }
    for (int i = 0; i < 200; i++) {
        int st;
        void *volatile made = 0;
        pid_t p = vfork();
        if (!p) {
            made = malloc(300); /* many programs do, though only exec and _exit are allowed */
            free(malloc(50));
            execl("/proc/self/exe", argv[0], "child", (char *)0);
            _exit(99);
        }
        CHECK(p > 0 && waitpid(p, &st, 0) == p);
        CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 7);
        CHECK(made && malloc_usable_size(made) >= 300);
        free(made);
        for (int k = 0; k < 100; k++)
            CHECK(holds(mine[k], 100 + k, k));
    }
    for (int i = 0; i < 100; i++)
        free(mine[i]);
    return 0;
}
