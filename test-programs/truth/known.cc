// A program with known allocations: prints "known FUNCTION CALLS BYTES" for what each function still holds at the end, as counted by
// the program itself, then ends by _exit so that nothing is freed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <string>
#include <unistd.h>
#include <vector>

#define OWN extern "C" __attribute__((noinline, noclone))
static void *held[200000];
static int count;
struct Tally { long calls, bytes; };

static void *keep(void *p, Tally &t, size_t n)
{
    held[count++] = p;
    t.calls++;
    t.bytes += (long)n;
    return p;
}

// A malloc wrapper by a usual name: the caller is to be charged.
OWN void *xmalloc(size_t n)
{
    void *p = malloc(n);
    if (!p)
        abort();
    memset(p, 1, n);
    return p;
}

OWN void load_index(Tally &t) { for (int i = 0; i < 30000; i++) keep(xmalloc(100 + i % 50), t, 100 + i % 50); }
OWN void load_cache(Tally &t) { for (int i = 0; i < 200; i++) keep(calloc(1, 64000), t, 64000); }
OWN void open_session(Tally &t) { for (int i = 0; i < 5000; i++) keep(new char[700], t, 700); }
OWN void add_word(Tally &t) { for (int i = 0; i < 8000; i++) keep(strdup("a word of some length"), t, 22); }
OWN void map_block(Tally &t) { for (int i = 0; i < 3; i++) keep(malloc(5 << 20), t, 5 << 20); }
OWN void align_row(Tally &t)
{
    for (int i = 0; i < 1000; i++) {
        void *p = nullptr;
        if (posix_memalign(&p, 64, 1000))
            abort();
        keep(p, t, 1000);
    }
}
OWN void grow_list(Tally &t)
{
    for (int i = 0; i < 50; i++) {
        void *p = malloc(10);
        size_t n = 10;
        for (; n < 100000; n = n * 3 / 2)
            p = realloc(p, n);
        keep(realloc(p, n), t, n);
    }
}
OWN void scratch(Tally &)
{
    for (int i = 0; i < 50000; i++)
        free(xmalloc(i % 3000)); // nothing stays
}

static Tally in_thread;
OWN void *thread_part(void *)
{
    for (int i = 0; i < 2000; i++)
        held[count++] = xmalloc(333), in_thread.calls++, in_thread.bytes += 333;
    return nullptr;
}

int main()
{
    const struct { const char *name; void (*run)(Tally &); } parts[] = {
        {"load_index", load_index}, {"load_cache", load_cache}, {"open_session", open_session}, {"add_word", add_word},
        {"map_block", map_block}, {"align_row", align_row}, {"grow_list", grow_list}, {"scratch", scratch},
    };
    for (auto &p : parts) {
        Tally t{};
        p.run(t);
        printf("known %s %ld %ld\n", p.name, t.calls, t.bytes);
    }
    pthread_t t;
    pthread_create(&t, nullptr, thread_part, nullptr);
    pthread_join(t, nullptr);
    printf("known thread_part %ld %ld\n", in_thread.calls, in_thread.bytes);
    fflush(stdout);
    _exit(0);
}
