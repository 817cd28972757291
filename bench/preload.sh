#!/bin/bash
# preload.sh --preload LIB [--rounds R] [--scale N] [--config NAME=VAR=VALUE]... [--also NAME=LIB]... [FILTER]
#
# User CPU and peak RSS of real programs under plain glibc and under the library, in interleaved rounds (default 7), so that a
# ratio compares neighbours in time. --config adds a run with LIB and one more variable (off=MEMLEDGER=0), --also one
# with another preload (mimalloc=/usr/lib/.../libmimalloc.so.2). Medians and ratios go to standard output and
# to results/DATE-preload.txt, the single runs to results/DATE-preload.csv. The limits are 1.3 times the user CPU, and 1.3 times
# + 4 MiB of peak RSS; exit status 1 if the library is over one of them.
set -u
ulimit -c 0
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=../test-programs/real/workloads.sh disable=SC1091
. "$here/../test-programs/real/workloads.sh"
preload='' rounds=7 scale=2 filter='' line="bench/preload.sh $*"
# Results are kept: without the place of this checkout.
line=${line//"$(dirname "$here")"\//}
names=(glibc ledger) libs=('' '') vars=('' '')
while [ $# -gt 0 ]; do
    case $1 in
    --preload) preload=$(realpath -e "${2:?}") || exit 2; shift ;;
    --rounds) rounds=${2:?}; shift ;;
    --scale) scale=${2:?}; shift ;;
    --config) names+=("${2%%=*}"); libs+=(self); vars+=("${2#*=}"); shift ;;
    --also) names+=("${2%%=*}"); libs+=("$(realpath -e "${2#*=}")"); vars+=(''); shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "preload.sh: unknown option $1" >&2; exit 2 ;;
    *) filter=$1 ;;
    esac
    shift
done
[ -n "$preload" ] || { echo "preload.sh: --preload LIB is needed" >&2; exit 2; }
libs[1]=$preload
lab=$(mktemp -d "${TMPDIR:-/tmp}/memledger-bench.XXXXXX") || exit 2
trap 'rm -rf "$lab"' EXIT
unset LD_PRELOAD MEMLEDGER
gcc -O2 -static -o "$lab/launch" "$here/launch.c" || exit 2
out=$here/results/$(date -u +%Y-%m-%d)-preload
mkdir -p "$here/results"

# measure NAME CONFIG ROUND: one run, one line of the table of runs.
measure() {
    local name=$1 c=$2 round=$3 lib=${libs[$2]} wall user sys rss status
    local -a set=("LAUNCH_PRELOAD=${lib/#self/$preload}")
    [ -n "${vars[$c]}" ] && set+=("${vars[$c]}")
    (cd "$lab/$name" && exec env "${set[@]}" "$lab/launch" "$lab/one" "${COMMAND[@]}") >"$lab/$name.${names[$c]}.out" 2>"$lab/err" </dev/null
    read -r wall user sys rss status <"$lab/one" || return
    [ "$round" = 0 ] || echo "$name,${names[$c]},$round,$wall,$user,$sys,$rss,$status" >>"$lab/runs.csv"
    cmp -s "$lab/$name.${names[$c]}.out" "$lab/$name.glibc.out" || echo "$name under ${names[$c]}: output differs from glibc's" | tee -a "$lab/wrong" >&2
}

echo program,config,round,wall,user,sys,rss_kib,status >"$lab/runs.csv"
for name in $(workload_list); do
    case $name in *"$filter"*) ;; *) continue ;; esac
    lack=$(workload_lacks "$name")
    if [ -n "$lack" ]; then
        echo "$name: left out, $lack" | tee -a "$lab/left" >&2
        continue
    fi
    (workload_prepare "$name" "$lab/$name" "$scale") >"$lab/prepare" 2>&1 || { cat "$lab/prepare" >&2; continue; }
    workload_command "$name" "$lab/$name"
    for ((round = 0; round <= rounds; round++)); do # round 0 warms up
        for ((k = 0; k < ${#names[@]}; k++)); do
            # Every second round runs backwards, so that no place in the order is favoured.
            measure "$name" $((round % 2 ? ${#names[@]} - 1 - k : k)) "$round"
        done
    done
    echo "$name done" >&2
    rm -rf "${lab:?}/$name"
done
{
    "$here/machine.sh"
    echo "command: $line"
    [ -s "$lab/left" ] && cat "$lab/left"
    [ -s "$lab/wrong" ] && sort -u "$lab/wrong"
    python3 "$here/medians.py" "$lab/runs.csv"
} | tee "$out.txt"
status=${PIPESTATUS[0]}
cp "$lab/runs.csv" "$out.csv"
exit "$status"
