#!/bin/bash
# run.sh [--preload LIB] [FILTER]: builds and runs every program of programs/, each alone and with a time limit, under plain
# libc and, with --preload, also under the library. FILTER is a part of a name.
#
# Prints "ok|FAIL|skip NAME libc|preload (reason)" for each run and "N passed, N failed, N skipped" at the end; exit status 1
# if anything failed. A program's header comment may hold these lines:
#   libs: FLAGS          for the linker            timeout: SECONDS   instead of 60
#   plugins: FILE...     shared objects of plugins/, built beside the program, which runs in that directory
#   only: preload        the promise is ours, not libc's
#   env: empty           runs with no environment variable but LD_PRELOAD
#   needs: FILE          skipped when that file is missing
set -u
ulimit -c 0
here=$(cd "$(dirname "$0")" && pwd)
preload=
filter=
while [ $# -gt 0 ]; do
    case $1 in
    --preload) preload=$(realpath -e "${2:?--preload needs a file}") || exit 2; shift ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    *) filter=$1 ;;
    esac
    shift
done
build=${TEST_PROGRAMS_BUILD:-${TMPDIR:-/tmp}/memledger-test-programs.$UID}
mkdir -p "$build" || exit 2
cflags=(-O1 -g -Wall -Wextra -fno-builtin -Wno-free-nonheap-object -Wno-alloc-size-larger-than)
passed=0 failed=0 skipped=0

# key FILE NAME: the value of a header line.
key() { sed -n "1,12s/^\( \*\|\/\/[!]\{0,1\}\) *$2: *//p" "$1" | sed 's/ *\*\/ *$//' | head -n 1; }

# compile SOURCE TARGET FLAGS...: one program or plugin; its messages go to TARGET.log.
compile() {
    local src=$1 out=$2
    shift 2
    [ "$out" -nt "$src" ] && [ "$out" -nt "$here/programs/check.h" ] && return 0
    case $src in
    *.c) gcc -std=gnu11 "${cflags[@]}" -o "$out" "$src" "$@" ;;
    *.cc) g++ -std=gnu++17 "${cflags[@]}" -fno-allocation-dce -o "$out" "$src" "$@" ;;
    *.rs) rustc --edition 2024 -O -g -o "$out" "$src" ;;
    esac >"$out.log" 2>&1
}

# report WORD NAME HOW REASON: one line, and the count.
report() {
    printf '%-4s %s %s%s\n' "$1" "$2" "$3" "${4:+ ($4)}"
    case $1 in ok) passed=$((passed + 1)) ;; FAIL) failed=$((failed + 1)) ;; skip) skipped=$((skipped + 1)) ;; esac
}

# run NAME SOURCE HOW: runs the program built for SOURCE; HOW is libc or preload.
run() {
    local name=$1 src=$2 how=$3 log limit status took reason
    local -a set=()
    log=$build/$name.$how.out
    limit=$(key "$src" timeout)
    limit=${limit:-60}
    [ "$(key "$src" env)" = empty ] && set+=(-i)
    if [ "$how" = preload ]; then
        set+=("LD_PRELOAD=$preload")
        [ "${set[0]}" = -i ] || set+=(UNDER_PRELOAD=1)
    fi
    took=$EPOCHREALTIME
    # no exec: the subshell, not this shell, tells of a signal
    (cd "$build" && timeout -k 5 "$limit" env ${set[@]+"${set[@]}"} "./$name"; exit $?) >"$log" 2>&1 </dev/null
    status=$?
    took=$(((${EPOCHREALTIME/[.,]/} - ${took/[.,]/}) / 1000))
    if [ $status = 0 ]; then
        if [ "$how" = preload ] && grep -q 'cannot be preloaded' "$log"; then
            report FAIL "$name" "$how" "the loader refused the library"
        else
            report ok "$name" "$how" "$took ms"
        fi
        return
    fi
    case $status in
    124 | 137) reason="still running after $limit s" ;;
    1) reason="exit status 1" ;;
    *) [ $status -gt 128 ] && reason="signal $((status - 128))" || reason="exit status $status" ;;
    esac
    report FAIL "$name" "$how" "$reason"
    tail -n 5 "$log" | cut -c 1-300 | sed 's/^/     | /'
}

# test_program SOURCE: builds it and runs it in each way.
test_program() {
    local src=$1 name plug need
    local -a libs
    name=$(basename "$src")
    name=${name%.*}
    need=$(key "$src" needs)
    if [ -n "$need" ] && ! [ -e "$need" ]; then
        report skip "$name" build "no $need"
        return
    fi
    for plug in $(key "$src" plugins); do
        if ! compile "$here/plugins/$plug" "$build/${plug%.*}.so" -shared -fPIC; then
            report FAIL "$name" build "plugin $plug does not compile, see $build/${plug%.*}.so.log"
            return
        fi
    done
    read -ra libs <<<"$(key "$src" libs)"
    if ! compile "$src" "$build/$name" ${libs[@]+"${libs[@]}"}; then
        report FAIL "$name" build "does not compile"
        tail -n 5 "$build/$name.log" | sed 's/^/     | /'
        return
    fi
    if [ "$(key "$src" only)" = preload ]; then
        report skip "$name" libc "libc promises nothing here"
    else
        run "$name" "$src" libc
    fi
    [ -n "$preload" ] && run "$name" "$src" preload
}

for src in "$here"/programs/*.c "$here"/programs/*.cc "$here"/programs/*.rs; do
    case $(basename "$src") in *"$filter"*) test_program "$src" ;; esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $((passed + failed + skipped)) -gt 0 ]
