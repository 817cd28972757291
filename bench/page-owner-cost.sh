#!/bin/bash
# page-owner-cost.sh --preload LIB: what the page owner costs. Instructions (callgrind, difference of two run lengths) of a large
# malloc/free pair, which takes and gives back one run of 64 KiB, and of a small pair, with page_owner off and on; and the bytes
# of records for a page, beside the kernel's 72.
set -eu
case ${1:-} in
--preload) lib=$(realpath -e "${2:?}") ;;
*) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
command -v valgrind >/dev/null || { echo "page-owner-cost.sh: valgrind is needed" >&2; exit 2; }
lab=$(mktemp -d "${TMPDIR:-/tmp}/memledger-bench.XXXXXX")
trap 'rm -rf "$lab"' EXIT
cat >"$lab/pairs.c" <<'C'
#include <stdlib.h>
int main(int argc, char **argv) {
    (void)argc;
    long n = atol(argv[1]), size = atol(argv[2]);
    for (long i = 0; i < n; i++) {
        char *volatile p = malloc(size);
        free(p);
    }
}
C
gcc -O2 -o "$lab/pairs" "$lab/pairs.c"

# instructions SETTING COUNT SIZE
instructions() {
    LD_PRELOAD=$lib MEMLEDGER=$1 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$lab/pairs" "$2" "$3" 2>&1 |
        awk '/Collected/ { print $NF }'
}

# pair SETTING SIZE: instructions of one pair
pair() {
    local few many
    few=$(instructions "$1" 1000 "$2")
    many=$(instructions "$1" 11000 "$2")
    echo $(((many - few) / 10000))
}
printf '%-12s %16s %16s\n' "page_owner" "64 KiB pair" "64 byte pair"
for setting in off on; do
    printf '%-12s %16s %16s\n' "$setting" "$(pair "1,page_owner=$setting" 65536)" "$(pair "1,page_owner=$setting" 64)"
done
echo "records: 64 bytes a unit of 64 KiB = 4 bytes a page of 4 KiB (the kernel: 72); off: none"
