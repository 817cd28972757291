/* Macros that tag the functions of <stdio.h>; MEMLEDGER_NO_malloc (and so on) leaves one out. Like a function, such a macro does
 * nothing to a name that no "(" follows: addresses, (malloc)(n). See ../memledger.h. */
#ifndef MEMLEDGER_TAG_STDIO_H
#define MEMLEDGER_TAG_STDIO_H
#pragma GCC system_header

#include "tag_calls.h"

/* In C++ std::getline is a template. */
#ifndef __cplusplus
#ifndef MEMLEDGER_NO_getline
#undef getline
#define getline(...) MEMLEDGER_EXPR_(getline(__VA_ARGS__))
#endif
#ifndef MEMLEDGER_NO_getdelim
#undef getdelim
#define getdelim(...) MEMLEDGER_EXPR_(getdelim(__VA_ARGS__))
#endif
#endif
#ifndef MEMLEDGER_NO_asprintf
#undef asprintf
#define asprintf(...) MEMLEDGER_EXPR_(asprintf(__VA_ARGS__))
#endif
#ifndef MEMLEDGER_NO_vasprintf
#undef vasprintf
#define vasprintf(...) MEMLEDGER_EXPR_(vasprintf(__VA_ARGS__))
#endif

#endif
