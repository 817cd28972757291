/* Promise: a shared object opened with RTLD_DEEPBIND binds to libc's own malloc. Freeing its block through the program's
 * free ends in a right heap or in a clear message, never in silent corruption or a crash without words (peers.md traps 7, 8).
 * libs: -ldl
 * plugins: plug_a.c */
#include "check.h"
#include <dlfcn.h>
#include <signal.h>

static void in_child(void)
{
    void *h = dlopen("./plug_a.so", RTLD_NOW | RTLD_DEEPBIND);
    if (!h)
        FAIL("dlopen: %s", dlerror());
    void *(*make)(size_t) = (void *(*)(size_t))dlsym(h, "plug_make");
    for (int i = 0; i < 200; i++) {
        char *p = make(10 + i * 5);
        CHECK(p && p[9 + i * 5] == 'A');
        free(p);
        char *q = must(10 + i * 5);
        fill(q, 10 + i * 5, i);
        char *r = make(10 + i * 5);
        CHECK(r && holds(q, 10 + i * 5, i));
        free(q);
    }
    _exit(0);
}

int main(void)
{
    int out[2], st;
    char text[4096];
    CHECK(pipe(out) == 0);
    pid_t p = fork();
    if (!p) {
        dup2(out[1], 2);
        in_child();
    }
    close(out[1]);
    size_t n = 0;
    for (ssize_t k; n < sizeof text - 1 && (k = read(out[0], text + n, sizeof text - 1 - n)) > 0;)
        n += k;
    text[n] = 0;
    CHECK(waitpid(p, &st, 0) == p);
    if (WIFEXITED(st) && !WEXITSTATUS(st))
        return 0;
    if (WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT && n > 10)
        return 0;
    FAIL("child ended with status 0x%x and said: %s", st, text);
}
