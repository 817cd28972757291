"""Compares memledger's rows with the two second sources: compare.py MEMLEDGER_JSON LOGGER_FILE DHAT_JSON|- KNOWN_TEXT|- TITLE PROGRAM

Stacks are compared by (object, address) of their first frames, so that the names are not part of the test: each of memledger's
top rows is summed over its stacks, and so are the logger's blocks that have one of these stacks. A row is right when the calls are
equal (a loader or thread start may differ by a few: 1 % or 3 calls) and memledger's bytes (slot sizes) are between the
requested bytes and 1.125 times those plus 16 a call. DHAT is compared by function name where symbols exist: what it says of stacks that pass
through the function. Exit status 1 if a row of the top five, or a known function, is wrong, if one of the five is a malloc wrapper
without a name, or if more than 1 % of the logger's bytes have a stack that memledger has not.
"""
import collections
import json
import os
import struct
import sys

TOP = 8
# A function without a name that calls malloc itself and that so many stacks lead to is taken for a malloc wrapper (a guess, but a
# good one): its callers ought to be charged.
MANY = 12


def objname(path):
    return os.path.basename(os.path.realpath(path)) if path.startswith("/") else path


def read_logger(path, program):
    """[(frames, size)] of live blocks; frames are (object, address)."""
    with open(path, "rb") as f:
        data = f.read(32)
        magic, lost, objects, _stacks, blocks, depth = struct.unpack("<QQIIII", data)
        assert magic == 0x6874757274, path
        names = [f.read(256).split(b"\0")[0].decode() for _ in range(256)][:objects]
        names = [program if n == "(program)" else objname(n) for n in names]
        stack = struct.Struct(f"<I{depth}II{depth}Q")
        raw = f.read(stack.size << 16)
        stacks = []
        for s in stack.iter_unpack(raw):
            stacks.append(tuple((names[o], a) for o, a in zip(s[1:1 + s[0]], s[2 + depth:])) if s[0] else None)
        live = [(stacks[s], size) for ptr, size, s, _ in struct.iter_unpack("<QQII", f.read()) if ptr]
        assert len(live) == blocks, (len(live), blocks)
    if lost:
        print(f"  (the logger lost {lost} blocks)")
    return live


def read_memledger(path):
    with open(path) as f:
        rows = max((p for p in json.load(f)["processes"] if p.get("rows")), key=lambda p: p["total"]["bytes"])["rows"]
    for r in rows:
        seen = []
        for fr in r.get("frames") or []:
            if fr["addr"] and not fr["inlined"]:
                seen.append((objname(fr["object"]), fr["addr"]))
        r["key"] = tuple(seen)
    return rows


def read_dhat(path):
    """function -> live bytes of the stacks it is in."""
    if path == "-" or not os.path.exists(path):
        return None
    with open(path) as f:
        d = json.load(f)
    names = []
    for entry in d["ftbl"]:
        text = entry.split(": ", 1)[-1]
        names.append(text.rsplit(" (", 1)[0].split("(")[0])
    out = collections.Counter()
    for pp in d["pps"]:
        for name in {names[i] for i in pp["fs"]}:
            out[name] += pp.get("eb", 0)
    return out


def strip(func):
    return func.split("(")[0].split("<")[0]


def right(calls, size, l_calls, l_size):
    return (abs(calls - l_calls) <= max(3, l_calls // 100)
            and l_size * 0.99 - 4096 <= size <= l_size * 1.135 + 16 * l_calls + 8192)


def callers(rows):
    """function -> how many stacks lead to it, for the charged functions without a name that call malloc themselves."""
    out = collections.defaultdict(set)
    for r in rows:
        at = [f"{o}+{a:#x}" for o, a in r["key"]]
        if at[:1] == [r["func"]]:
            out[r["func"]].add(tuple(at[1:]))
    return {f: len(c) for f, c in out.items()}


def sums(rows, live):
    """[(func, stacks, bytes, calls, logger bytes, logger calls)], largest first, and what is in one source only."""
    depth = max((len(r["key"]) for r in rows), default=1) or 1
    logged = collections.defaultdict(lambda: [0, 0])
    for frames, size in live:
        if frames:
            logged[frames[:depth]][0] += size
            logged[frames[:depth]][1] += 1
    merged, matched = {}, set()
    for r in rows:
        m = merged.setdefault((r["func"], r["module"]), [0, 0, 0, 0, 0])
        m[0] += 1
        m[1] += r["bytes"]
        m[2] += r["calls"]
        if r["key"] in logged and r["key"] not in matched:
            matched.add(r["key"])
            m[3] += logged[r["key"]][0]
            m[4] += logged[r["key"]][1]
    missing = sorted(((v, k) for k, v in logged.items() if k not in matched), reverse=True)
    return sorted(((k[0], *v) for k, v in merged.items()), key=lambda m: -m[2]), missing, depth


def main():
    ours, theirs, dhat_file, known_file, title = sys.argv[1:6]
    program = sys.argv[6]
    rows, live, dhat = read_memledger(ours), read_logger(theirs, program), read_dhat(dhat_file)
    table, missing, depth = sums(rows, live)
    fan_in = callers(rows)
    bad = 0
    print(f"== {title}: {len(rows)} stacks of up to {depth} frames, {sum(r['calls'] for r in rows)} live blocks, "
          f"{sum(r['bytes'] for r in rows)} bytes; logger: {len(live)} blocks, {sum(s for _, s in live)} bytes asked for")
    print(f"  {'function':44} {'memledger bytes':>15} {'calls':>8} {'logger bytes':>15} {'calls':>8} {'dhat bytes':>13}")
    for n, (func, _, size, calls, l_size, l_calls) in enumerate(table[:TOP]):
        ok = right(calls, size, l_calls, l_size)
        bad += not ok and n < 5
        word = "ok" if ok else "DIFFERS"
        if fan_in.get(func, 0) >= MANY:
            bad += n < 5
            word += f", but a malloc wrapper: {fan_in[func]} ways here"
        d = dhat.get(strip(func), dhat.get(func)) if dhat else None
        print(f"  {func[:44]:44} {size:15} {calls:8} {l_size:15} {l_calls:8} {d if d is not None else '-':>13}  {word}")
    left = sum(v[0] for v, _ in missing)
    if missing and left > sum(s for _, s in live) // 100:
        bad += 1
        print(f"  MISSING in memledger: {len(missing)} stacks, {left} bytes; the largest:")
        for v, k in missing[:3]:
            print(f"    {v[0]} bytes {v[1]} calls: " + " < ".join(f"{o}+{a:#x}" for o, a in k))
    if known_file != "-":
        by_func = collections.defaultdict(lambda: [0, 0])
        for func, _, size, calls, *_ in table:
            by_func[func.removesuffix("::{{closure}}").split("::")[-1]][0] += size
            by_func[func.removesuffix("::{{closure}}").split("::")[-1]][1] += calls
        for line in open(known_file):
            word, func, calls, size = line.split()
            got = by_func[func]
            ok = word == "known" and got[1] == int(calls) and int(size) <= got[0] <= int(size) * 1.125 + 16 * int(calls)
            bad += not ok
            print(f"  known: {func:37} {got[0]:15} {got[1]:8} {size:>15} {calls:>8} {'':13}  {'ok' if ok else 'WRONG'}")
    sys.exit(bool(bad))


main()
