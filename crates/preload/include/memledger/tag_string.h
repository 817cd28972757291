/* Macros that tag the functions of <string.h>; MEMLEDGER_NO_malloc (and so on) leaves one out. Like a function, such a macro does
 * nothing to a name that no "(" follows: addresses, (malloc)(n). See ../memledger.h. */
#ifndef MEMLEDGER_TAG_STRING_H
#define MEMLEDGER_TAG_STRING_H
#pragma GCC system_header

#include "tag_calls.h"

#ifndef MEMLEDGER_NO_strdup
#undef strdup
#define strdup(...) memledger_strdup_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif
#ifndef MEMLEDGER_NO_strndup
#undef strndup
#define strndup(...) memledger_strndup_(MEMLEDGER_CALL_, __VA_ARGS__)
#endif

#endif
