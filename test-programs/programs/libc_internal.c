/* Promise: what libc allocates inside itself works: locales, iconv, passwd and host look-ups, printf of floats and wide
 * fields, regex, glob, qsort of much data, tsearch, stdio buffers, tmpfile, scandir.
 * libs: -lm */
#include "check.h"
#include <dirent.h>
#include <glob.h>
#include <iconv.h>
#include <locale.h>
#include <math.h>
#include <netdb.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <sys/socket.h>
#include <time.h>
#include <wchar.h>

static int cmp(const void *a, const void *b) { return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b); }

static void text(void)
{
    static char out[20000];
    CHECK(snprintf(out, sizeof out, "%.3000f|%5000d|%ls", M_PI, 7, L"wide") == 3002 + 1 + 5000 + 1 + 4);
    CHECK(!strncmp(out, "3.14159265358979", 16));
    CHECK(strtod("1.7976931348623157e308", 0) > 1e308 && strtod(out, 0) == M_PI);
    iconv_t cd = iconv_open("UTF-16LE", "UTF-8");
    CHECK(cd != (iconv_t)-1);
    char in[] = "gr\xc3\xbc\xc3\x9f", *ip = in, *op = out;
    size_t il = sizeof in - 1, ol = sizeof out;
    CHECK(iconv(cd, &ip, &il, &op, &ol) == 0 && op - out == 8);
    CHECK(iconv_close(cd) == 0);
    regex_t re;
    regmatch_t m[2];
    CHECK(regcomp(&re, "^(a|b)*([0-9]{2,40})$", REG_EXTENDED) == 0);
    CHECK(regexec(&re, "abababab1234", 2, m, 0) == 0);
    regfree(&re);
}

static void system_files(void)
{
    struct passwd *pw = getpwnam("root");
    CHECK(pw && pw->pw_uid == 0);
    glob_t g;
    CHECK(glob("/usr/share/*", 0, 0, &g) == 0 && g.gl_pathc > 3);
    globfree(&g);
    struct dirent **list;
    int n = scandir("/etc", &list, 0, alphasort);
    CHECK(n > 5);
    for (int i = 0; i < n; i++)
        free(list[i]);
    free(list);
    struct addrinfo hint = {.ai_flags = AI_NUMERICHOST}, *res;
    CHECK(getaddrinfo("127.0.0.1", "80", &hint, &res) == 0);
    freeaddrinfo(res);
    FILE *f = tmpfile();
    CHECK(f);
    for (int i = 0; i < 5000; i++)
        fprintf(f, "%d %s\n", i, "line");
    rewind(f);
    int k, last = -1;
    char w[16];
    while (fscanf(f, "%d %15s", &k, w) == 2)
        last = k;
    CHECK(last == 4999 && fclose(f) == 0);
    free(realpath("/proc/self/exe", 0));
    free(getcwd(0, 0));
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    setlocale(LC_ALL, "no_SUCH");
    locale_t l = newlocale(LC_ALL_MASK, "C", 0);
    CHECK(l);
    freelocale(l);
    static int keys[300000];
    uint32_t s = 3;
    void *root = 0;
    for (int i = 0; i < 300000; i++)
        keys[i] = (int)rnd(&s);
    qsort(keys, 300000, sizeof *keys, cmp);
    for (int i = 1; i < 300000; i++)
        CHECK(keys[i - 1] <= keys[i]);
    for (int i = 0; i < 2000; i++)
        CHECK(tsearch(&keys[i], &root, cmp));
    while (root)
        tdelete(*(int **)root, &root, cmp);
    for (int i = 0; i < 5; i++) {
        text();
        system_files();
    }
    tzset();
    time_t t = 0;
    CHECK(localtime(&t) && strerror(12345) && setenv("TZ", "Europe/Paris", 1) == 0);
    tzset();
    return 0;
}
