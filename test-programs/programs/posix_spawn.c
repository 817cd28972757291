/* Promise: posix_spawn (a CLONE_VM child on a foreign stack) from four threads while they allocate; the children get the
 * environment unchanged and their exit status arrives.
 * libs: -pthread */
#include "check.h"
#include <pthread.h>
#include <spawn.h>

extern char **environ;
static const char *self;

static void *spawner(void *arg)
{
    for (int i = 0; i < 60; i++) {
        char *args[] = {(char *)self, "child", 0};
        void *p = must(2000);
        fill(p, 2000, i);
        pid_t pid;
        int st;
        CHECK(posix_spawn(&pid, "/proc/self/exe", 0, 0, args, environ) == 0);
        CHECK(waitpid(pid, &st, 0) == pid);
        CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 5);
        CHECK(holds(p, 2000, i));
        free(p);
    }
    return arg;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        free(must(10));
        return getenv("LIVED_ON") ? 5 : 6;
    }
    self = argv[0];
    setenv("LIVED_ON", "1", 1);
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&t[i], 0, spawner, 0) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], 0);
    return 0;
}
