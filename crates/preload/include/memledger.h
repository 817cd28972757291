/* memledger.h: charges memory to lines of C and C++ code. Header only; C99 and later (GNU C: gcc, clang) and C++11.
 * docs/c-and-cpp.md is the manual.
 *
 * A tag is a static record of a line in the section `alloc_tags`, of the layout that Rust's tags have (`CodeTag`, crates/codetag).
 * A constructor, one an object file, looks for memledger runtimes in the process (by their ELF note, crates/abi), passes them the
 * section and learns where the thread's current tag is kept: `memledger_slot_` bytes from the thread pointer. Without a runtime
 * that stays 0, and a hook is a load and a branch.
 *
 * Written for Linux on x86-64; elsewhere, and with MEMLEDGER_DISABLE, everything here compiles to plain calls.
 */
#ifndef MEMLEDGER_H
#define MEMLEDGER_H
#pragma GCC system_header

#include <stddef.h>
#include <stdint.h>

#if defined(__linux__) && defined(__x86_64__) && defined(__LP64__) && defined(__GNUC__) && !defined(MEMLEDGER_DISABLE)
#define MEMLEDGER_ENABLED 1
#else
#define MEMLEDGER_ENABLED 0
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** A line of the source: 56 bytes. Made by the macros below; `index` and `flags` are the runtime's. */
typedef struct memledger_tag {
    const char *file;
    size_t file_bytes;
    const char *module_path;
    size_t module_path_bytes;
    const char *func;
    uint32_t line;
    uint32_t column;
    uint32_t index;
    uint32_t flags;
} memledger_tag_t;

/** A current tag, kept: the value of `memledger_save()`. Stays good when the object that has the tag is unloaded. */
typedef uint32_t memledger_saved_t;

/** What `memledger_enter` found. */
typedef struct memledger_guard {
    int64_t slot;
    uint32_t old;
} memledger_guard_t;

#define MEMLEDGER_INLINE_ static __inline__ __attribute__((__always_inline__, __unused__))

#if MEMLEDGER_ENABLED

/* Distance from the thread pointer to the current tag; 0 = no runtime. One an object file (executable or shared object). */
__attribute__((__weak__, __visibility__("hidden"))) int64_t memledger_slot_;

MEMLEDGER_INLINE_ uint32_t memledger_load_(int64_t slot)
{
    uint32_t index;
    __asm__ __volatile__("movl %%fs:(%1), %0" : "=r"(index) : "r"(slot));
    return index;
}

MEMLEDGER_INLINE_ void memledger_store_(int64_t slot, uint32_t index)
{
    __asm__ __volatile__("movl %1, %%fs:(%0)" : : "r"(slot), "r"(index) : "memory");
}

MEMLEDGER_INLINE_ uint32_t memledger_index_(const memledger_tag_t *tag)
{
    return __atomic_load_n(&tag->index, __ATOMIC_RELAXED);
}

/** Makes a tag current; pass the result to `memledger_leave` on the same thread. */
MEMLEDGER_INLINE_ memledger_guard_t memledger_enter_saved(memledger_saved_t index)
{
    memledger_guard_t guard = {memledger_slot_, 0};
    if (__builtin_expect(guard.slot != 0, 1)) {
        guard.old = memledger_load_(guard.slot);
        memledger_store_(guard.slot, index);
    }
    return guard;
}

/** Makes the tag current that was so before. */
MEMLEDGER_INLINE_ void memledger_leave(memledger_guard_t *guard)
{
    if (__builtin_expect(guard->slot != 0, 1))
        memledger_store_(guard->slot, guard->old);
}

/** The calling thread's current tag; 0 = none. */
MEMLEDGER_INLINE_ memledger_saved_t memledger_save(void)
{
    return memledger_slot_ != 0 ? memledger_load_(memledger_slot_) : 0;
}

/** Whether there is a runtime that takes tags. */
MEMLEDGER_INLINE_ int memledger_present(void)
{
    return memledger_slot_ != 0;
}

#else

MEMLEDGER_INLINE_ uint32_t memledger_index_(const memledger_tag_t *tag) { return tag->index; }
MEMLEDGER_INLINE_ memledger_guard_t memledger_enter_saved(memledger_saved_t index)
{
    memledger_guard_t guard = {0, 0};
    (void)index;
    return guard;
}
MEMLEDGER_INLINE_ void memledger_leave(memledger_guard_t *guard) { (void)guard; }
MEMLEDGER_INLINE_ memledger_saved_t memledger_save(void) { return 0; }
MEMLEDGER_INLINE_ int memledger_present(void) { return 0; }

#endif

/** As `memledger_enter_saved`, for a tag. */
MEMLEDGER_INLINE_ memledger_guard_t memledger_enter(const memledger_tag_t *tag)
{
    return memledger_enter_saved(memledger_index_(tag));
}

#ifdef __cplusplus
}
#endif

/* ---- Tags ---------------------------------------------------------------------------------------------------------------- */

#define MEMLEDGER_FOREIGN_ 2u /* CodeTag::flags: `func` is a C string */
#define MEMLEDGER_INIT_(name) \
    {__FILE__, sizeof(__FILE__) - 1, "", 0, name, __LINE__, 0, 0, MEMLEDGER_FOREIGN_}
