// Reads a JSON file ROUNDS times with json-c, keeps the last tree, says "ready" and waits for the end of its input.
#include <json.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 0;
    struct json_object *tree = NULL;
    if (rounds < 1)
        return 2;
    for (int i = 0; i < rounds; i++) {
        json_object_put(tree);
        tree = json_object_from_file(argv[1]);
        if (!tree)
            return 1;
    }
    printf("ready %zu\n", json_object_array_length(tree));
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
