/* Promise: every form of operator new and delete (plain, array, nothrow, aligned, sized) works with each other's rules; the
 * new_handler is called until it gives up; bad_alloc is thrown, nothrow gives NULL. */
#include "check.h"
#include <new>

static int handled;
static void handler()
{
    if (++handled % 3 == 0)
        std::set_new_handler(nullptr);
}

template <class F> static void fails(F make)
{
    handled = 0;
    std::set_new_handler(handler);
    bool thrown = false;
    void *p = nullptr;
    try {
        p = make();
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    if (!thrown || p || handled != 3)
        FAIL("thrown %d, pointer %p, new_handler called %d times instead of 3", thrown, p, handled);
}

template <class F> static void gives_null(F make)
{
    handled = 0;
    std::set_new_handler(handler);
    CHECK(make() == nullptr && handled == 3);
}

struct alignas(256) Wide { char body[512]; };
struct Counted { static int live; char b[40]; Counted() { live++; } ~Counted() { live--; } };
int Counted::live;

int main()
{
    using A = std::align_val_t;
    const auto &no = std::nothrow;
    for (size_t n = 0; n < 300000; n += 1 + n / 3) {
        void *p[8] = {::operator new(n), ::operator new[](n), ::operator new(n, no), ::operator new[](n, no),
                      ::operator new(n, A(128)), ::operator new[](n, A(4096)), ::operator new(n, A(64), no), ::operator new[](n, A(32), no)};
        const size_t al[8] = {16, 16, 16, 16, 128, 4096, 64, 32};
        for (int i = 0; i < 8; i++) {
            CHECK(p[i] && (uintptr_t)p[i] % al[i] == 0);
            fill(p[i], n, i);
        }
        for (int i = 0; i < 8; i++)
            CHECK(holds(p[i], n, i));
        ::operator delete(p[0], n);
        ::operator delete[](p[1], n);
        ::operator delete(p[2], no);
        ::operator delete[](p[3], no);
        ::operator delete(p[4], n, A(128));
        ::operator delete[](p[5], n, A(4096));
        ::operator delete(p[6], A(64), no);
        ::operator delete[](p[7], A(32), no);
        ::operator delete(::operator new(n));
        ::operator delete[](::operator new[](n));
        ::operator delete(::operator new(n, A(512)), A(512));
        ::operator delete[](::operator new[](n, A(16)), A(16));
    }
    ::operator delete(nullptr);
    ::operator delete[](nullptr, size_t(5));
    volatile size_t far = PTRDIFF_MAX;
    fails([&] { return ::operator new(far); });
    fails([&] { return ::operator new[](far); });
    fails([&] { return ::operator new(far, A(64)); });
    fails([&] { return ::operator new[](far, A(64)); });
    gives_null([&] { return ::operator new(far, no); });
    gives_null([&] { return ::operator new[](far, no); });
    gives_null([&] { return ::operator new(far, A(64), no); });
    gives_null([&] { return ::operator new[](far, A(64), no); });
    auto *w = new Wide[3];
    CHECK((uintptr_t)w % 256 == 0);
    delete[] w;
    auto *c = new Counted[100];
    CHECK(Counted::live == 100);
    delete[] c;
    delete new Counted;
    CHECK(Counted::live == 0);
    return 0;
}
