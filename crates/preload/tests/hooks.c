// Hooks, tags and saved tags, as C and as C++. "calls=N" on a line: so many live objects are charged to it.
#include "memledger.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what), abort()))

void *volatile kept[1000];
int count;
static void *keep(void *p) { return kept[__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED)] = p; }

MEMLEDGER_TAG(cache); // calls=2

static int early(int how)
{
    for (int i = 0; i < 3; i++) {
        alloc_hooks(keep(malloc(40))); // calls=6
        if (how == 0)
            alloc_hooks(({ keep(malloc(40)); return 7; 0; })); // calls=1
        if (how == 1)
            alloc_hooks(({ keep(malloc(40)); break; 0; })); // calls=1
        if (how == 2)
            alloc_hooks(({ keep(malloc(40)); goto out; 0; })); // calls=1
        if (how == 3)
            alloc_hooks(({ continue; 0; }));
    }
out:
    return how;
}

static void *thread(void *saved)
{
    CHECK(memledger_save() == 0);
    for (int i = 0; i < 50; i++)
        alloc_hooks(keep(malloc(64))); // calls=200
    memledger_with(*(memledger_saved_t *)saved, keep(malloc(64)));
    return NULL;
}

int main(void)
{
    memledger_saved_t saved = memledger_record(); // calls=5
    pthread_t threads[4];
    int (*number)(int) = early;
    CHECK(memledger_present() == (getenv("LD_PRELOAD") != NULL));
    CHECK(memledger_save() == 0);
    CHECK((saved != 0) == memledger_present());
    alloc_hooks_tag(cache, keep(malloc(100)));
    alloc_hooks_tag(cache, keep(malloc(100)));
    CHECK(number(0) == 7 && memledger_save() == 0);
    CHECK(number(1) == 1 && memledger_save() == 0);
    CHECK(number(2) == 2 && memledger_save() == 0);
    CHECK(number(3) == 3 && memledger_save() == 0);
    alloc_hooks((keep(malloc(10)), (void)alloc_hooks_tag(cache, count), keep(malloc(10)))); // calls=2
    alloc_hooks(keep(alloc_hooks(malloc(10)))); // calls=1
    memledger_with(saved, keep(malloc(10)));
    int value = alloc_hooks(3 + 4);
    CHECK(value == 7);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, &saved) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
