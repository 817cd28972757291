#!/bin/bash
# tracer.sh --preload LIB [--base LIB] [--pairs N]
#
# What the tracer costs: nanoseconds and instructions of a malloc/free pair of 64 bytes, with the tracer off, on (events), on with the sums
# (sites, caches, objects) and on with a full ring that drops; with --base also under a library of before. An event is half a pair's
# difference to the same mode without the tracer. Nanoseconds are the best of 15 rounds, instructions (of cachegrind, if it is there) the
# slope of two lengths. The table goes to standard output and to results/DATE-tracer.txt. Limits: +12 ns an event on, +0
# instructions off; exit status 1 if one is broken.
set -u
here=$(cd "$(dirname "$0")" && pwd)
preload='' base='' pairs=300000
while [ $# -gt 0 ]; do
    case $1 in
    --preload) preload=$(realpath -e "${2:?}") || exit 2; shift ;;
    --base) base=$(realpath -e "${2:?}") || exit 2; shift ;;
    --pairs) pairs=${2:?}; shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "tracer.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$preload" ] || { echo "tracer.sh: --preload LIB is needed" >&2; exit 2; }
unset LD_PRELOAD MEMLEDGER
lab=$(mktemp -d "${TMPDIR:-/tmp}/memledger-bench.XXXXXX") || exit 2
trap 'rm -rf "$lab"' EXIT
gcc -O1 -o "$lab/pairs" "$here/tracer.c" || exit 2

# instructions LIB SETTINGS: of a pair.
instructions() {
    local n count=()
    for n in 20000 40000; do
        count+=("$(MEMLEDGER=$2 LD_PRELOAD=$1 valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null \
            "$lab/pairs" "$n" 1 2>&1 | sed -n 's/.*I *refs: *//p' | tr -d ,)")
    done
    echo $(((count[1] - count[0] + 10000) / 20000))
}

# row NAME LIB SETTINGS WITHOUT: prints a row; WITHOUT is the row's nanoseconds without the tracer, or empty.
row() {
    local ns instr=- event=-
    ns=$(MEMLEDGER=$3 LD_PRELOAD=$2 "$lab/pairs" "$pairs" 15) || exit 2
    command -v valgrind >/dev/null && instr=$(instructions "$2" "$3")
    [ -n "$4" ] && event=$(awk -v a="$ns" -v b="$4" 'BEGIN { printf "%+.1f", (a - b) / 2 }')
    printf '%-34s %10s %10s %12s\n' "$1" "$ns" "$event" "$instr"
    last_ns=$ns last_instr=$instr last_event=$event
}

main() {
    local over=0 off on was
    "$here/machine.sh"
    printf '%-34s %10s %10s %12s\n' '' 'ns a pair' 'ns/event' 'instructions'
    for mode in 1 0 never; do
        row "tracer off, MEMLEDGER=$mode" "$preload" "$mode" ''
        off=$last_instr
        [ "$mode" = 1 ] && on=$last_ns
        if [ -n "$base" ]; then
            row "  the library of before" "$base" "$mode" ''
            was=$last_instr
            [ "$off" = - ] || [ "$off" -le "$was" ] || over=1
        fi
    done
    row 'tracer on, events' "$preload" 1,trace=on "$on"
    awk -v e="$last_event" 'BEGIN { exit !(e > 12) }' && over=1
    row 'tracer on, events and sums' "$preload" 1,trace=on,trace_stat=on "$on"
    row 'tracer on, full ring drops' "$preload" 1,trace=on,trace_mode=stop,trace_size=4K "$on"
    return $over
}
mkdir -p "$here/results"
main | tee "$here/results/$(date -u +%Y-%m-%d)-tracer.txt"
exit "${PIPESTATUS[0]}"
