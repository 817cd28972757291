#!/bin/bash
# truth.sh --memledger BIN [--lib LIB] [--no-dhat] [FILTER]: are the rows right? Runs programs that end with live memory under
# memledger, under an independent logger (logger.c: glibc's malloc, libgcc's unwinder) and under valgrind's dhat, and
# prints what each says of the top functions. Exit status 1 if a program's rows are wrong.
set -u
ulimit -c 0
here=$(cd "$(dirname "$0")" && pwd)
memledger='' lib='' filter='' dhat=1
while [ $# -gt 0 ]; do
    case $1 in
    --memledger) memledger=$(realpath -e "${2:?}") || exit 2; shift ;;
    --lib) lib=$(realpath -e "${2:?}") || exit 2; shift ;;
    --no-dhat) dhat= ;;
    -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "truth.sh: unknown option $1" >&2; exit 2 ;;
    *) filter=$1 ;;
    esac
    shift
done
[ -n "$memledger" ] || { echo "truth.sh: --memledger BIN is needed" >&2; exit 2; }
command -v valgrind >/dev/null || dhat=
# shellcheck source=../real/workloads.sh disable=SC1091
. "$here/../real/workloads.sh"
lab=$(mktemp -d "${TMPDIR:-/tmp}/memledger-truth.XXXXXX") || exit 2
trap 'rm -rf "$lab"' EXIT
gcc -O1 -g -fPIC -shared -fno-builtin -o "$lab/logger.so" "$here/logger.c" -lgcc_s || exit 2
g++ -O1 -g -pthread -fno-builtin -o "$lab/known" "$here/known.cc" || exit 2
rustc --edition 2024 -O -g -o "$lab/hold" "$here/hold.rs" || exit 2
cd "$lab" || exit 2
generate_c 12 >small.c
generate_sql 3000 >work.sql
# shellcheck disable=SC2016 # for the shell that sqlite3 starts
echo '.system kill -TERM $PPID' >>work.sql
(prepare_git 1) >/dev/null 2>&1
passed=0 failed=0 skipped=0

# truth NAME CMD...: one program by the three sources.
truth() {
    local name=$1 program log known=- dfile=-
    shift
    case $name in *"$filter"*) ;; *) return ;; esac
    if ! program=$(command -v "$1"); then
        echo "skip $name ($1 is not installed)"
        skipped=$((skipped + 1))
        return
    fi
    program=$(basename "$(realpath "$program")")
    # Without address randomization and with fixed hash seeds both runs make the same blocks.
    local -a fixed=(env -i PATH="$PATH" HOME="$lab" PYTHONMALLOC=malloc PYTHONHASHSEED=1 PERL_HASH_SEED=0 LC_ALL=C setarch -R)
    "${fixed[@]}" "$memledger" run --at exit --json --frames --top 0 ${lib:+--lib "$lib"} -o "$name.json" -- "$@" >"$name.out" 2>"$name.err"
    "${fixed[@]}" env LD_PRELOAD="$lab/logger.so" TRUTH_OUT="$lab/$name.log" "$@" >"$name.out2" 2>"$name.err2"
    # Programs with children leave several files: the one with the most blocks is meant, as in compare.py.
    log=$(for f in "$name".log.*; do echo "$(od -An -tu4 -j24 -N4 "$f") $f"; done | sort -n | tail -n 1 | cut -d' ' -f2- | sed 's/^ *[0-9]* *//')
    if [ -n "$dhat" ]; then
        dfile=$name.dhat
        "${fixed[@]}" valgrind -q --tool=dhat --run-libc-freeres=no --run-cxx-freeres=no --num-callers=16 --dhat-out-file="$dfile" "$@" >/dev/null 2>"$name.err3" ||
            true # the status is the program's own
    fi
    grep -q '^known ' "$name.out" && known=$name.out
    if ! [ -s "$name.json" ]; then
        echo "FAIL $name (no report): $(tail -n 2 "$name.err")"
        failed=$((failed + 1))
    elif python3 "$here/compare.py" "$name.json" "$log" "$dfile" "$known" "$name" "$program"; then
        echo "ok   $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        failed=$((failed + 1))
    fi
    rm -f "$name".log.*
}

truth known ./known
truth rust ./hold
truth python "$(real_python)" -S -E "$here/hold.py"
truth sqlite sqlite3 :memory: '.read work.sql'
truth git git -C repo rev-list --all --objects
truth perl perl "$here/hold.pl"
# shellcheck disable=SC2016 # for the bash under test
truth bash bash -c 'for ((i = 0; i < 6000; i++)); do a[i]="text $i"; declare "v$i=$i$i"; done; f() { echo in "$1"; }; f "${#a[@]}"'
truth cc1 "$(gcc -print-prog-name=cc1)" -quiet -imultiarch x86_64-linux-gnu -O2 small.c -o small.s
truth clang clang -cc1 -triple x86_64-pc-linux-gnu -emit-obj -O1 -disable-free -internal-isystem "$(clang -print-resource-dir)/include" \
    -internal-externc-isystem /usr/include/x86_64-linux-gnu -internal-externc-isystem /usr/include -x c small.c -o small.o
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $((passed + failed + skipped)) -gt 0 ]
