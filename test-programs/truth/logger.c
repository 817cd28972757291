/* A second source for truth.sh: LD_PRELOAD=logger.so TRUTH_OUT=FILE CMD writes to FILE.PID every block that was live at the last
 * moment of the process, with its size as asked for and its call stack as libgcc's unwinder sees it.
 *
 * It forwards to glibc, keeps one entry for each live block in a shared file mapping (so that the state at the very end is there
 * however the process ends), and is slow and simple on purpose: one lock, one unwind for each allocation. Forked children do not
 * write; an exec'ed program starts its own file.
 *
 * File: struct header, then MAX_OBJECTS names of 256 bytes, MAX_STACKS struct stack, MAX_BLOCKS struct block. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

enum { FRAMES = 8, MAX_OBJECTS = 256, MAX_STACKS = 1 << 16, MAX_BLOCKS = 1 << 22, NAME = 256 };
struct header { uint64_t magic, lost; uint32_t objects, stacks, blocks, frames; };
struct stack { uint32_t count, object[FRAMES]; uint32_t pad; uint64_t addr[FRAMES]; };
struct block { uint64_t ptr, size; uint32_t stack, pad; };

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static struct header *h;
static char (*objects)[NAME];
static struct stack *stacks;
static struct block *blocks;
static pid_t owner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside __attribute__((tls_model("initial-exec")));

static void open_file(void)
{
    char path[4096];
    const char *out = getenv("TRUTH_OUT");
    size_t size = sizeof *h + MAX_OBJECTS * NAME + MAX_STACKS * sizeof *stacks + MAX_BLOCKS * sizeof *blocks;
    owner = getpid();
    if (!out)
        return;
    snprintf(path, sizeof path, "%s.%d", out, (int)owner);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        _exit(98);
    char *m = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (m == MAP_FAILED)
        _exit(98);
    objects = (void *)(m + sizeof *h);
    stacks = (void *)(m + sizeof *h + MAX_OBJECTS * NAME);
    blocks = (void *)(stacks + MAX_STACKS);
    h = (void *)m;
    h->magic = 0x6874757274;
    h->frames = FRAMES;
}

struct walk { int n; uintptr_t ip[FRAMES + 2]; };
static _Unwind_Reason_Code step(struct _Unwind_Context *c, void *arg)
{
    struct walk *w = arg;
    if (w->n == FRAMES + 2)
        return _URC_END_OF_STACK;
    w->ip[w->n++] = _Unwind_GetIP(c);
    return _URC_NO_REASON;
}

static uint32_t object_index(const char *name)
{
    for (uint32_t i = 0; i < h->objects; i++)
        if (!strncmp(objects[i], name, NAME - 1))
            return i;
    if (h->objects == MAX_OBJECTS)
        return 0;
    strncpy(objects[h->objects], name, NAME - 1);
    return h->objects++;
}

/* The caller's stack, from the frame that called the function whose return address is ra. */
static uint32_t stack_index(uintptr_t ra)
{
    struct walk w = {0};
    struct stack s = {0};
    _Unwind_Backtrace(step, &w);
    int first = 0;
    while (first < w.n && w.ip[first] != ra)
        first++;
    if (first == w.n) { /* the walk did not pass here: the return address alone */
        w.ip[0] = ra;
        w.n = 1;
        first = 0;
    }
    for (int i = first; i < w.n && s.count < FRAMES && w.ip[i]; i++) {
        struct dl_find_object o;
        uintptr_t a = w.ip[i] - 1;
        const char *name = "?";
        if (_dl_find_object((void *)a, &o) == 0) {
            name = o.dlfo_link_map->l_name[0] ? o.dlfo_link_map->l_name : "(program)";
            a -= o.dlfo_link_map->l_addr;
        }
        s.object[s.count] = object_index(name);
        s.addr[s.count++] = a;
    }
    uint64_t hash = 0;
    for (uint32_t i = 0; i < s.count; i++)
        hash = (hash ^ s.addr[i] ^ s.object[i]) * 0x9E3779B97F4A7C15u;
    for (uint32_t i = (uint32_t)(hash >> 40) % MAX_STACKS, k = 0; k < MAX_STACKS; k++, i = (i + 1) % MAX_STACKS) {
        if (!stacks[i].count) {
            stacks[i] = s;
            h->stacks++;
        }
        if (!memcmp(&stacks[i], &s, sizeof s))
            return i;
    }
    return 0;
}

static uint32_t slot_of(uint64_t p) { return (uint32_t)((p >> 4) * 0x9E3779B97F4A7C15u >> 42) % MAX_BLOCKS; }

static int mine(void) { return h && !inside && getpid() == owner; }

