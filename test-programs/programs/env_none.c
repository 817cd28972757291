/* Promise: an empty environment (no variable at all, so also no MEMLEDGER) and clearenv, setenv, putenv later on do no harm.
 * env: empty */
#include "check.h"

extern char **environ;

int main(void)
{
    int n = 0;
    for (char **e = environ; e && *e; e++)
        n += strncmp(*e, "LD_PRELOAD=", 11) != 0;
    CHECK(n == 0);
    for (int round = 0; round < 50; round++) {
        CHECK(clearenv() == 0);
        for (int i = 0; i < 200; i++) {
            char name[32], value[300];
            snprintf(name, sizeof name, "V%d", i);
            memset(value, 'a' + i % 26, sizeof value);
            value[i] = 0;
            CHECK(setenv(name, value, 1) == 0);
            CHECK(strlen(getenv(name)) == (size_t)i);
        }
        CHECK(unsetenv("V3") == 0 && !getenv("V3"));
        char *own = strdup("OWN=1");
        CHECK(putenv(own) == 0);
        CHECK(clearenv() == 0);
        free(own);
    }
    environ = 0;
    for (int i = 0; i < 1000; i++)
        free(must(i));
    return 0;
}
