/* Promise: siglongjmp out of a handler that allocated (on the normal stack and on sigaltstack; for a fault and for a timer
 * that hit code outside malloc) leaves the thread's heap usable: no "inside the allocator" mark stays behind. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

static sigjmp_buf back;
static volatile sig_atomic_t in_malloc, armed;
static char *volatile got;

static void on_fault(int sig)
{
    (void)sig;
    got = malloc(500);
    siglongjmp(back, 1);
}

static void on_timer(int sig)
{
    (void)sig;
    if (in_malloc || !armed)
        return;
    armed = 0;
    got = malloc(300);
    siglongjmp(back, 2);
}

static void faults(char *bad, int flags)
{
    struct sigaction sa = {0};
    sa.sa_handler = on_fault;
    sa.sa_flags = flags;
    sigaction(SIGSEGV, &sa, 0);
    for (volatile int i = 0; i < 3000; i++) {
        char *volatile mine = must(1000 + i);
        fill(mine, 1000 + i, i);
        if (!sigsetjmp(back, 1))
            bad[i % 4096] = 1;
        CHECK(got && holds(mine, 1000 + i, i));
        free(got);
        free(mine);
    }
}

static void timers(void)
{
    struct sigaction sa = {0};
    sa.sa_handler = on_timer;
    sigaction(SIGALRM, &sa, 0);
    struct itimerval every = {{0, 200}, {0, 200}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, 0);
    for (volatile int i = 0; i < 2000; i++) {
        volatile unsigned work = 0;
        if (!sigsetjmp(back, 1)) {
            armed = 1;
            for (;;) {
                in_malloc = 1;
                free(must(100 + work % 1000));
                in_malloc = 0;
                for (int k = 0; k < 200; k++)
                    work += k;
            }
        }
        in_malloc = 1;
        free(got);
        in_malloc = 0;
    }
    setitimer(ITIMER_REAL, &none, 0);
}

int main(void)
{
    static char alt[65536];
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
    char *bad = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bad != MAP_FAILED);
    faults(bad, 0);
    CHECK(sigaltstack(&ss, 0) == 0);
    faults(bad, SA_ONSTACK);
    timers();
    return 0;
}
