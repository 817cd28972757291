"""The groups of measurements: which workloads, how long, and how each is run under each configuration."""
import dataclasses
import hashlib
import os
import re
import shutil
import subprocess

from . import configs
from .lab import Failed, run

# Operations of a run: full, quick, smoke. About 0.3 s, 0.1 s and some milliseconds with a good allocator.
MICRO = {
    "pair": (30_000_000, 6_000_000, 300_000),
    "calls": (15_000_000, 3_000_000, 150_000),
    "batch": (15_000_000, 3_000_000, 150_000),
    "live100k": (5_000_000, 1_000_000, 50_000),
    "live5m": (5_000_000, 0, 0),
    "prodcons": (5_000_000, 1_000_000, 50_000),
    "realloc": (2_000_000, 500_000, 20_000),
    "regrow": (2_000_000, 500_000, 20_000),
    "page": (2_000_000, 300_000, 10_000),
    "large": (100_000, 20_000, 500),
    "aligned": (10_000_000, 2_000_000, 100_000),
    "calloc": (10_000_000, 2_000_000, 100_000),
    "threads": (20_000, 4_000, 200),
    "larson": (5_000_000, 1_000_000, 50_000),
    "xmalloc": (5_000_000, 1_000_000, 50_000),
    "pair2": (60_000_000, 12_000_000, 600_000),
}
# The page path of the kernel's table ends at 1 MiB (`page`); `large` is 2 and 4 MiB.
COUNTED = {"pair": (30_000, 180_000), "calls": (30_000, 180_000), "batch": (30_000, 180_000), "calloc": (30_000, 180_000), "page": (4_500, 27_000)}
# Sizes of the inputs: full, quick, smoke. json and words in bytes, ast in functions, tree in entries.
MACRO = {"json": (20 << 20, 4 << 20, 1 << 18), "words": (20 << 20, 4 << 20, 1 << 18), "tree": (200_000, 40_000, 2_000), "ast": (15_000, 3_000, 100)}
PRELOAD = ["sqlite", "python", "redis", "gcc", "clang", "rg"]


@dataclasses.dataclass
class Plan:
    """How much is done."""

    size: int  # 0 full, 1 quick, 2 smoke
    rounds: int
    heavy: bool = False
    only: tuple = ()  # configurations, if not all
    workloads: tuple = ()  # workloads, if not all

    def configs(self, all_):
        return [c for c in all_ if not self.only or c.name in self.only]

    def wants(self, workload):
        return not self.workloads or workload in self.workloads


def _figures(text, names):
    words = text.decode().split()
    if len(words) != len(names):
        raise Failed(f"unexpected output {text[:100]!r}")
    return {n: float(w) for n, w in zip(names, words) if n}


def _slow(use):
    return [c.name for c in use if c.slow > 1]


