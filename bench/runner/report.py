"""Tables and the plot of a result: report.txt beside the figures, and the generated parts of docs/benchmarks.md."""
import math
import re

from . import asked, configs, plot, table
from .stats import quartiles
from .table import number, ratio

# Shown in the document; the text report has all.
SHOWN = ["tags", "sites4", "mimalloc", "jemalloc", "snmalloc", "tcmalloc"]


def _ordered(names, known):
    order = [c.name for c in known]
    return sorted(names, key=lambda n: order.index(n) if n in order else len(order))


def ratios(d, group, metric, base, known, only=None):
    """A table of medians of the base and ratios to it; the last line is the geometric mean."""
    names = [c for c in _ordered(d.configs(group), known) if c != base and (only is None or c in only)]
    works = [w for w in d.workloads(group) if d.of(group, w, base, metric)]
    if not names or not works:
        return None
    body = []
    for w in works:
        body.append([w, number(d.median(group, w, base, metric)), *(ratio(d.ratio(group, w, c, base, metric)[1]) for c in names)])
    body.append(["geometric mean", "", *(ratio(d.geomean(group, c, base, metric)[0]) for c in names)])
    return [group, f"{base}, {metric}", *names], body


def spreads(d, group, metric, known):
    """Medians with quartiles: a line for each workload and configuration."""
    body = []
    for w in d.workloads(group):
        for c in _ordered(d.configs(group), known):
            values = list(d.of(group, w, c, metric).values())
            if values:
                body.append([f"{w} {c}", *(number(x) for x in quartiles(values)), len(values)])
    return (["workload, configuration", "first quartile", f"median {metric}", "third quartile", "rounds"], body) if body else None


def kernel(d):
    """The table of the kernel patchset, with our configurations: the loop and the page path over compiled out, and its own figures."""
    theirs = {"out": ("", ""), "never": ("", ""), "off": ("+0.4 %", "+0.6 %"), "tags": ("+6.4 %", "+40.0 % (5.5 % compressed)")}
    body = []
    for c in ["out", "never", "off", "tags", "tags-2byte", "sites1", "sites4", "sites8", "sites16"]:
        row = [c]
        for w in ("pair", "page"):
            ns = d.median("micro", w, c, "ns")
            if math.isnan(ns):
                break
            instructions = d.median("counts", w, c, "instructions")
            more = (d.ratio("micro", w, c, "out", "ns")[1] - 1) * 100
            row += [number(ns), f"{more:+.1f} %" if c != "out" else "", number(instructions)]
        else:
            body.append([*row, *theirs.get(c, ("", ""))])
    head = ["memledger", "pair, ns", "over out", "instructions", "page, ns", "over out", "instructions", "kernel's kmalloc", "kernel's pages"]
    return (head, body) if body else None


def memory(d):
    """Resident memory: over requested, metadata an object against compiled out, start, and what is left of a spike."""
    body = []
    known = configs.LINKED
    for c in _ordered(d.configs("memory"), known):
        objects, resident = (d.median("memory", "live", c, m) for m in ("objects", "resident"))
        # The preload's build without profiling is the measure for the preload.
        base = d.median("memory", "live", "preload-out" if c.startswith("preload") else "out", "resident")
        own = c in ("never", "off", "tags", "tags-2byte", "preload-sites4") or c.startswith("sites")
        metadata = number((resident - base) / objects, 2) if own else ""
        body.append([c, number(asked.overhead(d, c)) + " %", metadata, number(d.median("memory", "start", c, "start") / 1024),
                     *(number(asked.left(d, c, when)) + " %" for when in ("at_once", "second", "later"))])
    head = ["allocator", "RSS over requested", "bytes an object over out", "at start, KiB", "left at once", "after 1 s", "after 1000 more calls"]
    return (head, body) if body else None