static void note(void *p, size_t n, void *ra)
{
    if (!h && !owner)
        open_file();
    if (!p || !mine())
        return;
    int saved = errno;
    inside = 1;
    pthread_mutex_lock(&lock);
    uint32_t i = slot_of((uint64_t)p), k = 0;
    while (blocks[i].ptr && blocks[i].ptr != (uint64_t)p && k++ < MAX_BLOCKS)
        i = (i + 1) % MAX_BLOCKS;
    if (h->blocks > MAX_BLOCKS - MAX_BLOCKS / 8) {
        h->lost++;
    } else {
        if (!blocks[i].ptr)
            h->blocks++;
        blocks[i] = (struct block){(uint64_t)p, n, stack_index((uintptr_t)ra), 1};
    }
    pthread_mutex_unlock(&lock);
    inside = 0;
    errno = saved;
}

static void forget(void *p)
{
    if (!p || !mine())
        return;
    int saved = errno;
    inside = 1;
    pthread_mutex_lock(&lock);
    uint32_t i = slot_of((uint64_t)p);
    while (blocks[i].ptr && blocks[i].ptr != (uint64_t)p)
        i = (i + 1) % MAX_BLOCKS;
    if (blocks[i].ptr) { /* close the gap, so that probing stays right */
        h->blocks--;
        for (uint32_t j = (i + 1) % MAX_BLOCKS; blocks[j].ptr; j = (j + 1) % MAX_BLOCKS) {
            uint32_t want = slot_of(blocks[j].ptr);
            if (i <= j ? (want <= i || want > j) : (want <= i && want > j)) {
                blocks[i] = blocks[j];
                i = j;
            }
        }
        blocks[i] = (struct block){0};
    }
    pthread_mutex_unlock(&lock);
    inside = 0;
    errno = saved;
}

#define RA __builtin_return_address(0)
void *malloc(size_t n) { void *p = __libc_malloc(n); note(p, n, RA); return p; }
void *calloc(size_t a, size_t b) { void *p = __libc_calloc(a, b); note(p, a * b, RA); return p; }
void free(void *p) { forget(p); __libc_free(p); }
void *memalign(size_t al, size_t n) { void *p = __libc_memalign(al, n); note(p, n, RA); return p; }
void *aligned_alloc(size_t al, size_t n) { void *p = __libc_memalign(al, n); note(p, n, RA); return p; }
void *valloc(size_t n) { void *p = __libc_memalign(4096, n); note(p, n, RA); return p; }

int posix_memalign(void **out, size_t al, size_t n)
{
    if (al % sizeof(void *) || al & (al - 1) || !al)
        return EINVAL;
    void *p = __libc_memalign(al, n);
    if (!p)
        return ENOMEM;
    note(p, n, RA);
    *out = p;
    return 0;
}

static void *resize(void *q, size_t n, void *ra)
{
    if (!q) {
        q = __libc_malloc(n);
        note(q, n, ra);
        return q;
    }
    forget(q); /* before the call: afterwards another thread may have the address */
    void *p = __libc_realloc(q, n);
    if (p)
        note(p, n, ra);
    return p;
}
void *realloc(void *q, size_t n) { return resize(q, n, RA); }
void *reallocarray(void *q, size_t a, size_t b)
{
    size_t n;
    if (__builtin_mul_overflow(a, b, &n)) {
        errno = ENOMEM;
        return 0;
    }
    return resize(q, n, RA);
}

/* operator new and delete, plain, array, nothrow, aligned, sized: failure is not expected here. */
#define NEW(name, args, al) \
    void *name args { void *p = al ? __libc_memalign(al, n) : __libc_malloc(n ? n : 1); if (!p) abort(); note(p, n, RA); return p; }
NEW(_Znwm, (size_t n), 0)
NEW(_Znam, (size_t n), 0)
NEW(_ZnwmRKSt9nothrow_t, (size_t n, void *t __attribute__((unused))), 0)
NEW(_ZnamRKSt9nothrow_t, (size_t n, void *t __attribute__((unused))), 0)
NEW(_ZnwmSt11align_val_t, (size_t n, size_t al), al)
NEW(_ZnamSt11align_val_t, (size_t n, size_t al), al)
NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t n, size_t al, void *t __attribute__((unused))), al)
NEW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t n, size_t al, void *t __attribute__((unused))), al)
#define DELETE(name) void name(void *p) { free(p); }
DELETE(_ZdlPv)
DELETE(_ZdaPv)
DELETE(_ZdlPvm)
DELETE(_ZdaPvm)
DELETE(_ZdlPvRKSt9nothrow_t)
DELETE(_ZdaPvRKSt9nothrow_t)
DELETE(_ZdlPvSt11align_val_t)
DELETE(_ZdaPvSt11align_val_t)
DELETE(_ZdlPvmSt11align_val_t)
DELETE(_ZdaPvmSt11align_val_t)
