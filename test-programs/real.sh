#!/bin/bash
# real.sh [--preload LIB] [--memledger BIN] [--scale N] [FILTER]: runs real programs without and with memledger and compares
# standard output and exit status byte for byte.
#
# --preload LIB runs each with LD_PRELOAD=LIB; --memledger BIN runs each as `BIN run -o FILE -- CMD` (and as `BIN run --children`
# for the process trees) and wants a report too. With neither, each runs twice plain: that checks the comparison itself.
# Prints "ok|FAIL|skip NAME HOW (reason)" and a summary; exit status 1 if anything failed.
set -u
ulimit -c 0
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=real/workloads.sh disable=SC1091
. "$here/real/workloads.sh"
preload='' memledger='' scale=1 filter='' passed=0 failed=0 skipped=0
while [ $# -gt 0 ]; do
    case $1 in
    --preload) preload=$(realpath -e "${2:?}") || exit 2; shift ;;
    --memledger) memledger=$(realpath -e "${2:?}") || exit 2; shift ;;
    --scale) scale=${2:?}; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "real.sh: unknown option $1" >&2; exit 2 ;;
    *) filter=$1 ;;
    esac
    shift
done
lab=$(mktemp -d "${TMPDIR:-/tmp}/memledger-real.XXXXXX") || exit 2
trap 'rm -rf "$lab"' EXIT
unset LD_PRELOAD MEMLEDGER

report() {
    printf '%-4s %s %s%s\n' "$1" "$2" "$3" "${4:+ ($4)}"
    case $1 in ok) passed=$((passed + 1)) ;; FAIL) failed=$((failed + 1)) ;; skip) skipped=$((skipped + 1)) ;; esac
}

# run NAME HOW PREFIX...: runs COMMAND in the workload's directory; leaves NAME.HOW.{out,err,status} in the lab.
run() {
    local base=$lab/$1.$2 dir=$lab/$1
    shift 2
    (cd "$dir" && timeout -k 5 "${REAL_TIMEOUT:-300}" "$@" "${COMMAND[@]}" >"$base.out"; exit $?) 2>"$base.err" </dev/null
    echo $? >"$base.status"
}

# compare NAME HOW: against the plain run.
compare() {
    local a=$lab/$1.plain b=$lab/$1.$2
    if ! cmp -s "$a.status" "$b.status"; then
        report FAIL "$1" "$2" "exit status $(cat "$b.status") instead of $(cat "$a.status")"
    elif ! cmp -s "$a.out" "$b.out"; then
        report FAIL "$1" "$2" "standard output differs"
        diff "$a.out" "$b.out" | head -n 4 | cut -c 1-200 | sed 's/^/     | /'
    elif grep -q 'cannot be preloaded' "$b.err"; then
        report FAIL "$1" "$2" "the loader refused the library"
    elif [ -n "${3:-}" ] && ! compgen -G "$3*" >/dev/null; then
        report FAIL "$1" "$2" "no report was written"
    else
        report ok "$1" "$2"
        return
    fi
    tail -n 4 "$b.err" | cut -c 1-300 | sed 's/^/     ! /'
}

for name in $(workload_list); do
    case $name in *"$filter"*) ;; *) continue ;; esac
    lack=$(workload_lacks "$name")
    if [ -n "$lack" ]; then
        report skip "$name" all "$lack"
        continue
    fi
    if ! (workload_prepare "$name" "$lab/$name" "$scale") >"$lab/$name.prepare" 2>&1; then
        report FAIL "$name" prepare "$(tail -n 1 "$lab/$name.prepare")"
        continue
    fi
    workload_command "$name" "$lab/$name"
    run "$name" plain env
    if ! [ -s "$lab/$name.plain.out" ]; then
        report FAIL "$name" plain "no output, status $(cat "$lab/$name.plain.status"): $(tail -n 1 "$lab/$name.plain.err")"
        continue
    fi
    if [ -z "$preload$memledger" ]; then
        run "$name" again env
        compare "$name" again
    fi
    if [ -n "$preload" ]; then
        run "$name" preload env "LD_PRELOAD=$preload"
        compare "$name" preload
    fi
    if [ -n "$memledger" ]; then
        run "$name" run "$memledger" run -o "$lab/$name.report" --
        compare "$name" run "$lab/$name.report"
        run "$name" children "$memledger" run --children -o "$lab/$name.children" --
        compare "$name" children "$lab/$name.children"
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $((passed + failed + skipped)) -gt 0 ]
