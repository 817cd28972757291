/* Promise: malloc and free work in pthread key destructors (also in the last round of them), in C++ thread_local
 * destructors, and in a thread that only ever frees (peers.md trap 4: free after TLS teardown).
 * libs: -pthread */
#include "check.h"
#include <pthread.h>
#include <string>
#include <vector>

static pthread_key_t key;
static int destroyed, rounds;

static void key_gone(void *v)
{
    int left = *(int *)v;
    free(v);
    for (int i = 1; i < 200; i++)
        free(must(i * 17));
    rounds++;
    if (left > 1) { /* ask for another round: glibc gives 4 */
        int *again = (int *)must(sizeof(int));
        *again = left - 1;
        pthread_setspecific(key, again);
    }
}

struct Local {
    std::vector<std::string> kept;
    ~Local()
    {
        for (auto &s : kept)
            CHECK(s.size() == 100);
        std::string more(5000, 'x');
        free(must(100000));
        destroyed++;
    }
};
static thread_local Local local;

static void *body(void *)
{
    for (int i = 0; i < 50; i++)
        local.kept.push_back(std::string(100, 'q'));
    int *n = (int *)must(sizeof(int));
    *n = 4;
    pthread_setspecific(key, n);
    return must(64);
}

static void *only_frees(void *p)
{
    void **a = (void **)p;
    for (int i = 0; i < 1000; i++)
        free(a[i]);
    return 0;
}

int main()
{
    pthread_t t;
    void *r;
    static void *blocks[1000];
    CHECK(pthread_key_create(&key, key_gone) == 0);
    for (int i = 0; i < 300; i++) {
        CHECK(pthread_create(&t, 0, body, 0) == 0);
        CHECK(pthread_join(t, &r) == 0);
        free(r);
        for (int k = 0; k < 1000; k++)
            blocks[k] = must(8 + k);
        CHECK(pthread_create(&t, 0, only_frees, blocks) == 0);
        CHECK(pthread_join(t, &r) == 0);
    }
    CHECK(destroyed == 300);
    CHECK(rounds == 300 * 4);
    return 0;
}
