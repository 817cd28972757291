// A plugin for host.c: its tags are those of [plugin]. 21 loads with one live object each.
#include <stdlib.h>
void *plugin_make(void) { return malloc(100); } // calls=21
