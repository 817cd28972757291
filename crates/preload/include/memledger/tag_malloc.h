/* Macros that tag the functions of <malloc.h>; MEMLEDGER_NO_malloc (and so on) leaves one out. Like a function, such a macro does
 * nothing to a name that no "(" follows: addresses, (malloc)(n). See ../memledger.h. */
#ifndef MEMLEDGER_TAG_MALLOC_H
#define MEMLEDGER_TAG_MALLOC_H
#pragma GCC system_header

#include "tag_calls.h"

#ifndef MEMLEDGER_NO_memalign
#undef memalign
#define memalign(...) memledger_memalign_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif
#ifndef MEMLEDGER_NO_pvalloc
#undef pvalloc
#define pvalloc(...) memledger_pvalloc_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif

#endif
