/* Promise: malloc in a handler on a sigaltstack of any place (heap, mmap next to unmapped pages, static), raised from code that
 * is not inside malloc. */
#include "check.h"
#include <signal.h>
#include <sys/mman.h>

static void *volatile got;
static void handler(int sig)
{
    (void)sig;
    char here;
    stack_t ss;
    CHECK(sigaltstack(0, &ss) == 0 && (ss.ss_flags & SS_ONSTACK));
    CHECK(&here > (char *)ss.ss_sp && &here < (char *)ss.ss_sp + ss.ss_size);
    char *p = malloc(333);
    fill(p, 333, 4);
    p = realloc(p, 33333);
    CHECK(p && holds(p, 333, 4));
    got = p;
}

int main(void)
{
    static char fixed[32768];
    char *edge = mmap(0, 32768 + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(edge != MAP_FAILED && mprotect(edge + 4096, 32768, PROT_READ | PROT_WRITE) == 0);
    char *places[] = {fixed, edge + 4096, must(32768)};
    struct sigaction sa = {0};
    sa.sa_handler = handler;
    sa.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &sa, 0);
    for (int i = 0; i < 3; i++) {
        stack_t ss = {.ss_sp = places[i], .ss_size = 32768}, off = {.ss_flags = SS_DISABLE};
        CHECK(sigaltstack(&ss, 0) == 0);
        for (int k = 0; k < 200; k++) {
            raise(SIGUSR1);
            CHECK(holds(got, 333, 4));
            free(got);
        }
        CHECK(sigaltstack(&off, 0) == 0);
    }
    free(places[2]);
    return 0;
}
