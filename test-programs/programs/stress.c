/* Promise: anything at random keeps contents, alignment and zeroing: 8 threads, all functions, sizes 0 B to 16 MiB, frees of
 * other threads' blocks. Arguments: SECONDS (4) SEED (1); the seed is printed for a repeat.
 * libs: -pthread
 * timeout: 120 */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { T = 8, SLOTS = 2048 };
struct block { size_t n; unsigned seed; };
static _Atomic(struct block *) slots[SLOTS];
static atomic_long ops;
static time_t end;
static unsigned seed = 1;

static size_t pick(uint32_t *s)
{
    unsigned k = rnd(s) % 10000;
    if (k < 9000)
        return sizeof(struct block) + rnd(s) % 1024;
    if (k < 9900)
        return sizeof(struct block) + rnd(s) % 65536;
    return k < 9995 ? 65536 + rnd(s) % (1 << 20) : rnd(s) % (16 << 20) + 64;
}

static void seal(struct block *b, size_t n, uint32_t *s)
{
    CHECK(b && (uintptr_t)b % 16 == 0 && malloc_usable_size(b) >= n);
    b->n = n;
    b->seed = rnd(s);
    size_t body = n - sizeof *b, some = body > 8192 ? 4096 : body;
    fill(b + 1, some, b->seed);
    if (some < body)
        fill((char *)b + n - 4096, 4096, b->seed);
}

static void check(const struct block *b)
{
    size_t body = b->n - sizeof *b, some = body > 8192 ? 4096 : body;
    if (!holds(b + 1, some, b->seed) || (some < body && !holds((const char *)b + b->n - 4096, 4096, b->seed)))
        FAIL("block %p of %zu changed (seed %u)", (const void *)b, b->n, seed);
}

static struct block *make(uint32_t *s, size_t n)
{
    unsigned how = rnd(s) % 6;
    void *p = 0;
    size_t al = 16ul << rnd(s) % 9;
    if (how < 2)
        p = malloc(n);
    else if (how == 2) {
        unsigned char *z = calloc(1, n);
        for (size_t i = 0; i < n; i += n > 4096 ? 97 : 1)
            if (!z || z[i])
                FAIL("calloc(%zu): byte %zu is not 0 (seed %u)", n, i, seed);
        p = z;
    } else if (how == 3)
        CHECK(posix_memalign(&p, al, n) == 0);
    else if (how == 4)
        p = memalign(al, n);
    else
        p = aligned_alloc(al, n);
    if (how > 2)
        CHECK((uintptr_t)p % al == 0);
    return p;
}

static void *body(void *arg)
{
    uint32_t s = seed * 2654435761u + 1000 * (uint32_t)(uintptr_t)arg + 1;
    long n = 0;
    for (; time(0) < end; n += 64)
        for (int i = 0; i < 64; i++) {
            struct block *b = atomic_exchange(&slots[rnd(&s) % SLOTS], 0);
            if (b)
                check(b);
            size_t want = pick(&s);
            if (b && rnd(&s) % 4 == 0) {
                size_t keep = b->n < want ? b->n : want, body = keep - sizeof *b;
                unsigned old = b->seed;
                int whole = b->n - sizeof *b <= 8192;
                b = realloc(b, want);
                if (!b || !holds(b + 1, whole ? body : body > 4096 ? 4096 : body, old))
                    FAIL("realloc to %zu lost contents (seed %u)", want, seed);
            } else {
                free(b);
                b = make(&s, want);
            }
            seal(b, want, &s);
            free(atomic_exchange(&slots[rnd(&s) % SLOTS], b));
        }
    ops += n;
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t t[T];
    end = time(0) + (argc > 1 ? atoi(argv[1]) : 4);
    seed = argc > 2 ? (unsigned)atoi(argv[2]) : 1;
    for (long i = 0; i < T; i++)
        CHECK(pthread_create(&t[i], 0, body, (void *)i) == 0);
    for (int i = 0; i < T; i++)
        pthread_join(t[i], 0);
    for (int i = 0; i < SLOTS; i++)
        if (slots[i]) {
            check(slots[i]);
            free(slots[i]);
        }
    printf("seed %u: %ld operations\n", seed, ops);
    return 0;
}
