/* Promise: popen, system and pipes to children that are measured too: output and status unchanged. */
#include "check.h"

int main(void)
{
    char line[256];
    for (int i = 0; i < 10; i++) {
        FILE *f = popen("for i in 1 2 3; do echo row $i; done | sed s/row/line/ | tail -n 1; exit 3", "r");
        CHECK(f && fgets(line, sizeof line, f) && !strcmp(line, "line 3\n"));
        int st = pclose(f);
        CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 3);
        st = system("x=$(printf '%s' abc); test \"$x\" = abc && exit 9");
        CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 9);
        f = popen("cat > /dev/null", "w");
        CHECK(f);
        for (int k = 0; k < 20000; k++)
            fprintf(f, "%d\n", k);
        CHECK(pclose(f) == 0);
    }
    CHECK(system("kill -9 $$") == 9);
    return 0;
}
