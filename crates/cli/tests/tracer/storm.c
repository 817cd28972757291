/* storm SECONDS: 8 threads allocate and free at full rate. Allocation number i of a thread is 16 + 2 * (i % 500) bytes, and is freed before
 * the next. Prints "tid pairs" of each, then "done", and waits for the end of its standard input. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 8 };
static volatile int stop;
static struct { long tid, pairs; } result[THREADS];
static pthread_barrier_t all;

static void *work(void *arg)
{
    long me = (long)arg, i = 0;
    result[me].tid = syscall(SYS_gettid);
    pthread_barrier_wait(&all);
    while (!stop) {
        void *volatile p = malloc(16 + 2 * (i % 500));
        free(p);
        i++;
    }
    result[me].pairs = i;
    pthread_barrier_wait(&all);
    pause(); /* the ring stays this thread's */
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t t;
    char c;
    pthread_barrier_init(&all, NULL, THREADS + 1);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&t, NULL, work, (void *)i);
    pthread_barrier_wait(&all);
    printf("ready\n");
    fflush(stdout);
    sleep(argc > 1 ? atoi(argv[1]) : 1);
    stop = 1;
    pthread_barrier_wait(&all);
    for (int i = 0; i < THREADS; i++)
        printf("%ld %ld\n", result[i].tid, result[i].pairs);
    printf("done\n");
    fflush(stdout);
    return read(0, &c, 1) < 0;
}
