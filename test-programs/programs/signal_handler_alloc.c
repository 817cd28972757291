/* Promise: a handler that allocates and frees at a high rate while the program is inside malloc itself does no harm; once on
 * the normal stack, once on sigaltstack (invariant 4; peers.md trap 11). glibc promises nothing of the kind.
 * only: preload
 * timeout: 90 */
#include "check.h"
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t hits, bad;
static void *volatile kept[64];

static void handler(int sig)
{
    (void)sig;
    int saved = errno;
    unsigned n = 1 + (unsigned)hits * 37 % 5000;
    char *p = malloc(n), *q = malloc(64), *r = calloc(1, 200);
    if (!p || !q || !r)
        bad = 1;
    fill(p, n, n);
    memset(q, 9, 64);
    p = realloc(p, n + 100);
    if (!p || !holds(p, n, n))
        bad = 2;
    free(q);
    free(kept[hits % 64]); /* some blocks live from one signal to a later one */
    kept[hits % 64] = r;
    free(p);
    hits++;
    errno = saved;
}

static void run(int flags, int want)
{
    struct sigaction sa = {0};
    sa.sa_handler = handler;
    sa.sa_flags = flags | SA_RESTART;
    sigaction(SIGALRM, &sa, 0);
    struct itimerval every = {{0, 50}, {0, 50}}, none = {{0, 0}, {0, 0}};
    int goal = hits + want;
    unsigned char *p[256] = {0};
    unsigned n[256] = {0};
    uint32_t s = 5;
    setitimer(ITIMER_REAL, &every, 0);
    for (long i = 0; hits < goal || i < 200000; i++) {
        int k = rnd(&s) % 256;
        if (p[k] && (p[k][0] != (unsigned char)k || p[k][n[k] - 1] != (unsigned char)k))
            FAIL("a block changed after %d signals", hits);
        free(p[k]);
        n[k] = 1 + rnd(&s) % (i % 50 ? 800 : 60000);
        p[k] = must(n[k]);
        p[k][0] = p[k][n[k] - 1] = (unsigned char)k;
    }
    setitimer(ITIMER_REAL, &none, 0);
    for (int k = 0; k < 256; k++)
        free(p[k]);
    if (bad)
        FAIL("the handler saw fault %d", bad);
}

int main(void)
{
    static char alt[65536];
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
    run(0, 20000);
    CHECK(sigaltstack(&ss, 0) == 0);
    run(SA_ONSTACK, 20000);
    return 0;
}
