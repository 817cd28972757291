// Every function that memledger.h tags, and what must not break. "calls=N" on a line: so many live objects are charged to it.
// Compiled with -include memledger.h -DMEMLEDGER_TAG_ALL or -isystem memledger/replace, as C and as C++.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdlib.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what), abort()))
void *volatile kept[100];
int count;
static void *keep(void *p) { CHECK(p); return kept[count++] = p; }
static size_t twice(size_t n) { keep(malloc(n)); return 2 * n; } // calls=1

struct hooks { // members by these names; called through parentheses or other names
    void *(*malloc)(size_t);
    void (*free)(void *);
    char *(*strdup)(const char *);
    int calloc;
};
static struct hooks hooks = {malloc, free, strdup, 1};
static void *(*const again)(void *, size_t) = realloc;

static void family(void)
{
    void *p = NULL;
    keep(malloc(10)); // calls=1
    keep(calloc(2, sizeof(struct { int a, b; }))); // calls=1
    keep(realloc(realloc(NULL, 10), 5000)); // calls=1
    keep(reallocarray(NULL, 3, 30)); // calls=1
    keep(aligned_alloc(64, 128)); // calls=1
    keep(memalign(64, 128)); // calls=1
    keep(valloc(10)); // calls=1
    keep(pvalloc(10)); // calls=1
    CHECK(posix_memalign(&p, 64, 100) == 0); // calls=1
    keep(p);
    keep(strdup("text")); // calls=1
    keep(strndup("text", 2)); // calls=1
    keep(malloc(twice(20))); // calls=1
}

static void input(void)
{
    char *text = NULL;
    size_t n = 0;
    char lines[] = "one\ntwo;";
    FILE *file = fmemopen(lines, sizeof lines, "r");
    CHECK(asprintf(&text, "%s %d", "text", count) > 0); // calls=1
    keep(text);
#ifndef __cplusplus
    text = NULL;
    CHECK(getline(&text, &n, file) == 4); // calls=1
    keep(text);
    text = NULL;
    n = 0;
    CHECK(getdelim(&text, &n, ';', file) == 4); // calls=1
    keep(text);
#endif
    CHECK(n == 0 || text);
    fclose(file);
}

static void others(void)
{
    keep((malloc)(10));
    keep(hooks.malloc ? (hooks.malloc)(10) : NULL);
    keep((hooks.strdup)("text"));
    keep(again(NULL, 10));
    hooks.free(malloc(3));
    CHECK(hooks.malloc == malloc && hooks.calloc == 1);
}

#undef malloc
#undef strdup
#define malloc(n) calloc(1, n)
static void redefined(void)
{
#ifndef __cplusplus
    extern char *strdup(const char *);
#endif
    keep(malloc(10)); // calls=1
    keep(strdup("text"));
}
#include <stdlib.h>
#include <string.h>
static void still_redefined(void) { keep(malloc(10)); keep(strdup("x")); } // calls=1

int main(void)
{
    family();
    input();
    others();
    redefined();
    still_redefined();
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
