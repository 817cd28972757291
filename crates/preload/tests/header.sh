#!/bin/bash
# header.sh --preload LIB --memledger BIN [FILTER]: builds each test program of memledger.h with gcc and clang, -O0 and -O2, as C and
# C++ and position-independent or not; runs it without the runtime (it must just work) and with it: then the rows of its
# own lines must be those that "calls=N" in its source says, and no others. One line a case; exit status 1 if any failed.
# There is no debug information, so that only tags can name lines.
set -u
here=$(cd "$(dirname "$0")" && pwd)
headers=$here/../include
preload='' memledger='' filter=''
while [ $# -gt 0 ]; do
    case $1 in
    --preload) preload=$(realpath -e "${2:?--preload needs a file}") || exit 2; shift ;;
    --memledger) memledger=$(realpath -e "${2:?--memledger needs a file}") || exit 2; shift ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "header.sh: unknown option $1" >&2; exit 2 ;;
    *) filter=$1 ;;
    esac
    shift
done
[ -n "$preload" ] && [ -n "$memledger" ] || { echo "header.sh: --preload and --memledger are needed" >&2; exit 2; }
build=$(mktemp -d) || exit 2
trap 'rm -rf "$build"' EXIT
passed=0 failed=0

# rows ALLOCINFO SOURCE MODULE: compares the rows of a source file with its "calls=N".
rows() {
    python3 - "$@" <<'PY'
import os, re, sys
name, module, found, told = os.path.basename(sys.argv[2]), sys.argv[3], {}, {}
for number, line in enumerate(open(sys.argv[2]), 1):
    if m := re.search(r"// calls=(\d+)", line):
        told[number] = int(m[1])
for row in open(sys.argv[1]):
    m = re.match(r"\s*\d+\s+(\d+) (?:\S*/)?([^/\s:]+):(\d+) (\[\S+\] )?", row)
    if m and m[2] == name and int(m[1]) and int(m[3]):
        found[int(m[3])] = found.get(int(m[3]), 0) + int(m[1])
        if (m[4] or "").strip(" []") != module:
            sys.exit(f"{row.strip()}: should be of [{module}]")
if found != told:
    sys.exit(f"found {sorted(found.items() - told.items())}, missing {sorted(told.items() - found.items())}")
PY
}

# check NAME SOURCE MODULE COMMAND...: runs it both ways.
check() {
    local name=$1 source=$2 module=$3 word pid problem=''
    shift 3
    timeout 20 "$@" </dev/null >"$build/out" 2>&1 || problem="without the runtime: $(tail -n 1 "$build/out")"
    if [ -z "$problem" ]; then
        coproc RUN { LD_PRELOAD=$preload exec "$@" 2>&1; }
        pid=$RUN_PID
        exec {from}<&"${RUN[0]}" {to}>&"${RUN[1]}"
        # Before it is ready, a program may unload a plugin that leaves memory behind; the runtime says so.
        while read -r -t 20 word <&$from && [[ $word == "memledger: "* ]]; do :; done
        if [[ $word == ready* ]]; then
            "$memledger" allocinfo -p "$pid" --raw >"$build/rows" 2>"$build/err"
            problem=$(rows "$build/rows" "$source" "$module" 2>&1)
        else
            problem="with the runtime: $word"
        fi
        eval "exec $from<&- $to>&- ${RUN[1]}>&-"
        wait "$pid" || problem="$problem; exit status $?"
    fi
    if [ -z "$problem" ]; then
        echo "ok   $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name: $problem"
        failed=$((failed + 1))
    fi
}

# one SOURCE COMPILER FLAGS...: builds and checks one.
one() {
    local source=$1 compiler=$2 name
    shift 2
    name="$source $compiler $*"
    name=${name//"$headers/"/}
    case $name in *"$filter"*) ;; *) return ;; esac
    if ! "$compiler" -Wall -Wextra -Werror -I"$headers" "$@" -o "$build/program" "$here/$source" -lpthread 2>"$build/err"; then
        echo "FAIL $name: $(grep -m 1 error "$build/err")"
        failed=$((failed + 1))
        return
    fi
    check "$name" "$here/$source" '' "$build/program"
}

# plugin COMPILER FLAGS...: host.c, and plugin.c as a shared object.
plugin() {
    local compiler=$1
    shift
    case "plugin.c $compiler $*" in *"$filter"*) ;; *) return ;; esac
    "$compiler" -o "$build/host" "$here/host.c" -ldl &&
        "$compiler" "$@" -shared -fPIC -isystem "$headers/memledger/replace" -o "$build/plugin.so" "$here/plugin.c" || exit 2
    check "plugin.c $compiler $*" "$here/plugin.c" plugin "$build/host" "$build/plugin.so"
}

declare -A cxx=([gcc]=g++ [clang]=clang++)
all=(-include "$headers/memledger.h" -DMEMLEDGER_TAG_ALL)
for compiler in gcc clang; do
    for flags in -O0 -O2 '-O2 -fPIE -pie' '-O1 -fno-pic -no-pie' '-O2 -flto'; do
        [ "$compiler $flags" = 'clang -O2 -flto' ] && continue
        for std in gnu99 c11; do
            one hooks.c $compiler $flags -std=${std/c11/gnu11}
        done
        one calls.c $compiler $flags -std=c99 -isystem "$headers/memledger/replace"
        one calls.c $compiler $flags -D_FORTIFY_SOURCE=2 -isystem "$headers/memledger/replace"
        one calls.c $compiler $flags -D_GNU_SOURCE "${all[@]}"
        one hooks.c ${cxx[$compiler]} $flags -x c++
        one cxx.cc ${cxx[$compiler]} $flags -std=c++17 "${all[@]}"
        one filter.c $compiler $flags -isystem "$headers/memledger/replace" '-DMEMLEDGER_ONLY="tests/"'
    done
    for flags in -O1 -O2; do
        for define in '-DMEMLEDGER_ONLY="src/"' '-DMEMLEDGER_EXCLUDE="/tests/"'; do
            one unwanted.c $compiler $flags -isystem "$headers/memledger/replace" "$define"
        done
    done
    plugin $compiler -O0
    plugin $compiler -O2
done
# memledger-cc: tags what compiles with tags, does without in what does not, and fails where the compiler fails.
cc=$here/../memledger-cc
tags() { readelf -SW "$1" | grep -c ' alloc_tags'; }
compiles() {
    local name=$1 expected=$2
    case "memledger-cc $name" in *"$filter"*) ;; *) return ;; esac
    printf '%s\n' "$3" >"$build/$name"
    rm -f "$build/object"
    "$cc" gcc -c "$build/$name" -o "$build/object" 2>"$build/err"
    set -- $? "$(tags "$build/object" 2>/dev/null)" "$(grep -c 'not tagged' "$build/err")"
    if [ "$*" = "$expected" ]; then
        echo "ok   memledger-cc $name"
        passed=$((passed + 1))
    else
        echo "FAIL memledger-cc $name: $*, not $expected"
        failed=$((failed + 1))
    fi
}
compiles calls_it.c '0 1 0' $'#include <stdlib.h>\nvoid *f(void) { return malloc(3); }'
compiles declares_it.c '0 0 1' $'#include <stdlib.h>\nvoid *malloc(size_t);\nvoid *f(void) { return malloc(3); }'
compiles has_a_member.c '0 0 1' $'#include <stdlib.h>\nstruct s { void *(*malloc)(int); };\nvoid *f(struct s *s) { return s->malloc(3); }'
compiles is_wrong.c '1 0 0' 'int x = ;'

echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
