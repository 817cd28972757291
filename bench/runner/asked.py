"""What was asked of memledger, against what was measured: each row is computed from the figures, none is written down.

A row is (what, asked, measured, verdict). The verdict is "met", "missed by …" or "not measured".
"""
import math

from .stats import median
from .table import number, ratio

PRELOAD_SET = ("sqlite", "python", "redis", "gcc", "clang", "rg")
MICRO_SET = ("pair", "calls", "batch", "live100k", "live5m", "prodcons", "realloc", "regrow", "page", "large", "aligned", "calloc", "threads", "larson", "xmalloc", "pair2")


def verdict(pairs, unit="", relative=False):
    """pairs: (measured, at most). Missed by the largest excess; `relative` gives it in percent of the limit."""
    if any(math.isnan(m) for m, _ in pairs):
        return "not measured"
    over = [(m / most - 1 if relative else m - most, m) for m, most in pairs if m > most]
    if not over:
        return "met"
    worst = max(over)[0]
    return f"missed by {worst * 100:.1f} %" if relative else f"missed by {number(worst, 2)}{unit}"


def _pair(d):
    instructions = d.difference("counts", "pair", "tags", "out", "instructions")[1]
    ns = d.difference("micro", "pair", "tags", "out", "ns")[1]
    words = [verdict([(instructions, 12)], " instructions"), verdict([(ns, 1.2)], " ns")]
    joined = words[0] if words[0] == words[1] else f"instructions: {words[0]}; time: {words[1]}"
    return ("tags over compiled out, malloc/free pair", "+12 instructions, +1.2 ns", f"{instructions:+.1f} instructions, {ns:+.2f} ns", joined)


def _kernel_loop(d):
    rounds = d.of("micro", "pair", "glibc", "ns")
    tags, off = d.of("micro", "pair", "tags", "ns"), d.of("micro", "pair", "off", "ns")
    share = median((tags[r] - off[r]) / rounds[r] for r in rounds if r in tags and r in off) * 100
    own = (d.ratio("micro", "pair", "tags", "off", "ns")[1] - 1) * 100
    return ("the kernel patchset's loop, tags over off", "+6.4 % of glibc's loop", f"{share:+.1f} % of glibc's, {own:+.1f} % of our own", verdict([(share, 6.4)], " points"))


def _off(d):
    instructions = d.difference("counts", "pair", "off", "out", "instructions")[1]
    low, ns, _ = d.difference("micro", "pair", "off", "out", "ns")
    noise = abs(d.ratio("micro", "pair", "glibc-again", "glibc", "ns")[1] - 1)
    share = d.ratio("micro", "pair", "off", "out", "ns")[1] - 1
    # Time counts as measurable if it is more than 1 % and more than glibc differs from itself, in three rounds of four.
    measurable = low > 0 and share > max(0.01, noise)
    words = verdict([(instructions, 2)], " instructions")
    if math.isnan(ns):
        words = "not measured"
    elif measurable:
        words = ("" if words == "met" else words + "; ") + f"time missed by {ns:.2f} ns"
    return ("off over compiled out", "+2 instructions, no measurable time", f"{instructions:+.1f} instructions, {ns:+.2f} ns ({share * 100:+.1f} %)", words)


def _sites(d):
    limits = {"sites1": 2, "sites4": 8, "sites8": 20}
    calls = [d.difference("micro", "calls", c, "tags", "ns")[1] for c in limits]
    same = [d.difference("micro", "pair", c, "tags", "ns")[1] for c in limits]
    join = lambda v: " / ".join(f"{x:+.1f}" for x in v)
    return ("sites N = 1 / 4 / 8 over tags, 16 changing stacks (in brackets: one stack)", "+2 / +8 / +20 ns", f"{join(calls)} ns ({join(same)})",
            verdict(list(zip(calls, limits.values())), " ns"))


def _page(d):
    r = d.ratio("micro", "page", "tags", "out", "ns")[1]
    return ("page path, 4 KiB to 1 MiB, tags over compiled out", "+5.5 %", f"{(r - 1) * 100:+.1f} %", verdict([((r - 1) * 100, 5.5)], " points"))


