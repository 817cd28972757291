/* Stands before the system's <string.h> (-isystem .../memledger/replace), which is included without our macros; they, or what the
 * program has made of these names since, come back after it. In C++ this is left to -include memledger.h. */
#pragma GCC system_header
#ifdef __cplusplus
#include_next <string.h>
#else
#pragma push_macro("strdup")
#undef strdup
#pragma push_macro("strndup")
#undef strndup
#include_next <string.h>
#pragma pop_macro("strdup")
#pragma pop_macro("strndup")
#include "../tag_string.h"
#endif
