/* Promise: the whole family comes from one library, or nothing (peers.md trap 7): every name that a program may call, C23's
 * free_sized and free_aligned_sized and all operators new and delete included, is defined by the object that defines malloc.
 * only: preload
 * libs: -ldl */
#include "check.h"
#include <dlfcn.h>

static const char *const names[] = {
    "malloc", "free", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc",
    "malloc_usable_size", "malloc_trim", "mallopt", "mallinfo", "mallinfo2", "malloc_stats", "cfree", "free_sized",
    "free_aligned_sized", "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t", "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t", "_ZdlPv", "_ZdaPv",
    "_ZdlPvm", "_ZdaPvm", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t", "_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
};

int main(void)
{
    Dl_info first, info;
    int missing = 0;
    CHECK(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &first));
    CHECK(!strstr(first.dli_fname, "libc.so"));
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(RTLD_DEFAULT, names[i]);
        if (!f || !dladdr(f, &info) || info.dli_fbase != first.dli_fbase) {
            dprintf(2, "%s comes from %s\n", names[i], f && dladdr(f, &info) ? info.dli_fname : "nowhere");
            missing++;
        }
    }
    void (*sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void (*aligned_sized)(void *, size_t, size_t) = (void (*)(void *, size_t, size_t))dlsym(RTLD_DEFAULT, "free_aligned_sized");
    for (size_t n = 1; sized && aligned_sized && n < 3000000; n = n * 5 / 4 + 1) {
        sized(must(n), n);
        aligned_sized(aligned_alloc(256, n), 256, n);
    }
    if (sized)
        sized(0, 0);
    return missing != 0;
}
