/* What every test program uses: CHECK, content patterns, resident size, waiting for a child.
 * Nothing here allocates, so a program's own calls are the only ones under test. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Prints where and what, and ends the process at once: no destructors, so a broken heap is not used again. */
#define FAIL(...)                                                \
    do {                                                         \
        dprintf(2, "%s:%d: ", __FILE__, __LINE__);               \
        dprintf(2, __VA_ARGS__);                                 \
        dprintf(2, "\n");                                        \
        _exit(1);                                                \
    } while (0)
#define CHECK(c)                                 \
    do {                                         \
        if (!(c))                                \
            FAIL("not true: %s", #c);            \
    } while (0)

/* 1 when run.sh runs this program under the preload library. */
static inline int under_preload(void)
{
    return getenv("UNDER_PRELOAD") != 0;
}

static inline uint32_t rnd(uint32_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 17;
    *s ^= *s << 5;
    return *s;
}

/* A pattern that differs by seed and by position: a block that overlaps another cannot keep it. */
static inline void fill(void *p, size_t n, unsigned seed)
{
    unsigned char *b = (unsigned char *)p;
    for (size_t i = 0; i < n; i++)
        b[i] = (unsigned char)(seed * 131 + i * 7 + (i >> 8));
}

static inline int holds(const void *p, size_t n, unsigned seed)
{
    const unsigned char *b = (const unsigned char *)p;
    for (size_t i = 0; i < n; i++)
        if (b[i] != (unsigned char)(seed * 131 + i * 7 + (i >> 8)))
            return 0;
    return 1;
}

static inline void *must(size_t n)
{
    void *p = malloc(n);
    if (!p)
        FAIL("malloc(%zu) failed, errno %d", n, errno);
    return p;
}

/* Resident size in KiB, by a plain read of /proc/self/statm. */
static inline long rss_kib(void)
{
    char b[128];
    int fd = open("/proc/self/statm", O_RDONLY);
    ssize_t n = read(fd, b, sizeof b - 1);
    close(fd);
    if (n <= 0)
        FAIL("cannot read statm");
    b[n] = 0;
    char *s = strchr(b, ' ');
    return strtol(s, 0, 10) * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Waits for a child that must exit with 0. */
static inline void child_ok(pid_t pid)
{
    int st = 0;
    if (pid < 0)
        FAIL("no child: errno %d", errno);
    while (waitpid(pid, &st, 0) < 0)
        if (errno != EINTR)
            FAIL("waitpid: errno %d", errno);
    if (!WIFEXITED(st) || WEXITSTATUS(st))
        FAIL("child ended with status 0x%x", st);
}
#endif
