/* Promise: mallinfo, mallinfo2, malloc_trim, malloc_stats, mallopt, malloc_info are callable at any time and mallinfo2 tells of
 * the live bytes. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include "check.h"

int main(void)
{
    static void *p[20000];
    struct mallinfo2 a = mallinfo2();
    for (int i = 0; i < 20000; i++)
        p[i] = must(1000);
    void *big = must(32 << 20);
    struct mallinfo2 b = mallinfo2();
    size_t grown = b.uordblks + b.hblkhd - a.uordblks - a.hblkhd;
    if (grown < 52000000 || grown > 70000000)
        FAIL("live bytes grew by %zu for 20,000,000 + 33,554,432 allocated", grown);
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1 || under_preload());
    mallopt(M_TRIM_THRESHOLD, 100000);
    mallopt(-12345, 1);
    (void)mallinfo();
    for (int i = 0; i < 20000; i++)
        free(p[i]);
    free(big);
    CHECK(malloc_trim(0) >= 0);
    malloc_stats();
    FILE *f = fopen("/dev/null", "w");
    CHECK(f && malloc_info(0, f) == 0);
    fclose(f);
    struct mallinfo2 c = mallinfo2();
    if (c.uordblks + c.hblkhd > a.uordblks + a.hblkhd + 200000)
        FAIL("%zu bytes still live after all was freed", c.uordblks + c.hblkhd);
    free(must(10));
    return 0;
}
