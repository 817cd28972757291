#!/bin/bash
# kernel-vm.sh --memledger BIN: boots the kernel of SHARED/vm (SHARED = MEMLEDGER_SHARED, default ../shared beside the repository) under
# emulation, loads modules, and compares `BIN allocinfo --kernel` with `sort -g /proc/allocinfo | tail`. Takes about 20 s.
set -u
here=$(cd "$(dirname "$0")" && pwd)
memledger=
while [ $# -gt 0 ]; do
    case $1 in
    --memledger) memledger=$(realpath -e "${2:?}") || exit 2; shift ;;
    -h | --help) sed -n '2,3s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "kernel-vm.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$memledger" ] || { echo "kernel-vm.sh: --memledger BIN is needed" >&2; exit 2; }
boot=${MEMLEDGER_SHARED:-$here/../../shared}/vm/boot.sh
skip() { echo "skip kernel-vm ($1)"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
[ -f "$boot" ] || skip "no $boot"
command -v qemu-system-x86_64 >/dev/null || skip "qemu-system-x86_64 is not installed"
lab=$(mktemp -d "${TMPDIR:-/tmp}/memledger-vm.XXXXXX") || exit 2
trap 'rm -rf "$lab"' EXIT

# The guest sees this machine's root at /host; there the command must find the guest's own /proc.
cat >"$lab/run.sh" <<GUEST
for module in crc16 mbcache jbd2 ext4 zsmalloc zram lableak; do insmod /lib/mod/\$module.ko; done
mount -t proc proc /host/proc
memledger() { chroot /host "$memledger" "\$@"; }
# Another one waits all the while, so that the pages of the program's file are in the cache in all readings.
sleep 200 | memledger allocinfo - >/dev/null 2>&1 &
sleep 2
cat /proc/allocinfo >/out/before
memledger allocinfo --kernel --top 10 --raw >/out/top || echo "exit status \$?" >&2
memledger allocinfo --kernel --filter module=lableak --raw >/out/lableak || echo "exit status \$?" >&2
memledger allocinfo --kernel --top 10 >/out/table || echo "exit status \$?" >&2
cat /proc/allocinfo >/out/after
GUEST
VM_TIMEOUT=240 "$boot" "$lab" >"$lab/console" 2>&1 </dev/null
if [ "$(cat "$lab/run.rc" 2>/dev/null)" != 0 ]; then
    tail -n 5 "$lab/console" "$lab/run.log" 2>/dev/null | cut -c 1-300
    echo "FAIL kernel-vm (the guest's script did not end well)"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
cat "$lab/run.log"
cat "$lab/table"
python3 - "$lab" <<'PYTHON'
import pathlib
import sys

lab = pathlib.Path(sys.argv[1])


def rows(name):
    """(bytes, rest of the line without numbers), in the order of the file"""
    lines = [line.split(None, 2) for line in (lab / name).read_text().splitlines()]
    return [(int(words[0]), words[2].strip()) for words in lines if words and words[0].isdigit()]


def largest(name):
    """As sort -g | tail, but the largest first."""
    return sorted(rows(name), reverse=True)[:10]


passed = failed = 0


def check(what, holds, shown):
    global passed, failed
    passed, failed = passed + holds, failed + (not holds)
    print(f"{'ok  ' if holds else 'FAIL'} kernel-vm: {what}" + ("" if holds else f": {shown}"))


top, before, after = rows("top"), largest("before"), largest("after")
check("ten rows, the largest first", len(top) == 10 and top == sorted(top, key=lambda r: -r[0]), top)
# Counters move while they are read three times; a row may leave the ten.
names = {name for _, name in top}
missing = min((names - {n for _, n in b} for b in (before, after)), key=len)
check("the same ten as sort -g | tail, but for one at most", len(missing) <= 1, missing)
low, high = {}, {}
for moment in ("before", "after"):
    for size, name in rows(moment):
        low[name] = min(low.get(name, size), size)
        high[name] = max(high.get(name, size), size)
# Whoever reads is memory, too: a program's own pages are there only while it reads, and `cat` has fewer than memledger.
OWN = 512 * 1024
wrong = [(size, name) for size, name in top if name not in low or not low[name] * 0.95 <= size <= high[name] * 1.05 + OWN]
check("sizes between those before and after", not wrong, wrong)
module = [row for row in rows("before") if "[lableak]" in row[1]]
check("rows of a module, exactly", len(module) > 4 and rows("lableak") == module, (module, rows("lableak")))
print(f"{passed} passed, {failed} failed, 0 skipped")
sys.exit(1 if failed else 0)
PYTHON
