/* Promise: every byte that malloc_usable_size reports may be written without touching a neighbour, and survives a realloc
 * within it; NULL gives 0 (redis asks 7043 times in a short run). */
#include "check.h"

int main(void)
{
    static unsigned char *p[6000];
    CHECK(malloc_usable_size(0) == 0);
    for (int i = 0; i < 6000; i++) {
        size_t n = i < 5000 ? (size_t)i : (size_t)(i - 5000) * 300;
        p[i] = i % 7 ? malloc(n) : memalign(128, n);
        size_t u = malloc_usable_size(p[i]);
        CHECK(p[i] && u >= n);
        if (u > n + n / 3 + 8192)
            FAIL("malloc(%zu) gives %zu usable bytes", n, u);
        fill(p[i], u, i);
    }
    for (int i = 0; i < 6000; i++)
        CHECK(holds(p[i], malloc_usable_size(p[i]), i));
    for (int i = 0; i < 6000; i += 3) {
        size_t u = malloc_usable_size(p[i]);
        p[i] = realloc(p[i], u ? u : 1);
        CHECK(p[i] && holds(p[i], u, i));
    }
    for (int i = 0; i < 6000; i++)
        free(p[i]);
    return 0;
}
