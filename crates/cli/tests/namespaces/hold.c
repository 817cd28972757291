/* Holds memory, and more of it for each line of its input. -DPART=1: the function alone, for a shared object; -DPART=2: without
   it; -DOTHER: another function of the same size at the same place, to be put there instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if PART != 2
#ifdef OTHER
#define hold_here wrong_here
#endif
__attribute__((noinline)) void *hold_here(size_t n)
{
	void *p = malloc(n);
	memset(p, 1, n);
	return p;
}
#else
void *hold_here(size_t n);
#endif

#if PART != 1
int main(void)
{
	char line[64];

	for (int i = 0; i < 100; i++)
		hold_here(1000);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		hold_here(1000);
		puts("more");
		fflush(stdout);
	}
	return 0;
}
#endif
