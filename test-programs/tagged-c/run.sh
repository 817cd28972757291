#!/bin/bash
# run.sh --preload LIB --memledger BIN [FILTER]: real C projects, unchanged, built with gcc as they are and once more with their calls
# tagged by memledger.h.
#
# Checks for each that both builds work the same, that more than 95 % of the bytes in the tagged one's allocinfo are on the
# own lines, and that the tags cost less than 2 % of its instructions, with the runtime and without it. Instructions,
# because they do not depend on what else the machine does; times are printed as well. "ok|FAIL|skip PROJECT ..." for each; exit
# status 1 if any failed. Sources come from Debian by apt, to a temporary directory (TAGGED_C_BUILD, kept between runs).
set -u
here=$(cd "$(dirname "$0")" && pwd)
headers=$(realpath -e "$here/../../crates/preload/include") || exit 2
preload='' memledger='' filter=''
while [ $# -gt 0 ]; do
    case $1 in
    --preload) preload=$(realpath -e "${2:?--preload needs a file}") || exit 2; shift ;;
    --memledger) memledger=$(realpath -e "${2:?--memledger needs a file}") || exit 2; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    *) filter=$1 ;;
    esac
    shift
done
[ -n "$preload" ] && [ -n "$memledger" ] || { echo "run.sh: --preload and --memledger are needed" >&2; exit 2; }
for tool in gcc make apt-get tar valgrind python3; do
    command -v $tool >/dev/null || { echo "skip all (no $tool)"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
done
build=${TAGGED_C_BUILD:-${TMPDIR:-/tmp}/memledger-tagged-c.$UID}
mkdir -p "$build" || exit 2
passed=0 failed=0 skipped=0
tagged="-isystem $headers/memledger/replace"

# fetch PACKAGE: Debian's source of it, unpacked, as $build/PACKAGE.
fetch() {
    local dir=$build/apt
    [ -d "$build/$1" ] && return 0
    mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" "$build/$1.part"
    echo "deb-src http://deb.debian.org/debian $(. /etc/os-release && echo "$VERSION_CODENAME") main" >"$dir/sources.list"
    local -a apt=(apt-get -qq -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User=root)
    [ -e "$dir/done" ] || "${apt[@]}" update && : >"$dir/done"
    (cd "$dir" && "${apt[@]}" --download-only source "$1") || return 1
    tar -xf "$dir/$1"_*.orig.tar.?z -C "$build/$1.part" --strip-components=1 && mv "$build/$1.part" "$build/$1"
}

# make_PROJECT DIR FLAGS: builds the copy of the source in DIR; the program is DIR/program.
make_lua5.4() {
    make -C "$1/src" -s lua CC=gcc SYSCFLAGS=-DLUA_USE_LINUX SYSLIBS='-Wl,-E -ldl' MYCFLAGS="$2" && cp "$1/src/lua" "$1/program"
}
make_mxml() {
    (cd "$1" && ./configure --quiet --disable-shared CC=gcc CFLAGS=-O2 && make -s libmxml.a OPTIM="-O2 $2") &&
        gcc -O2 -I"$1" -o "$1/program" "$here/xml.c" "$1/libmxml.a" -lpthread
}
make_json-c() {
    cmake -S "$1" -B "$1/out" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DBUILD_APPS=OFF -DBUILD_TESTING=OFF \
        -DCMAKE_C_COMPILER=gcc -DCMAKE_C_FLAGS="$2" && make -s -C "$1/out" json-c &&
        gcc -O2 -I"$1" -I"$1/out" -o "$1/program" "$here/json.c" "$1"/out/libjson-c.a -lm
}

# data: the input files.
data() {
    python3 - "$build" <<'PY'
import json, sys
rows = [{"id": i, "name": f"row {i}", "tags": [f"a{i % 100}", f"b{i % 1000}"], "at": {"x": i / 7, "y": None}} for i in range(5000)]
json.dump(rows, open(sys.argv[1] + "/data.json", "w"))
with open(sys.argv[1] + "/data.xml", "w") as out:
    out.write("<?xml version='1.0'?><rows>")
    for r in rows:
        out.write(f"<row id='{r['id']}' name='{r['name']}'><tag>{r['tags'][0]}</tag><tag>{r['tags'][1]}</tag></row>")
    out.write("</rows>")
PY
}

# arguments PROJECT ROUNDS
arguments() {
    case $1 in
    lua5.4) args=("$here/work.lua" $((($2 + 3) / 4))) ;;
    mxml) args=("$build/data.xml" "$2") ;;
    json-c) args=("$build/data.json" "$2") ;;
    esac
}

