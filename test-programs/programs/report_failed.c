/* With MEMLEDGER=report_failed=on an allocation that fails puts the largest rows on standard error, once in ten seconds,
 * and the program goes on with null and ENOMEM.
 * only: preload
 */
#include "check.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void child(void) {
    char *held = malloc(5 << 20);
    memset(held, 1, 5 << 20);
    for (int i = 0; i < 3; i++) {
        errno = 0;
        if (malloc((size_t)1 << 46) || errno != ENOMEM) _exit(3);
    }
    if (realloc(held, (size_t)1 << 46) || held[9] != 1) _exit(4);
    _exit(0);
}

/* Runs this program as a child under `setting`; what it wrote to standard error. */
static int run(const char *self, const char *setting, char *out, size_t size) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        setenv("MEMLEDGER", setting, 1);
        execl(self, self, "child", (char *)0);
        _exit(9);
    }
    close(ends[1]);
    size_t n = 0;
    ssize_t r;
    while ((r = read(ends[0], out + n, size - 1 - n)) > 0) n += r;
    out[n] = 0;
    close(ends[0]);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

int main(int argc, char **argv) {
    static char text[1 << 16];
    if (argc > 1) child();
    CHECK(run(argv[0], "1,report_failed=on", text, sizeof text) == 0);
    char *head = strstr(text, "memledger: allocation of 70368744177664 bytes failed\n"
                              "Memory allocations (profiling is currently turned on):\n");
    CHECK(head != NULL);
    /* The largest first, by module and offset; no second report. */
    char *first = strstr(head, "turned on):\n") + strlen("turned on):\n");
    CHECK(strncmp(first, "    5.00 MiB        1 ", 22) == 0);
    CHECK(strstr(first, ":0 func:") != NULL && strstr(first, "+0x") != NULL);
    CHECK(strstr(first, "Memory allocations") == NULL);
    CHECK(run(argv[0], "1", text, sizeof text) == 0);
    CHECK(text[0] == 0);
    return 0;
}
