"""Writes a C program with many call sites: live.py SITES OBJECTS [tags]. It makes OBJECTS live objects of mixed sizes from SITES
functions on as many lines, four calls deep, prints "ready PID" and waits for end of input."""
import sys

sites, objects = int(sys.argv[1]), int(sys.argv[2])
print("#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>")
print("#define S __attribute__((noinline, noclone)) static\ntypedef void **P; typedef void *(*F)(size_t);")
for i in range(sites):
    print(f"S void *site{i}(size_t n)\n{{\n    char *p = malloc(n + {i % 7});\n    if (p) p[0] = 1;\n    return p;\n}}")
print("static const F all[] = {" + ",".join(f"site{i}" for i in range(sites)) + "};")
print("S void *deeper(int i, size_t n) { void *p = all[i](n); __asm__ volatile(\"\" ::: \"memory\"); return p; }")
print("S void *deep(int i, size_t n) { void *p = deeper(i, n); __asm__ volatile(\"\" ::: \"memory\"); return p; }")
print(f"""static void *live[{objects}];
int main(void)
{{
    for (int k = 0; k < {objects}; k++)
        if (!(live[k] = deep(k % {sites}, 8 + (k * 7919u >> 4) % 500)))
            return 1;
    printf("ready %d\\n", (int)getpid());
    fflush(stdout);
    while (getchar() != EOF)
        ;
    _exit(0);
}}""")