# own_share PROGRAM SOURCES: percent of the bytes that are on lines of files in SOURCES, and how many lines; to $share, $lines.
own_share() {
    local pid words
    coproc RUN { LD_PRELOAD=$preload exec "$1" "${args[@]}" 2>&1; }
    pid=$RUN_PID
    read -r -t 60 words <&"${RUN[0]}"
    [[ $words == ready* ]] && "$memledger" allocinfo -p "$pid" --raw >"$1.allocinfo"
    eval "exec ${RUN[1]}>&-"
    wait "$pid" || return 1
    read -r share lines < <(python3 - "$1.allocinfo" "$2" <<'PY'
import os, sys
own = {f for _, _, files in os.walk(sys.argv[2]) for f in files}
total = mine = lines = 0
for row in open(sys.argv[1]):
    part = row.split()
    if len(part) < 3 or not part[0].isdigit():
        continue
    total += int(part[0])
    # Nothing is built with debug information: only tags can name lines of these files.
    if os.path.basename(part[2].rsplit(":", 1)[0]) in own and int(part[0]):
        mine += int(part[0])
        lines += 1
print(f"{100 * mine / max(total, 1):.2f} {lines}")
PY
)
}

# instructions PROGRAM [VARIABLE=VALUE]: of one run, to $count.
instructions() {
    local program=$1
    shift
    count=$(env "$@" valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "${args[@]}" 2>&1 </dev/null |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p')
    [ -n "$count" ]
}

# seconds PROGRAM [VARIABLE=VALUE]: user time of the fastest of five runs, to $best.
seconds() {
    local program=$1
    shift
    best=$(for _ in 1 2 3 4 5; do
        (TIMEFORMAT=%U; time env "$@" "$program" "${args[@]}" </dev/null >/dev/null) 2>&1
    done | sort -n | head -n 1)
}

percent() { python3 -c "print(f'{100 * ($1 / $2 - 1):+.2f}')"; }

project() {
    local name=$1 plain=$build/$1.plain tags=$build/$1.tags how verdict=ok what='' first=''
    fetch "$name" || { echo "skip $name (its source cannot be fetched)"; skipped=$((skipped + 1)); return; }
    for how in plain tags; do
        rm -rf "${build:?}/$name.$how"
        cp -r "$build/$name" "$build/$name.$how"
        if ! "make_$name" "$build/$name.$how" "$([ $how = tags ] && echo "$tagged")" >"$build/$name.$how.log" 2>&1; then
            echo "FAIL $name (does not build, see $build/$name.$how.log)"
            failed=$((failed + 1))
            return
        fi
    done
    arguments "$name" 1
    own_share "$tags/program" "$build/$name" || verdict=FAIL
    python3 -c "exit(not ${share:-0} > 95)" || verdict=FAIL
    arguments "$name" 5
    for how in '' "LD_PRELOAD=$preload"; do
        local before after
        instructions "$plain/program" $how && before=$count && instructions "$tags/program" $how && after=$count || { verdict=FAIL; continue; }
        first=${first:-$before}
        python3 -c "exit(not $after < 1.02 * $before)" || verdict=FAIL
        what+=", ${how:+with}${how:-without} runtime $(percent "$after" "$before") % instructions"
        arguments "$name" 40
        seconds "$plain/program" $how && before=$best && seconds "$tags/program" $how
        what+=" $(percent "$best" "$before") % time"
        arguments "$name" 5
    done
    what=${what//withLD_PRELOAD=$preload/with}
    echo "$verdict $name: ${share:-?} % of the bytes on ${lines:-?} own lines$what; tags and runtime against neither: \
$(percent "$after" "$first") % instructions"
    if [ $verdict = ok ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
}

data
for name in lua5.4 mxml json-c; do
    case $name in *"$filter"*) project $name ;; esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
