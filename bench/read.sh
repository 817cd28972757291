#!/bin/bash
# read.sh --memledger BIN --preload LIB [--rounds R]: how long a report takes. Makes a C program with 1,000,000 live objects of 5,000
# call sites, run under LIB, and a Rust program with as many of 5,000 tags; times reading the ledger, symbols, and the whole
# command `memledger allocinfo -p PID`, R times (default 20), with the files in the page cache and without. Limits: read 20 ms,
# command 1 s. The result goes to standard output and results/DATE-read.txt; exit status 1 if over a limit.
set -u
here=$(cd "$(dirname "$0")" && pwd)
memledger='' preload='' rounds=20 line="bench/read.sh $*"
# Results are kept: without the place of this checkout.
line=${line//"$(dirname "$here")"\//}
while [ $# -gt 0 ]; do
    case $1 in
    --memledger) memledger=$(realpath -e "${2:?}") || exit 2; shift ;;
    --preload) preload=$(realpath -e "${2:?}") || exit 2; shift ;;
    --rounds) rounds=${2:?}; shift ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "read.sh: unknown argument $1" >&2; exit 2 ;;
    esac
    shift
done
if [ -z "$memledger" ] || [ -z "$preload" ]; then
    echo "read.sh: --memledger BIN and --preload LIB are needed" >&2
    exit 2
fi
lab=$(mktemp -d "${TMPDIR:-/tmp}/memledger-read.XXXXXX") || exit 2
target=${CARGO_TARGET_DIR:-$here/../target/bench-read}
pid=''
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    [ -n "$pid" ] && kill "$pid" 2>/dev/null
    rm -rf "$lab"
}
trap cleanup EXIT
python3 "$here/live.py" 5000 1000000 >"$lab/live.c" && gcc -O1 -g -o "$lab/sites" "$lab/live.c" || exit 2
mkdir -p "$lab/tags-crate/src" && python3 "$here/live_tags.py" 5000 1000000 >"$lab/tags-crate/src/main.rs" || exit 2
cat >"$lab/tags-crate/Cargo.toml" <<TOML
[package]
name = "live-tags"
version = "0.1.0"
edition = "2024"
[dependencies]
memledger = { path = "$(realpath "$here/../crates/memledger")", default-features = false, features = ["profiling"] }
[workspace]
[profile.release]
debug = "line-tables-only"
TOML
gcc -O2 -static -o "$lab/launch" "$here/launch.c" || exit 2
export CARGO_TARGET_DIR=$target
cargo build -q --release -j2 --manifest-path "$here/read-time/Cargo.toml" || exit 2
cargo build -q --release -j2 --manifest-path "$lab/tags-crate/Cargo.toml" || exit 2
cp "$target/release/live-tags" "$lab/tags" || exit 2

# start KIND: runs the program of 5,000 sites or tags until it holds its memory; it ends when its input does.
start() {
    local i
    rm -f "$lab/in" "$lab/said"
    mkfifo "$lab/in" && exec 7<>"$lab/in"
    if [ "$1" = sites ]; then
        LD_PRELOAD=$preload "$lab/sites" <"$lab/in" >"$lab/said" 7>&- &
    else
        "$lab/tags" <"$lab/in" >"$lab/said" 7>&- &
    fi
    pid=$!
    for ((i = 0; i < 600; i++)); do
        grep -qs ready "$lab/said" && return 0
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "read.sh: the program of $1 ended early" >&2
    return 1
}

# drop FILE: out of the page cache.
drop() { sync "$1" && dd if="$1" iflag=nocache count=0 status=none; }

# command_ms warm|cold KIND OPTIONS: one line of milliseconds for each round.
command_ms() {
    local i
    for ((i = 0; i < rounds; i++)); do
        if [ "$1" = cold ]; then
            drop "$lab/$2"
            drop "$(ldd "$lab/$2" | awk '/libc.so/ { print $3 }')"
            drop "$memledger"
        fi
        "$lab/launch" "$lab/one" "$memledger" allocinfo -p "$pid" "${@:3}" >"$lab/out" 2>"$lab/err" || return 1
        awk '{ if ($5) exit 1; print $1 * 1000 }' "$lab/one" || { cat "$lab/err" >&2; return 1; }
    done
}
median() { sort -n | awk '{ v[NR] = $1 } END { if (!NR) exit 1; printf "%.1f", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

{
    "$here/machine.sh"
    echo "command: $line"
    for kind in sites tags; do
        echo
        echo "1,000,000 live objects, 5,000 $kind:"
        start "$kind" || exit 1
        "$target/release/read-time" "$pid" "$rounds" || exit 1
        echo "memledger allocinfo -p PID, page cache warm: $(command_ms warm "$kind" | median) ms (median of $rounds)"
        echo "memledger allocinfo -p PID, page cache cold: $(command_ms cold "$kind" | median) ms (median of $rounds)"
        echo "memledger allocinfo -p PID --raw, all rows:   $(command_ms warm "$kind" --raw | median) ms (median of $rounds, $(grep -c func: "$lab/out") rows)"
        exec 7>&-
        wait "$pid" || exit 1
        pid=''
    done
} >"$lab/result" || { cat "$lab/result"; exit 1; }
mkdir -p "$here/results"
tee "$here/results/$(date -u +%Y-%m-%d)-read.txt" <"$lab/result"
awk '/^read the ledger/ { r++; if ($4 + 0 > 20) bad = 1 } /^memledger allocinfo/ { sub(/.*: +/, ""); c++; if ($1 + 0 <= 0 || $1 + 0 > 1000) bad = 1 }
    END { if (bad || r != 2 || c != 6) { print "over a limit"; exit 1 } print "within the limits" }' "$lab/result"
