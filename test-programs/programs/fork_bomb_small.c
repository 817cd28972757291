/* Promise: a tree of short-lived processes (2^8 leaves, at most 8 deep) each with a right heap of its own; memory that
 * the parent made before the fork is the child's own copy. */
#include "check.h"

int main(void)
{
    char *copy = must(5000);
    unsigned id = 1;
    fill(copy, 5000, id);
    for (int depth = 0; depth < 8; depth++) {
        pid_t p = fork();
        if (!p) {
            CHECK(holds(copy, 5000, id));
            id = id * 2 + 1;
            fill(copy, 5000, id);
            for (int i = 1; i < 300; i++)
                free(must(i * 13));
            continue;
        }
        for (int i = 1; i < 300; i++)
            free(must(i * 7));
        child_ok(p);
        CHECK(holds(copy, 5000, id));
        free(copy);
        return 0;
    }
    free(copy);
    return 0;
}
