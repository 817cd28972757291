/* Promise: a signal handler that forks while it interrupts malloc or free neither hangs nor breaks the heap, in the
 * parent or in the child (POSIX.1-2008 lists fork among the async-signal-safe functions).
 * timeout: 60 */
#include "check.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OBJECTS = 500, FORKS = 300, LARGEST = 60000 };
static volatile int forks;

static void handler(int signal)
{
    (void)signal;
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7)
        forks++;
}

int main(void)
{
    static unsigned char *objects[OBJECTS];
    static size_t sizes[OBJECTS];
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &every, NULL);
    unsigned seed = 1;
    while (forks < FORKS) {
        seed = seed * 1103515245u + 12345u;
        unsigned at = (seed >> 8) % OBJECTS;
        if (objects[at]) {
            CHECK(objects[at][0] == (at & 255) && objects[at][sizes[at] - 1] == (at & 255));
            free(objects[at]);
            objects[at] = NULL;
            continue;
        }
        seed = seed * 1103515245u + 12345u;
        sizes[at] = 1 + (seed >> 8) % LARGEST;
        objects[at] = malloc(sizes[at]);
        CHECK(objects[at] != NULL);
        objects[at][0] = objects[at][sizes[at] - 1] = at & 255;
    }
    return 0;
}