def sections(d):
    """[(title, what it says, table)], of what was measured."""
    found = [
        ("Against the kernel's table", "Pair is the loop of the kernel patchset (8 to 240 bytes); page, 4 KiB to 1 MiB.", kernel(d)),
        ("Micro workloads, Rust, allocator linked: time over glibc", "", ratios(d, "micro", "ns", "glibc", configs.LINKED)),
        ("Instructions an operation over glibc (callgrind)", "", ratios(d, "counts", "instructions", "glibc", configs.LINKED)),
        ("The loop in C under a preload: time over glibc", "", ratios(d, "cmicro", "ns", "glibc", configs.PRELOADED)),
        ("Rust programs: CPU over glibc", "User and system time of the work.", ratios(d, "macro", "cpu", "glibc", configs.LINKED)),
        ("Rust programs: peak RSS over glibc", "", ratios(d, "macro", "rss_kib", "glibc", configs.LINKED)),
        ("Programs under a preload: user CPU over glibc", "", ratios(d, "preload", "user", "glibc", configs.PRELOADED)),
        ("Programs under a preload: system CPU over glibc", "", ratios(d, "preload", "sys", "glibc", configs.PRELOADED)),
        ("Programs under a preload: peak RSS over glibc", "", ratios(d, "preload", "rss_kib", "glibc", configs.PRELOADED)),
        ("Start of true: wall time over glibc", "", ratios(d, "startup", "wall_us", "glibc", configs.PRELOADED)),
        ("Start of true: peak RSS over glibc", "", ratios(d, "startup", "rss_kib", "glibc", configs.PRELOADED)),
        ("Memory", "", memory(d)),
    ]
    return [s for s in found if s[2]]


def report_text(d, machine, failures):
    """The whole report as text."""
    out = ["\n".join(machine), ""]
    if failures:
        out += ["failed, and left out:", *("  " + f for f in failures), ""]
    out += ["configurations:", *(f"  {c.name}: {c.about}" for c in configs.LINKED if c.about), ""]
    for title, about, t in sections(d):
        out += [title, *([about] if about else []), table.text(*t)]
    out += ["asked, measured, met", table.text(asked.HEAD, [asked.clean(r) for r in asked.rows(d)])]
    for group, metric, known in (("micro", "ns", configs.LINKED), ("cmicro", "ns", configs.PRELOADED), ("macro", "cpu", configs.LINKED),
                                 ("preload", "user", configs.PRELOADED), ("startup", "wall_us", configs.PRELOADED)):
        t = spreads(d, group, metric, known)
        if t:
            out += [f"{group}: medians and quartiles", table.text(*t)]
    return "\n".join(out)


def plots(d):
    """{file name: SVG}"""
    found = {}
    for file, title, group, metric, names in (
        ("benchmarks-micro.svg", "Time over glibc's (1), micro workloads; left is faster", "micro", "ns", ["tags", "sites4", "mimalloc", "jemalloc", "snmalloc"]),
        ("benchmarks-macro.svg", "CPU over glibc's (1), Rust programs; left is faster", "macro", "cpu", ["tags", "sites4", "mimalloc", "jemalloc", "snmalloc"]),
        ("benchmarks-preload.svg", "User CPU over glibc's (1), programs under a preload; left is faster", "preload", "user", ["sites4", "mimalloc", "jemalloc", "tcmalloc"]),
    ):
        rows = [(w, {c: q for c in names if not math.isnan((q := d.ratio(group, w, c, "glibc", metric))[1])}) for w in d.workloads(group)]
        svg = plot.dots(title, rows, names)
        if svg:
            found[file] = svg
    return found


def parts(d, machine, folder):
    """name -> Markdown, for the marked places of the document."""
    def md(t, left=1):
        return table.markdown(*t, left) if t else "Not in this result.\n"

    return {
        "source": f"From [`{folder}`](../{folder}/report.txt).\n\n" + "".join(f"- {line}\n" for line in machine),
        "asked": table.markdown(asked.HEAD, [asked.clean(r) for r in asked.rows(d)], 4),
        "kernel": md(kernel(d)),
        "micro": md(ratios(d, "micro", "ns", "glibc", configs.LINKED, SHOWN)),
        "macro": md(ratios(d, "macro", "cpu", "glibc", configs.LINKED, SHOWN)),
        "preload": md(ratios(d, "preload", "user", "glibc", configs.PRELOADED, SHOWN)),
        "exact": md(ratios(d, "micro", "ns", "glibc", configs.LINKED, ["tags", "sites4", "sites16", "je-prof-19", "je-prof-all", "dhat", "mod-alloc"])),
        "startup": md(ratios(d, "startup", "wall_us", "glibc", configs.PRELOADED)),
        "memory": md(memory(d)),
    }


def fill(text, found):
    """Replaces what is between `<!-- NAME: generated -->` and `<!-- end -->`. A mark without a part, or the reverse, is a mistake."""
    seen = set()

    def put(m):
        seen.add(m[1])
        if m[1] not in found:
            raise ValueError(f"no generated part {m[1]}")
        return f"<!-- {m[1]}: generated -->\n{found[m[1]]}<!-- end -->"

    out = re.sub(r"<!-- (\w+): generated -->\n.*?<!-- end -->", put, text, flags=re.S)
    if set(found) - seen:
        raise ValueError(f"no place for {', '.join(sorted(set(found) - seen))}")
    return out
