// Loads and unloads a plugin with live memory; is itself built without tags.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
void *volatile kept[100];
int main(int argc, char **argv)
{
    for (int i = 0; i < 21; i++) {
        void *handle = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
        void *(*make)(void) = handle ? (void *(*)(void))dlsym(handle, "plugin_make") : NULL;
        if (!make) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        kept[i] = make();
        if (i < 20)
            dlclose(handle);
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
