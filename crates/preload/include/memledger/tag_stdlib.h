/* Macros that tag the functions of <stdlib.h>; MEMLEDGER_NO_malloc (and so on) leaves one out. Like a function, such a macro does
 * nothing to a name that no "(" follows: addresses, (malloc)(n). See ../memledger.h. */
#ifndef MEMLEDGER_TAG_STDLIB_H
#define MEMLEDGER_TAG_STDLIB_H
#pragma GCC system_header

#include "tag_calls.h"

#ifndef MEMLEDGER_NO_malloc
#undef malloc
#define malloc(...) memledger_malloc_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif
#ifndef MEMLEDGER_NO_calloc
#undef calloc
#define calloc(...) memledger_calloc_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif
#ifndef MEMLEDGER_NO_realloc
#undef realloc
#define realloc(...) memledger_realloc_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif
#ifndef MEMLEDGER_NO_reallocarray
#undef reallocarray
#define reallocarray(...) memledger_reallocarray_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif
#ifndef MEMLEDGER_NO_aligned_alloc
#undef aligned_alloc
#define aligned_alloc(...) memledger_aligned_alloc_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif
#ifndef MEMLEDGER_NO_valloc
#undef valloc
#define valloc(...) memledger_valloc_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif
#ifndef MEMLEDGER_NO_posix_memalign
#undef posix_memalign
#define posix_memalign(...) memledger_posix_memalign_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif

#endif
