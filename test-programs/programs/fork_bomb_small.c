/* Promise: a tree of 511 short-lived processes (8 deep, two children each) each with a right heap of its own; memory that
 * the parent made before the fork is the child's own copy. */
#include "check.h"

static void tree(unsigned id, int depth)
{
    char *copy = must(5000);
    fill(copy, 5000, id);
    for (unsigned side = 0; depth && side < 2; side++) {
        pid_t p = fork();
        if (!p) {
            CHECK(holds(copy, 5000, id));
            fill(copy, 5000, id + 1); /* must not be seen by the parent */
            for (int i = 1; i < 300; i++)
                free(must(i * 13));
            tree(id * 2 + side, depth - 1);
            CHECK(holds(copy, 5000, id + 1));
            free(copy);
            exit(0);
        }
        for (int i = 1; i < 100; i++)
            free(must(i * 7));
        child_ok(p);
        CHECK(holds(copy, 5000, id));
    }
    free(copy);
}

int main(void)
{
    tree(1, 8);
    return 0;
}
