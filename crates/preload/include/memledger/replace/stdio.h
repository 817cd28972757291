/* Stands before the system's <stdio.h> (-isystem .../memledger/replace), which is included without our macros; they, or what the
 * program has made of these names since, come back after it. In C++ this is left to -include memledger.h. */
#pragma GCC system_header
#ifdef __cplusplus
#include_next <stdio.h>
#else
#pragma push_macro("getline")
#undef getline
#pragma push_macro("getdelim")
#undef getdelim
#pragma push_macro("asprintf")
#undef asprintf
#pragma push_macro("vasprintf")
#undef vasprintf
#include_next <stdio.h>
#pragma pop_macro("getline")
#pragma pop_macro("getdelim")
#pragma pop_macro("asprintf")
#pragma pop_macro("vasprintf")
#include "../tag_stdio.h"
#endif