def micro(lab, data, plan):
    """ns an operation of bench/suite's micro workloads, each allocator linked."""
    def one(config, name, ops):
        ops = max(ops // config.slow, 1500 if name != "threads" else 50)

        def measure():
            program, env = lab.program(config.build, "micro"), lab.env(config)
            figures = _figures(run([program, name, str(ops)], env, lab.work)[0], ["", "ns"])
            if name == "pair2":
                # One thread right after two: what they are compared with.
                figures |= _figures(run([program, "pair", str(ops // 2)], env, lab.work)[0], ["", "one_ns"])
            return figures
        return measure

    everything = plan.configs([c for c in configs.LINKED if lab.supports(c)])
    for name, sizes in MICRO.items():
        ops = sizes[plan.size]
        if ops and plan.wants(name):
            # A live set of 5 million takes the slow ones minutes to make.
            use = [c for c in everything if name != "live5m" or c.slow == 1]
            lab.rounds(data, "micro", name, {c.name: one(c, name, ops) for c in use}, plan.rounds, plan.size < 2, _slow(use))


def cmicro(lab, data, plan):
    """The same loop in C, under each preload: the cost with the calls of malloc and free through the dynamic linker."""
    def one(config, name, ops):
        return lambda: _figures(run([str(lab.bin / "cmicro"), name, str(ops)], lab.env(config), lab.work)[0], ["", "ns"])

    for name in ("pair", "calls"):
        if plan.wants(name):
            runs = {c.name: one(c, name, MICRO[name][plan.size]) for c in plan.configs(configs.PRELOADED)}
            lab.rounds(data, "cmicro", name, runs, plan.rounds, plan.size < 2)


def counts(lab, data, plan):
    """Instructions an operation, by callgrind: the slope between two lengths, so that start-up is out. They need no rounds."""
    def collected(config, name, ops):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", lab.program(config.build, "micro"), name, str(ops), "--plain"]
        out, err = run(command, lab.env(config), lab.work)
        found = re.search(rb"Collected : (\d+)", err)
        if not found:
            raise Failed("callgrind printed no count")
        return int(out.split()[0]), int(found[1])

    def one(config, name, lengths):
        def slope():
            (n1, i1), (n2, i2) = (collected(config, name, n) for n in lengths)
            return {"instructions": (i2 - i1) / (n2 - n1)}
        return slope

    use = plan.configs([c for c in configs.LINKED if c.slow == 1 and c.name != "glibc-again" and lab.supports(c)])
    if plan.size == 2 and not plan.only:
        use = configs.named(use, ("glibc", "out", "off", "tags"))
    for name, lengths in COUNTED.items():
        if plan.wants(name) and (plan.size < 2 or name == "pair"):
            lab.rounds(data, "counts", name, {c.name: one(c, name, lengths) for c in use}, 1, False)


def _launched(lab, config, command, cwd, env):
    """Runs a command by launch.c: its standard output, and wall, user, sys in seconds and peak RSS in KiB."""
    report = lab.work / "launch.txt"
    report.unlink(missing_ok=True)
    out, err = run([str(lab.bin / "launch"), str(report), *config.wrap, *command], env, cwd)
    figures = _figures(report.read_bytes(), ["wall", "user", "sys", "rss_kib", "status"])
    status = int(figures.pop("status"))
    if status:
        raise Failed(f"status {status} (over 128: by a signal): {(err or out).decode(errors='replace').strip()[-300:]}")
    return out, figures


def macro(lab, data, plan):
    """CPU seconds of the small Rust programs, and their peak RSS. The result must be the same under each allocator."""
    generate = lab.program("system", "macros")
    for name, sizes in MACRO.items():
        if not plan.wants(name):
            continue
        size, file = str(sizes[plan.size]), str(lab.work / f"{name}.txt")
        if name != "tree":
            run([generate, "generate", name, file, size], lab.env(None), lab.work)
        sums = set()

        def one(config, name=name, words=(size if name == "tree" else file, "1"), sums=sums):
            def measure():
                env = lab.env(config, "LAUNCH_PRELOAD")
                out, figures = _launched(lab, config, [lab.program(config.build, "macros"), name, *words], lab.work, env)
                checksum, cpu, wall = out.split()
                sums.add(checksum)
                if len(sums) > 1:
                    raise Failed(f"checksum {checksum.decode()} differs from others")
                return {"cpu": float(cpu) / 1e9, "wall": float(wall) / 1e9, "rss_kib": figures["rss_kib"]}
            return measure

        # The slow ones are as slow here as they are: a smaller input would be another work.
        use = plan.configs([c for c in configs.LINKED if lab.supports(c)])
        lab.rounds(data, "macro", name, {c.name: one(c) for c in use}, plan.rounds, plan.size < 2, _slow(use))


def _workload(lab, name, scale):
    """(folder, command) of a program under the preload, or None with the reason said."""
    folder = lab.work / name
    if name == "rg":
        folder.mkdir(exist_ok=True)
        if not shutil.which("rg"):
            return lab.fail("preload", name, "rg is not installed")
        return folder, ["rg", "-j2", "-c", "alloc|struct [a-z]+_t|return", *["/usr/include"] * scale]
    script = [str(__file__).replace("groups.py", "workload.sh")]
    tell = lambda *words: subprocess.run(script + list(words), env=lab.env(None), capture_output=True, check=True).stdout
    lack = tell("lacks", name).decode().strip()
    if lack:
        return lab.fail("preload", name, lack)
    shutil.rmtree(folder, ignore_errors=True)
    tell("prepare", name, str(folder), str(scale))
    return folder, [w.decode() for w in tell("command", name, str(folder)).split(b"\0")[:-1]]


def preload(lab, data, plan):
    """User CPU and peak RSS of programs as they are installed. What they print must be the same under each preload."""
    wanted = ("glibc", "glibc-again", "mimalloc", "jemalloc", "tcmalloc", "out", "off", "sites1", "sites4", "sites16")
    use = plan.configs(configs.named(configs.PRELOADED, wanted) + (configs.HEAVY if plan.heavy else []))
    for name in PRELOAD:
        got = _workload(lab, name, (4, 2, 1)[plan.size]) if plan.wants(name) else None
        if not got:
            continue
        folder, command = got
        printed = {}

        def one(config, name=name, folder=folder, command=command, printed=printed):
            def measure():
                env = lab.env(config, "LAUNCH_PRELOAD")
                if name == "redis" and "LAUNCH_PRELOAD" not in env:
                    # Debian's redis links jemalloc; this puts the C library in front of it.
                    env["LAUNCH_PRELOAD"] = configs.find_library("libc.so.6", lab.bin)
                out, figures = _launched(lab, config, command, folder, env)
                digest = hashlib.sha256(b"\n".join(sorted(out.splitlines()))).hexdigest()
                if not config.wrap and printed.setdefault("all", digest) != digest:
                    raise Failed("what it printed differs from others")
                return figures
            return measure

        lab.rounds(data, "preload", name, {c.name: one(c) for c in use}, plan.rounds, plan.size < 2, _slow(use))


def memory(lab, data, plan):
    """Resident bytes: at the start, for a million live objects, and after a spike of 1 GiB (quick: 256 MiB) was freed."""
    objects, spike = ((1_000_000, 1 << 30), (1_000_000, 1 << 28), (100_000, 1 << 26))[plan.size]
    linked = [c for c in configs.LINKED if c.slow < 100 and c.name != "glibc-again" and lab.supports(c)]
    own = [dataclasses.replace(c, name="preload-" + c.name) for c in configs.named(configs.PRELOADED, ("out", "sites4"))]

    def one(config, words):
        def measure():
            out, _ = run([lab.program(config.build, "memory"), *words], lab.env(config), lab.work)
            return {name: float(value) for name, value in (line.split() for line in out.decode().splitlines())}
        return measure

    for name, words in {"start": ["start"], "live": ["live", str(objects)], "spike": ["spike", str(spike)]}.items():
        if plan.wants(name):
            runs = {c.name: one(c, words) for c in plan.configs(linked + own)}
            lab.rounds(data, "memory", name, runs, max(1, min(plan.rounds, 3)), False)


def startup(lab, data, plan):
    """Starts of `true` under each preload: wall and CPU microseconds, peak RSS."""
    n = (300, 100, 10)[plan.size]
    true = os.path.realpath(shutil.which("true"))

    def one(config):
        command = [str(lab.bin / "starts"), str(n), true]
        return lambda: _figures(run(command, lab.env(config, "START_PRELOAD"), lab.work)[0], ["wall_us", "user_us", "sys_us", "rss_kib"])

    runs = {c.name: one(c) for c in plan.configs(configs.PRELOADED)}
    lab.rounds(data, "startup", "true", runs, plan.rounds, plan.size < 2)


# What the words of the command line stand for.
GROUPS = {"micro": (micro, counts, cmicro), "macro": (macro,), "preload": (preload,), "memory": (memory,), "startup": (startup,)}
