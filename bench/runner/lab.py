"""Builds and runs: the folder with all programs, one measured command, and rounds over configurations."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from . import configs

BENCH = pathlib.Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
# What would change an allocator's behaviour behind our back.
HIDDEN = ("LD_PRELOAD", "MEMLEDGER", "GLIBC_TUNABLES", "MALLOC_CONF", "_RJEM_MALLOC_CONF", "LAUNCH_PRELOAD", "START_PRELOAD")
LIMIT = 600


class Failed(Exception):
    """A run that gave no figure; says why."""


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def environment(config=None, own=None, variable="LD_PRELOAD"):
    """The environment of a configuration. The preload goes to `variable`, for a launcher to pass on."""
    env = {k: v for k, v in os.environ.items() if k not in HIDDEN and not k.startswith("MALLOC_")}
    if config:
        env.update(config.env)
        if config.preload:
            path = configs.find_library(config.preload, own)
            if not path:
                raise Failed(f"{config.preload} is not installed")
            env[variable] = path
    return env


def run(command, env, cwd, limit=LIMIT):
    """Standard output and standard error as bytes. Failed if the status is not 0 or the time is over."""
    p = subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = p.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
        raise Failed(f"over {limit} s") from None
    if p.returncode:
        raise Failed(f"status {p.returncode}: {err.decode(errors='replace').strip()[-200:]}")
    return out, err


class Lab:
    """Where everything built is, and where programs run."""

    def __init__(self, target):
        self.target = pathlib.Path(target)
        self.bin = self.target / "bench"
        self.work = self.target / "bench-work"
        self.failures = []
        for d in (self.bin, self.work):
            d.mkdir(parents=True, exist_ok=True)

    def program(self, build, name):
        return str(self.bin / build / name)

    def env(self, config, variable="LD_PRELOAD"):
        return environment(config, self.bin, variable)

    def build(self, builds):
        """Compiles what is needed. A peer that does not build is left out, and said."""
        self._cargo(ROOT, "preload-out", ["-p", "memledger-preload", "--no-default-features"], "")
        shutil.copy(self.target / "preload-out/release/libmemledger_preload.so", self.bin / configs.OWN_OUT)
        self._cargo(ROOT, "preload", ["-p", "memledger-preload"], "")
        shutil.copy(self.target / "preload/release/libmemledger_preload.so", self.bin / configs.OWN)
        c, own = BENCH / "suite/c", ["gcc", "-O2", "-fomit-frame-pointer", "-o"]
        for command in ([*own, self.bin / "cmicro", c / "cmicro.c"], [*own, self.bin / "starts", "-static", c / "starts.c"],
                        [*own, self.bin / "launch", "-static", BENCH / "launch.c"]):
            subprocess.run(command, check=True)
        for name in builds:
            features, flags = configs.BUILDS[name]
            target = "suite-flags" if flags else "suite"
            try:
                self._cargo(BENCH / "suite", target, ["--bins", "--features", ",".join(features)], flags)
            except subprocess.CalledProcessError:
                self.fail("build", name, Failed("it does not build"))
                continue
            (self.bin / name).mkdir(exist_ok=True)
            for p in ("micro", "macros", "memory"):
                shutil.copy(self.target / target / "release" / p, self.bin / name / p)

    def _cargo(self, where, target, words, flags):
        say("building", " ".join(words))
        env = {**environment(), "CARGO_TARGET_DIR": str(self.target / target)}
        if flags:
            env["RUSTFLAGS"] = flags
        subprocess.run(["cargo", "build", "-q", "--release", "-j2", *words], cwd=where, env=env, check=True)

    def fail(self, what, config, why):
        # Results are kept: without the place of this checkout.
        line = f"{what}: {config}: {why}".replace(f"{ROOT}/", "")
        self.failures.append(line)
        say("FAILED", line)

    def supports(self, config):
        """Whether memledger knows the words of this configuration: it says on stderr what it does not support."""
        words = dict(config.env).get("MEMLEDGER", "")
        if "," not in words:
            return True
        try:
            return not run([self.program("sites", "memory"), "start"], self.env(config), self.work)[1].strip()
        except (Failed, FileNotFoundError):
            return False

    def rounds(self, data, group, workload, runs, rounds, warm=True, few=()):
        """Runs each of `runs` (config name -> function giving {metric: value}) in turn, `rounds` times; every second round
        backwards, so that no place in the order is favoured. Those in `few` have three rounds at most, and no warming up. What
        fails once is not tried again."""
        begin = time.monotonic()
        broken = set()
        for r in range(0 if warm else 1, rounds + 1):
            names = [n for n in runs if n not in few or 1 <= r <= 3]
            for name in names if r % 2 else reversed(names):
                if name in broken:
                    continue
                try:
                    for metric, value in runs[name]().items():
                        if r:
                            data.add(group, workload, name, r, metric, value)
                except (Failed, FileNotFoundError, ValueError) as why:
                    broken.add(name)
                    self.fail(f"{group} {workload}", name, why)
        say(f"{group} {workload}: {time.monotonic() - begin:.1f} s")


def machine(command_line):
    """What a result says of the machine: lines."""
    def line(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return "not installed"

    memory = next((l.split()[1] for l in open("/proc/meminfo") if l.startswith("MemTotal")), "0")
    packages = ["libmimalloc2.0", "libjemalloc2", "libtcmalloc-minimal4", "valgrind", "heaptrack", "sqlite3", "redis-server", "ripgrep"]
    versions = line("dpkg-query", "-W", "-f", "${Package} ${Version}, ", *packages).rstrip(", ")
    crates = []
    lock = (BENCH / "suite/Cargo.lock").read_text().split("\n[[package]]\n")
    for entry in lock:
        fields = dict(l.split(" = ", 1) for l in entry.splitlines() if " = " in l and not l.startswith(" "))
        name = fields.get("name", "").strip('"')
        if name in ("mimalloc", "libmimalloc-sys", "tikv-jemallocator", "tikv-jemalloc-sys", "snmalloc-rs", "snmalloc-sys", "dhat", "mod-alloc"):
            crates.append(f"{name} {fields.get('version', '').strip(chr(34))}")
    return line(str(BENCH / "machine.sh")).splitlines() + [
        f"memory: {int(memory) / 2**20:.1f} GiB",
        f"compilers: {line('rustc', '--version')}; gcc {line('gcc', '-dumpfullversion')}; {line('clang', '--version').splitlines()[0]}",
        f"packages: {versions}",
        f"crates: {', '.join(crates)}",
        f"command: {command_line}",
    ]
