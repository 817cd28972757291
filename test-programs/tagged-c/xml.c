// Reads an XML file ROUNDS times with mxml, keeps the last tree, says "ready" and waits for the end of its input.
#include <mxml.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 0;
    mxml_node_t *tree = NULL;
    if (rounds < 1)
        return 2;
    for (int i = 0; i < rounds; i++) {
        FILE *file = fopen(argv[1], "r");
        if (!file)
            return 1;
        if (tree)
            mxmlDelete(tree);
        tree = mxmlLoadFile(NULL, file, MXML_OPAQUE_CALLBACK);
        fclose(file);
        if (!tree)
            return 1;
    }
    printf("ready %s\n", mxmlGetElement(tree));
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}