def _mean(d, what, group, config, metric, limits, workloads=None, besides=()):
    """A geometric mean over each base of `limits`. `besides` are workloads without which it is shown as well: glibc maps large
    blocks anew each time, and a few ratios of 0.01 make any mean look good."""
    got = {base: d.geomean(group, config, base, metric, workloads) for base in limits}
    asked = " / ".join(f"{x:.2f}" for x in limits.values())
    of = workloads or d.workloads(group)
    shown = " / ".join(ratio(m) for m, _ in got.values()) + f" ({min(n for _, n in got.values())} of {len(of)} workloads)"
    if besides:
        rest = [w for w in workloads if w not in besides]
        shown += f"; {' / '.join(ratio(d.geomean(group, config, b, metric, rest)[0]) for b in limits)} without {' and '.join(besides)}"
    return (f"{what}, over {' / '.join(limits)}", asked, shown, verdict([(got[b][0], m) for b, m in limits.items()], relative=True))


def _start(d):
    r = d.ratio("startup", "true", "sites4", "mimalloc", "wall_us")[1]
    return ("start of `true` under the preload, over mimalloc's", "1.10", ratio(r), verdict([(r, 1.10)], relative=True))


def overhead(d, config):
    """Resident over requested bytes of the live set, less 1, in percent."""
    requested, resident = (d.median("memory", "live", config, m) for m in ("requested", "resident"))
    return (resident / requested - 1) * 100


def _resident(d):
    four, two = overhead(d, "tags"), overhead(d, "tags-2byte")
    small = "not there yet" if math.isnan(two) else f"{two:+.1f} %"
    words = verdict([(four, 12)], " points")
    words += "; 2-byte: " + verdict([(two, 9)], " points") if not math.isnan(four) else ""
    return ("RSS over requested, live objects of 8..240 B, 4-byte cells / 2-byte", "+12 % / +9 %", f"{four:+.1f} % / {small}", words)


def _threads(d):
    one, two = d.of("micro", "pair2", "tags", "one_ns"), d.of("micro", "pair2", "tags", "ns")
    scale = median(one[r] / two[r] for r in one if r in two)
    time = d.ratio("micro", "prodcons", "tags", "mimalloc", "ns")[1]
    if math.isnan(scale + time):
        words = "not measured"
    else:
        missed = [f"pairs: missed by {1.95 - scale:.2f}x"] if scale < 1.95 else []
        missed += [f"producer/consumer: {verdict([(time, 1.10)], relative=True)}"] if time > 1.10 else []
        words = "; ".join(missed) or "met"
    return ("two threads over one, throughput of pairs / producer-consumer, time over mimalloc", "at least 1.95x / 1.10", f"{ratio(scale)}x / {ratio(time)}", words)


def left(d, config, when="second"):
    """Resident bytes after the spike was freed, in percent of the peak."""
    return d.median("memory", "spike", config, when) / d.median("memory", "spike", config, "peak") * 100


def _spike(d):
    share = left(d, "tags")
    return ("RSS left a second after a spike of small objects was freed, of the peak", "5 %", f"{share:.1f} %", verdict([(share, 5)], " points"))


def rows(d):
    """All rows, in the order in which they were asked."""
    return [
        _pair(d), _kernel_loop(d), _off(d), _sites(d), _page(d),
        _mean(d, "tags, geometric mean of the micro set", "micro", "tags", "ns", {"mimalloc": 1.00, "jemalloc": 1.05, "glibc": 0.70}, MICRO_SET, ("page", "large")),
        _mean(d, "tags, geometric mean of the Rust programs (CPU)", "macro", "tags", "cpu", {"mimalloc": 1.03, "glibc": 0.92}),
        _mean(d, "sites N = 4, geometric mean of the preload set (user CPU)", "preload", "sites4", "user", {"glibc": 1.00, "mimalloc": 1.06}, PRELOAD_SET),
        _start(d), _resident(d), _threads(d), _spike(d),
    ]


HEAD = ["what", "asked, at most", "measured", "verdict"]


def clean(row):
    """nan is no figure to show."""
    return tuple("–" if "nan" in c and i == 2 and not any(ch.isdigit() for ch in c) else c.replace("+nan", "–").replace("nan", "–") for i, c in enumerate(row))
