/* Promise: what libc makes with malloc and the caller frees (getline, asprintf, strdup, strndup, wcsdup, open_memstream,
 * getdelim, realpath) comes from the same allocator as the program's free. */
#include "check.h"
#include <wchar.h>

int main(void)
{
    for (int i = 0; i < 300; i++) {
        char *s = 0, *text = 0;
        size_t n = 0, len = 0;
        CHECK(asprintf(&s, "%d %0*d", i, 10 + i * 9, i) > 10);
        CHECK(malloc_usable_size(s) > strlen(s));
        s = realloc(s, strlen(s) + 5000);
        CHECK(s && atoi(s) == i);
        free(s);
        FILE *m = open_memstream(&text, &len);
        for (int k = 0; k < 500; k++)
            fprintf(m, "line %d of %d\n", k, i);
        CHECK(fclose(m) == 0 && strlen(text) == len && malloc_usable_size(text) > len);
        FILE *r = fmemopen(text, len, "r");
        int lines = 0;
        char *line = 0;
        while (getline(&line, &n, r) > 0)
            lines++;
        CHECK(lines == 500 && malloc_usable_size(line) >= n);
        rewind(r);
        CHECK(getdelim(&line, &n, 'Z', r) == (ssize_t)len);
        fclose(r);
        free(line);
        char *d = strdup(text), *e = strndup(text, 20);
        wchar_t *w = wcsdup(L"wide text");
        CHECK(!strcmp(d, text) && strlen(e) == 20 && w[3] == L'e');
        free(d), free(e), free(w), free(text);
    }
    char *path = realpath("/usr/../usr/bin", 0);
    CHECK(path && !strcmp(path, "/usr/bin"));
    free(path);
    return 0;
}
