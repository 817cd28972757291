/* Promise: malloc at any depth of the stack, up to 48 KiB before its end, on main (8 MiB limit) and on a thread.
 * libs: -pthread */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>

static uintptr_t lowest;
struct link { struct link *next; char body[90]; };

__attribute__((noinline)) static struct link *down(struct link *list)
{
    char here[200];
    here[0] = 1;
    struct link *l = must(sizeof *l);
    l->next = list;
    fill(l->body, 90, 5);
    if ((uintptr_t)here > lowest)
        l = down(l);
    here[1] = here[0];
    __asm__ volatile("" ::"r"(here) : "memory");
    return l;
}

static void run(size_t room)
{
    char here;
    lowest = (uintptr_t)&here - room;
    struct link *l = down(0), *n;
    long count = 0;
    for (; l; l = n, count++) {
        CHECK(holds(l->body, 90, 5));
        n = l->next;
        free(l);
    }
    CHECK(count > 1000);
}

static void *body(void *arg)
{
    run(1 << 20);
    return arg;
}

int main(void)
{
    struct rlimit r;
    getrlimit(RLIMIT_STACK, &r);
    size_t room = r.rlim_cur == RLIM_INFINITY || r.rlim_cur > 8 << 20 ? 8 << 20 : r.rlim_cur;
    run(room - (64 << 10));
    pthread_t t;
    pthread_attr_t at;
    pthread_attr_init(&at);
    pthread_attr_setstacksize(&at, (1 << 20) + (64 << 10));
    CHECK(pthread_create(&t, &at, body, 0) == 0);
    pthread_join(t, 0);
    return 0;
}
