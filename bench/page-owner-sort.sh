#!/bin/bash
# page-owner-sort.sh --memledger FILE --dump FILE --kernel-tool FILE [--copies N] [--rounds R]
#
# How fast a kernel's page_owner dump is grouped, beside the kernel's own page_owner_sort (tools/mm, built from the kernel's
# source, as Debian's package linux-source-* has it). The dump (perhaps packed with xz) is repeated N times (default 20: about 1 GB).
# Both tools do the same by default, memledger also with --kernel-compat, alternating, in R rounds (default 3); medians. At least 25 times
# the kernel tool's rate and less than 100 MB of memory are wanted.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program='' dump='' tool='' copies=20 rounds=3
while [ $# -gt 0 ]; do
    case $1 in
    --memledger) program=$(realpath -e "${2:?}"); shift ;;
    --dump) dump=$(realpath -e "${2:?}"); shift ;;
    --kernel-tool) tool=$(realpath -e "${2:?}"); shift ;;
    --copies) copies=${2:?}; shift ;;
    --rounds) rounds=${2:?}; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "page-owner-sort.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$program" ] && [ -n "$dump" ] && [ -n "$tool" ] ||
    { echo "page-owner-sort.sh: --memledger, --dump and --kernel-tool are needed" >&2; exit 2; }
lab=$(mktemp -d "${TMPDIR:-/tmp}/memledger-bench.XXXXXX")
trap 'rm -rf "$lab"' EXIT
case $dump in
*.xz) xz -dc "$dump" >"$lab/one" ;;
*) cp "$dump" "$lab/one" ;;
esac
for ((i = 0; i < copies; i++)); do cat "$lab/one"; done >"$lab/dump"
bytes=$(stat -c %s "$lab/dump")

# measure NAME COMMAND...: appends "SECONDS KIB" of wall time and peak memory.
measure() {
    local name=$1
    shift
    /usr/bin/time -a -o "$lab/$name" -f '%e %M' "$@" >/dev/null 2>&1 || [ $? = 1 ]
}
for ((round = 0; round < rounds; round++)); do
    measure ours "$program" page-owner sort "$lab/dump" "$lab/out"
    measure compat "$program" page-owner sort --kernel-compat "$lab/dump" "$lab/compat-out"
    measure kernel "$tool" "$lab/dump" "$lab/kernel-out"
done
median() { grep -E '^[0-9.]+ [0-9]+$' "$lab/$1" | sort -g -k "$2" | awk -v k="$2" '{ v[NR] = $k } END { print v[int((NR + 1) / 2)] }'; }

"$here/machine.sh"
echo "a dump of $((bytes / 1000000)) MB, $copies copies, medians of $rounds rounds"
slow=$(median kernel 1)
for name in kernel ours compat; do
    awk -v name=$name -v s="$(median $name 1)" -v kib="$(median $name 2)" -v slow="$slow" -v bytes="$bytes" 'BEGIN {
        printf "%-8s %8.2f s %8.1f MB/s %6.1f times the kernel tool %9.1f MB of memory\n", name, s, bytes / s / 1e6, slow / s, kib * 1024 / 1e6 }'
done
if cmp -s "$lab/compat-out" "$lab/kernel-out"; then echo "compat prints what the kernel tool prints"; else echo "compat and the kernel tool differ"; fi
