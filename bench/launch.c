/* launch OUT CMD...: runs CMD and writes "wall user sys maxrss_kib status" to OUT. Times and the peak are those of the command and
 * of all children it waited for. Small and static on purpose: before exec a child's peak is that of its launcher.
 * A variable LAUNCH_PRELOAD becomes LD_PRELOAD for the command only. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

int main(int argc, char **argv)
{
    struct timespec a, b;
    struct rusage r;
    int st;
    if (argc < 3)
        return 2;
    const char *preload = getenv("LAUNCH_PRELOAD");
    if (preload && *preload)
        setenv("LD_PRELOAD", preload, 1);
    unsetenv("LAUNCH_PRELOAD");
    clock_gettime(CLOCK_MONOTONIC, &a);
    pid_t p = vfork();
    if (!p) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    if (p < 0 || wait4(p, &st, 0, &r) < 0)
        return 2;
    clock_gettime(CLOCK_MONOTONIC, &b);
    FILE *f = fopen(argv[1], "w");
    if (!f)
        return 2;
    fprintf(f, "%.6f %.6f %.6f %ld %d\n", (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9,
            seconds(r.ru_utime), seconds(r.ru_stime), r.ru_maxrss, WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st));
    return fclose(f) ? 2 : 0;
}
