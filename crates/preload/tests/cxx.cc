// C++: calls in templates, inline functions, initialisers, namespace std. "calls=N" on a line as in calls.c; N is the sum of a line's rows.
#include <cstdlib>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>
#include "memledger.h"

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what), abort()))
static void *global = malloc(10); // calls=1

template <class T> T *make(size_t n) { return static_cast<T *>(std::malloc(n * sizeof(T))); } // calls=3
inline void *in_inline(void *p = std::calloc(1, 8)) { std::free(p); return ::malloc(10); } // calls=1
struct Holder {
    void *member = malloc(10); // calls=2
    char *method(const char *s) { return strdup(s); } // calls=1
};
static void thrower()
{
    alloc_hooks(throw std::runtime_error("x"));
}

int main()
{
    void *volatile kept[] = {make<int>(3), make<char>(3), make<Holder>(1), in_inline(), global};
    Holder a, b;
    void *volatile members[] = {a.member, b.member};
    auto lambda = [&] { return malloc(10); }; // calls=1
    kept[0] = lambda();
    char *text = a.method("text");
    try {
        thrower();
    } catch (const std::exception &) {
        CHECK(memledger_save() == 0);
    }
    auto vector = alloc_hooks(std::vector<int>(100, 7)); // calls=1
    int *volatile array = alloc_hooks(new int[10]); // calls=1
    std::printf("ready %p %s %d %d %p\n", kept[0], text, vector[0], array != nullptr, members[0]);
    std::fflush(stdout);
    while (std::getchar() != EOF)
        ;
    return 0;
}
