// Frames of many shapes around a callback. Built by the tests with and without frame pointers.
#include <alloca.h>
#include <string.h>

typedef void (*callback)(void *);
static volatile int sink;
#define KEEP __attribute__((noinline, noclone))

KEEP void plain(callback cb, void *arg) {
    cb(arg);
    sink++;
}

KEEP void saves_registers(callback cb, void *arg, int a, int b, int c) {
    for (int i = 0; i < a; i++) {
        plain(cb, arg);
        sink += b * i + c;
        b ^= c + i;
        c += a * b;
    }
    sink += a + b + c;
}

KEEP void big_frame(callback cb, void *arg) {
    volatile char buffer[100000];
    buffer[5] = 1;
    saves_registers(cb, arg, 1, 2, 3);
    sink += buffer[5];
}

KEEP void with_alloca(callback cb, void *arg, unsigned n) {
    char *p = alloca(n);
    memset(p, 1, n);
    big_frame(cb, arg);
    sink += p[n / 2];
}

// A 32-byte aligned local next to alloca: gcc realigns the stack and keeps the argument pointer (DRAP).
KEEP void realigned(callback cb, void *arg, unsigned n, int a, int b, int c, int d, int e, int f) {
    double vector[8] __attribute__((aligned(64)));
    char *p = alloca(n);
    memset(p, 2, n);
    for (int i = 0; i < 8; i++) vector[i] = i + a + f;
    sink += (long)vector & 63;
    with_alloca(cb, arg, n + 100);
    sink += p[1] + vector[n % 8] + a + b + c + d + e + f;
}

// Calls in the middle of pushed arguments.
KEEP void pushes(callback cb, void *arg, int x) {
    realigned(cb, arg, 40 + x, x, 1, 2, 3, x + 4, x + 5);
    realigned(cb, arg, 48 + x, x, 3, 2, 1, x + 4, x + 5);
}

KEEP void every_shape(callback cb, void *arg) {
    plain(cb, arg);
    saves_registers(cb, arg, 2, 5, 7);
    pushes(cb, arg, 3);
    sink++;
}

KEEP void recurse(callback cb, void *arg, int depth) {
    if (depth == 0)
        cb(arg);
    else
        recurse(cb, arg, depth - 1);
    sink++;
}

// The callback at every level of a deep recursion.
KEEP void descend(callback cb, void *arg, int depth) {
    volatile char pad[200];
    pad[0] = 1;
    if (depth) descend(cb, arg, depth - 1);
    cb(arg);
    sink += pad[0];
}

// One of 4^depth stacks, chosen by two bits a level.
KEEP void choose(callback cb, void *arg, unsigned bits, int depth) {
    if (depth == 0) {
        cb(arg);
        sink = 1;
        return;
    }
    switch (bits & 3) {
    case 0: choose(cb, arg, bits >> 2, depth - 1); sink = 2; break;
    case 1: choose(cb, arg, bits >> 2, depth - 1); sink = 3; break;
    case 2: choose(cb, arg, bits >> 2, depth - 1); sink = 4; break;
    default: choose(cb, arg, bits >> 2, depth - 1); sink = 5; break;
    }
}
