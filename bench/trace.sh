#!/bin/bash
# trace.sh --memledger FILE --data DIR [--copies N] [--rounds R]
#
# How fast traces are read, through to the report by call site, on one core: raw pages of the ring buffer (at least 20 M events/s
# are wanted), and text, in lines/s beside awk that adds up the same bytes by call site (at least 5 times as many lines). DIR has the
# captures of one run as text and as raw pages; they are repeated N times (default 100). Best of R rounds (default 3). Also
# prints the peak memory of reading the repeated pages, which does not depend on N.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program='' data='' copies=100 rounds=3
while [ $# -gt 0 ]; do
    case $1 in
    --memledger) program=$(realpath -e "${2:?}"); shift ;;
    --data) data=$(realpath -e "${2:?}"); shift ;;
    --copies) copies=${2:?}; shift ;;
    --rounds) rounds=${2:?}; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "trace.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$program" ] && [ -n "$data" ] || { echo "trace.sh: --memledger and --data are needed" >&2; exit 2; }
lab=$(mktemp -d "${TMPDIR:-/tmp}/memledger-trace.XXXXXX")
trap 'rm -rf "$lab"' EXIT
xz -dc "$data/trace_pipe_raw.cpu1.bin.xz" >"$lab/one.raw"
xz -dc "$data/trace.kmem-all.txt.xz" >"$lab/one.txt"
events=48784
lines=$(wc -l <"$lab/one.txt")
for ((i = 0; i < copies; i++)); do cat "$lab/one.raw"; done >"$lab/trace_pipe_raw.cpu1"
for ((i = 0; i < copies / 4 + 1; i++)); do cat "$lab/one.txt"; done >"$lab/trace.txt"
text_copies=$((copies / 4 + 1))

# best COMMAND...: seconds of its fastest round.
best() {
    local round start end least=''
    for ((round = 0; round < rounds; round++)); do
        start=$(date +%s%N)
        "$@" >"$lab/out" 2>&1 || [ $? = 1 ]
        end=$(date +%s%N)
        if [ -z "$least" ] || [ $((end - start)) -lt "$least" ]; then least=$((end - start)); fi
    done
    echo "$least"
}

rate() { awk -v n="$1" -v ns="$2" 'BEGIN { printf "%.2f", n / ns * 1000 }'; }

"$here/machine.sh"
raw=$(best taskset -c 0 "$program" trace report --by site --events "$data/events" "$lab/trace_pipe_raw.cpu1")
echo "raw pages: $(rate $((events * copies)) "$raw") M events/s"
text=$(best taskset -c 0 "$program" trace report --by site "$lab/trace.txt")
echo "text: $(rate $((lines * text_copies)) "$text") M lines/s"
# shellcheck disable=SC2016
script='{ site = ""; for (i = 1; i <= NF; i++) { if ($i ~ /^call_site=/) site = substr($i, 11); else if ($i ~ /^bytes_alloc=/) { hits[site]++; bytes[site] += substr($i, 13) } } }
    END { for (s in hits) print bytes[s], hits[s], s }'
slow=$(best taskset -c 0 awk "$script" "$lab/trace.txt")
echo "awk: $(rate $((lines * text_copies)) "$slow") M lines/s"
echo "text is read at $(awk -v a="$slow" -v b="$text" 'BEGIN { printf "%.1f", a / b }') times the rate of awk"
/usr/bin/time -f "peak memory for %e s of raw pages: %M KiB" "$program" trace report --by site --events "$data/events" "$lab/trace_pipe_raw.cpu1" 2>&1 >/dev/null | tail -n 1