#if MEMLEDGER_ENABLED
#define MEMLEDGER_STATIC_ static __attribute__((__section__("alloc_tags"), __used__, __aligned__(8))) memledger_tag_t
#else
#define MEMLEDGER_STATIC_ static __attribute__((__unused__)) memledger_tag_t
#endif

/** Declares a static tag of this line, shown with NAME as its function. Not inside inline functions or templates of C++. */
#define MEMLEDGER_TAG(name) MEMLEDGER_STATIC_ name = MEMLEDGER_INIT_(#name)

/* A tag of this line, to be loaded from: in C its address, so that nothing is read while there is no runtime; in C++ its index. */
#if !MEMLEDGER_ENABLED
#define MEMLEDGER_LINE_ ((memledger_saved_t)0)
typedef memledger_saved_t memledger_line_;
#define memledger_line_index_(line) (line)
#elif !defined(__cplusplus)
typedef const memledger_tag_t *memledger_line_;
#define memledger_line_index_(line) memledger_index_(line)
#define MEMLEDGER_LINE_ \
    (__extension__({ \
        MEMLEDGER_STATIC_ memledger_here_ = MEMLEDGER_INIT_(__func__); \
        (memledger_line_)&memledger_here_; \
    }))
#else
typedef memledger_saved_t memledger_line_;
#define memledger_line_index_(line) (line)
/* Static variables of inline functions and templates cannot share a section with others (gcc), so the assembler makes the
 * record: in the section group of the function around it ("?"), and gone with it. A lambda is an expression everywhere. */
#define MEMLEDGER_LINE_ \
    ([]() noexcept -> ::memledger_saved_t { \
        ::memledger_saved_t memledger_here_; \
        __asm__(".pushsection alloc_tags, \"aw?\", @progbits\n\t" \
                ".balign 8\n\t" \
                ".quad %c1, %c2, 0, 0, %c3\n\t" \
                ".long %c4, 0\n" \
                "992:\t.long 0, %c5\n\t" \
                ".popsection\n\t" \
                "movl 992b(%%rip), %0" \
                : "=r"(memledger_here_) \
                : "i"(__FILE__), "i"(sizeof(__FILE__) - 1), "i"(__PRETTY_FUNCTION__), "i"(__LINE__), \
                  "i"(MEMLEDGER_FOREIGN_)); \
        return memledger_here_; \
    }())
#endif

/** Index of a static tag of this line: to be kept, and given to `memledger_with` later. */
#define memledger_record() memledger_line_index_(MEMLEDGER_LINE_)

/* ---- Hooks: expressions of the type of EXPR, for use inside functions ------------------------------------------------------ */

/** EXPR with a saved tag as the current one, which is restored however EXPR is left (return, goto, exception; not longjmp). */
#define memledger_with(saved, ...) \
    (__extension__({ \
        __attribute__((__cleanup__(memledger_leave), __unused__)) memledger_guard_t memledger_guard_ = \
            memledger_enter_saved(saved); \
        (__VA_ARGS__); \
    }))

/** EXPR charged to the given tag (a `memledger_tag_t`, as `MEMLEDGER_TAG` declares it). */
#define alloc_hooks_tag(tag, ...) memledger_with(memledger_index_(&(tag)), __VA_ARGS__)

/** EXPR charged to this line. The innermost hook wins. */
#define alloc_hooks(...) memledger_with(memledger_record(), __VA_ARGS__)

/* ---- The runtime is looked for once an object file ------------------------------------------------------------------------- */

