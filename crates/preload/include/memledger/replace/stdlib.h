/* Stands before the system's <stdlib.h> (-isystem .../memledger/replace), which is included without our macros; they, or what the
 * program has made of these names since, come back after it. In C++ this is left to -include memledger.h. */
#pragma GCC system_header
#ifdef __cplusplus
#include_next <stdlib.h>
#else
#pragma push_macro("malloc")
#undef malloc
#pragma push_macro("calloc")
#undef calloc
#pragma push_macro("realloc")
#undef realloc
#pragma push_macro("reallocarray")
#undef reallocarray
#pragma push_macro("aligned_alloc")
#undef aligned_alloc
#pragma push_macro("valloc")
#undef valloc
#pragma push_macro("posix_memalign")
#undef posix_memalign
#include_next <stdlib.h>
#pragma pop_macro("malloc")
#pragma pop_macro("calloc")
#pragma pop_macro("realloc")
#pragma pop_macro("reallocarray")
#pragma pop_macro("aligned_alloc")
#pragma pop_macro("valloc")
#pragma pop_macro("posix_memalign")
#include "../tag_stdlib.h"
#endif
