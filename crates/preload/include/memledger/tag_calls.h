/* The functions that the macros of tag_*.h call: the C library's, with a tag. See ../memledger.h. */
#ifndef MEMLEDGER_TAG_CALLS_H
#define MEMLEDGER_TAG_CALLS_H
#pragma GCC system_header

#include "../memledger.h"

/* Which files: -DMEMLEDGER_ONLY='"src/"' and -DMEMLEDGER_EXCLUDE='"third_party/"' are parts of the path as the compiler was given
 * it. Constant, so that calls elsewhere are compiled as plain ones. */
#ifdef MEMLEDGER_ONLY
#define MEMLEDGER_ONLY_ (__builtin_strstr(__FILE__, MEMLEDGER_ONLY) != 0)
#else
#define MEMLEDGER_ONLY_ 1
#endif
#ifdef MEMLEDGER_EXCLUDE
#define MEMLEDGER_WANTED_ (MEMLEDGER_ONLY_ && __builtin_strstr(__FILE__, MEMLEDGER_EXCLUDE) == 0)
#else
#define MEMLEDGER_WANTED_ MEMLEDGER_ONLY_
#endif

/* Where calls may be left out, their tags must go with them: no `used`; the assembler keeps the compiler from taking the index for a
 * constant. In C++ the record comes and goes with the code anyway. */
#if (defined(MEMLEDGER_ONLY) || defined(MEMLEDGER_EXCLUDE)) && MEMLEDGER_ENABLED && !defined(__cplusplus)
#define MEMLEDGER_CALL_LINE_ \
    (__extension__({ \
        static __attribute__((__section__("alloc_tags"), __aligned__(8))) memledger_tag_t memledger_here_ = \
            MEMLEDGER_INIT_(__func__); \
        memledger_line_ memledger_at_ = &memledger_here_; \
        __asm__("" : "+r"(memledger_at_)); \
        memledger_at_; \
    }))
#else
#define MEMLEDGER_CALL_LINE_ MEMLEDGER_LINE_
#endif

/* First arguments of the functions below: whether this file is wanted, and the tag of the line. */
#define MEMLEDGER_CALL_ MEMLEDGER_WANTED_, (MEMLEDGER_WANTED_ ? MEMLEDGER_CALL_LINE_ : 0)
/* For functions that need no stand-in: any expression. */
#define MEMLEDGER_EXPR_(...) \
    memledger_with(MEMLEDGER_WANTED_ ? memledger_line_index_(MEMLEDGER_CALL_LINE_) : memledger_save(), __VA_ARGS__)

#ifdef __cplusplus
extern "C" {
#endif

/* The C library's functions by other names: their declarations are the headers' business, and may be missing. */
#define MEMLEDGER_REAL_(type, name, params, attributes) \
    extern type memledger_real_##name params __asm__(#name) __attribute__(attributes)
MEMLEDGER_REAL_(void *, malloc, (size_t), (__malloc__, __alloc_size__(1), __warn_unused_result__));
MEMLEDGER_REAL_(void *, calloc, (size_t, size_t), (__malloc__, __alloc_size__(1, 2), __warn_unused_result__));
MEMLEDGER_REAL_(void *, realloc, (void *, size_t), (__alloc_size__(2), __warn_unused_result__));
MEMLEDGER_REAL_(void *, reallocarray, (void *, size_t, size_t), (__alloc_size__(2, 3), __warn_unused_result__));
MEMLEDGER_REAL_(void *, aligned_alloc, (size_t, size_t), (__malloc__, __alloc_size__(2), __warn_unused_result__));
MEMLEDGER_REAL_(void *, memalign, (size_t, size_t), (__malloc__, __alloc_size__(2), __warn_unused_result__));
MEMLEDGER_REAL_(void *, valloc, (size_t), (__malloc__, __alloc_size__(1), __warn_unused_result__));
MEMLEDGER_REAL_(void *, pvalloc, (size_t), (__malloc__, __warn_unused_result__));
MEMLEDGER_REAL_(int, posix_memalign, (void **, size_t, size_t), (__nonnull__(1), __warn_unused_result__));
MEMLEDGER_REAL_(char *, strdup, (const char *), (__malloc__, __nonnull__(1)));
MEMLEDGER_REAL_(char *, strndup, (const char *, size_t), (__malloc__, __nonnull__(1)));
#undef MEMLEDGER_REAL_

#if MEMLEDGER_ENABLED
/* The slot is read again after the call: one register less to keep for it. */
#define MEMLEDGER_TAGGED_(type, name, params, args) \
    MEMLEDGER_INLINE_ type memledger_##name##_ params \
    { \
        type result; \
        uint32_t old; \
        if (!wanted || memledger_slot_ == 0) \
            return memledger_real_##name args; \
        old = memledger_load_(memledger_slot_); \
        memledger_store_(memledger_slot_, memledger_line_index_(line)); \
        result = memledger_real_##name args; \
        memledger_store_(memledger_slot_, old); \
        return result; \
    }
#else
#define MEMLEDGER_TAGGED_(type, name, params, args) \
    MEMLEDGER_INLINE_ type memledger_##name##_ params \
    { \
        (void)wanted; \
        (void)line; \
        return memledger_real_##name args; \
    }
#endif
MEMLEDGER_TAGGED_(void *, malloc, (int wanted, memledger_line_ line, size_t size), (size))
MEMLEDGER_TAGGED_(void *, calloc, (int wanted, memledger_line_ line, size_t n, size_t size), (n, size))
MEMLEDGER_TAGGED_(void *, realloc, (int wanted, memledger_line_ line, void *p, size_t size), (p, size))
MEMLEDGER_TAGGED_(void *, reallocarray, (int wanted, memledger_line_ line, void *p, size_t n, size_t size), (p, n, size))
MEMLEDGER_TAGGED_(void *, aligned_alloc, (int wanted, memledger_line_ line, size_t align, size_t size), (align, size))
MEMLEDGER_TAGGED_(void *, memalign, (int wanted, memledger_line_ line, size_t align, size_t size), (align, size))
MEMLEDGER_TAGGED_(void *, valloc, (int wanted, memledger_line_ line, size_t size), (size))
MEMLEDGER_TAGGED_(void *, pvalloc, (int wanted, memledger_line_ line, size_t size), (size))
MEMLEDGER_TAGGED_(int, posix_memalign, (int wanted, memledger_line_ line, void **out, size_t align, size_t size), (out, align, size))
MEMLEDGER_TAGGED_(char *, strdup, (int wanted, memledger_line_ line, const char *text), (text))
MEMLEDGER_TAGGED_(char *, strndup, (int wanted, memledger_line_ line, const char *text, size_t size), (text, size))
#undef MEMLEDGER_TAGGED_

#ifdef __cplusplus
}
/* std::malloc(...) becomes std::memledger_malloc_(...). */
namespace std {
using ::memledger_malloc_;
using ::memledger_calloc_;
using ::memledger_realloc_;
using ::memledger_aligned_alloc_;
}
#endif
#endif