#if MEMLEDGER_ENABLED
#ifdef __cplusplus
extern "C" {
#endif

/* Bounds of the object file's own tags; null if it has none. */
extern memledger_tag_t memledger_first_[] __asm__("__start_alloc_tags")
    __attribute__((__weak__, __visibility__("hidden")));
extern memledger_tag_t memledger_last_[] __asm__("__stop_alloc_tags")
    __attribute__((__weak__, __visibility__("hidden")));

/* ELF and the loader, by names that no system header has, as those show theirs only on demand (_GNU_SOURCE). */
struct memledger_segment_ {
    uint32_t type, flags;
    uint64_t offset, vaddr, paddr, filesz, memsz, align;
};
struct memledger_object_ {
    uint64_t base;
    const char *name;
    const struct memledger_segment_ *segments;
    uint16_t count;
};
extern int memledger_each_object_(int (*)(struct memledger_object_ *, size_t, void *), void *) __asm__("dl_iterate_phdr");

/* `ModuleTags` and the first fields of `Descriptor`, of crates/abi. */
struct memledger_module_ {
    uint64_t start, stop, anchor;
    int64_t slot;
};
struct memledger_descriptor_ {
    uint64_t magic;
    uint32_t version, size;
    uint8_t others[232];
    int64_t (*enrol)(const struct memledger_module_ *);
    void (*dismiss)(const struct memledger_module_ *);
    int64_t slot;
};

struct memledger_search_ {
    uint64_t anchor;
    int is_executable, count;
    const struct memledger_descriptor_ *found[8]; /* in link order; more than two are not expected */
};

extern void *memledger_malloc_real_(size_t) __asm__("malloc");
extern void memledger_free_real_(void *) __asm__("free");

MEMLEDGER_INLINE_ int memledger_inside_(const struct memledger_object_ *object, uint64_t address, uint64_t bytes)
{
    int i;
    for (i = 0; i < object->count; i++) {
        const struct memledger_segment_ *s = &object->segments[i];
        uint64_t offset = address - (object->base + s->vaddr);
        if (s->type == 1 && offset < s->memsz && bytes <= s->memsz - offset)
            return 1;
    }
    return 0;
}

/* The descriptor that a note of this segment names, believed only if it lies inside the object. */
MEMLEDGER_INLINE_ const struct memledger_descriptor_ *memledger_runtime_(const struct memledger_object_ *object,
                                                                         const struct memledger_segment_ *s)
{
    uint64_t at = object->base + s->vaddr, end = at + s->filesz, align = s->align == 8 ? 8 : 4;
    if (s->type != 4 || !memledger_inside_(object, at, s->filesz))
        return 0;
    while (end - at > 12) {
        const uint32_t *head = (const uint32_t *)at;
        uint64_t text = at + 12, value, left = end - text;
        if (head[0] > left || head[1] > left - head[0])
            return 0;
        value = at + ((12 + (uint64_t)head[0] + align - 1) & ~(align - 1));
        if (value > end || head[1] > end - value)
            return 0;
        if (head[0] == 10 && head[1] == 8 && head[2] == 1 && __builtin_memcmp((const char *)text, "memledger", 10) == 0) {
            const struct memledger_descriptor_ *found =
                (const struct memledger_descriptor_ *)(value + *(const uint64_t *)value);
            if (!memledger_inside_(object, (uint64_t)found, sizeof *found) || (uint64_t)found % 8 != 0)
                return 0;
            /* "memledgr", version 1 */
            return found->magic == 0x726764656c6d656dULL && found->version == 1 && found->size >= 320 ? found : 0;
        }
        at = value + ((head[1] + align - 1) & ~(align - 1));
        if (at > end)
            return 0;
    }
    return 0;
}

__attribute__((__unused__)) static int memledger_object_seen_(struct memledger_object_ *object, size_t size, void *data)
{
    struct memledger_search_ *search = (struct memledger_search_ *)data;
    int i;
    (void)size;
    if (memledger_inside_(object, search->anchor, 1))
        search->is_executable = object->name == 0 || object->name[0] == 0;
    for (i = 0; i < object->count && search->count < 8; i++) {
        const struct memledger_descriptor_ *found = memledger_runtime_(object, &object->segments[i]);
        if (found) {
            search->found[search->count++] = found;
            break;
        }
    }
    return 0;
}

/* Every translation unit brings these two; the linker keeps one of each in an object file, which is called once for each. After the
 * runtime's own constructors, before those of the program. */
__attribute__((__weak__, __visibility__("hidden"))) int memledger_entered_;

__attribute__((__weak__, __visibility__("hidden"), __constructor__(101))) void memledger_object_loaded_(void)
{
    struct memledger_search_ search = {(uint64_t)memledger_first_, 0, 0, {0}};
    struct memledger_module_ module = {(uint64_t)memledger_first_, (uint64_t)memledger_last_, (uint64_t)memledger_first_, 0};
    int64_t slot = 0;
    int i;
    if (memledger_entered_ || module.start == module.stop)
        return;
    memledger_entered_ = 1;
    memledger_each_object_(memledger_object_seen_, &search);
    for (i = 0; i < search.count; i++) {
        int64_t given;
        if (!search.found[i]->enrol)
            memledger_free_real_(memledger_malloc_real_(1)); /* it starts with the first allocation */
        given = search.found[i]->enrol ? search.found[i]->enrol(&module) : 0;
        if (!slot)
            slot = given;
    }
    memledger_slot_ = slot;
}

/* An executable stays: it is the process that ends, and who reports then should still see its tags as loaded. */
__attribute__((__weak__, __visibility__("hidden"), __destructor__(101))) void memledger_object_unloaded_(void)
{
    struct memledger_search_ search = {(uint64_t)memledger_first_, 0, 0, {0}};
    struct memledger_module_ module = {(uint64_t)memledger_first_, (uint64_t)memledger_last_, (uint64_t)memledger_first_, 0};
    int i;
    if (memledger_entered_ != 1)
        return;
    memledger_entered_ = 2;
    memledger_each_object_(memledger_object_seen_, &search);
    for (i = 0; i < search.count && !search.is_executable; i++)
        if (search.found[i]->dismiss)
            search.found[i]->dismiss(&module);
}

#ifdef __cplusplus
}
#endif
#endif

#ifdef MEMLEDGER_TAG_ALL
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <malloc.h>
#ifdef __cplusplus
#include <cstdlib>
#include <cstring>
#include <cstdio>
#endif
#include "memledger/tag_stdlib.h"
#include "memledger/tag_malloc.h"
#include "memledger/tag_string.h"
#include "memledger/tag_stdio.h"
#endif

#endif
