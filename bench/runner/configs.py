"""What is compared: builds of bench/suite, and configurations of a build or of a preload."""
import dataclasses
import os

# The build that stands for "compiled out". One line to change, should the feature get another name.
COMPILED_OUT = ("ledger",)

# name -> (cargo features, flags for rustc)
BUILDS = {
    "system": ((), ""),
    "mimalloc": (("mimalloc",), ""),
    "jemalloc": (("jemalloc",), ""),
    "snmalloc": (("snmalloc",), ""),
    "out": (COMPILED_OUT, ""),
    "tags": (("tags",), ""),
    "sites": (("sites",), ""),
    "jemalloc-prof": (("jemalloc-prof",), ""),
    "dhat": (("dhat",), ""),
    # Records nothing without frame pointers.
    "mod-alloc": (("mod-alloc",), "-Cforce-frame-pointers=yes"),
}


@dataclasses.dataclass(frozen=True)
class Config:
    """A build or preload with its environment. `slow`: by how much its work is cut in timings; 1 for what is as fast as others."""

    name: str
    build: str = "system"
    preload: str = ""
    env: tuple = ()
    slow: int = 1
    wrap: tuple = ()
    about: str = ""


def _ledger(name, build, word, about):
    return Config(name, build, env=(("MEMLEDGER", word),), about=about)


def _site(n):
    return _ledger(f"sites{n}", "sites", f"1,depth={n}", f"on, charged to call stacks of {n}")


MIMALLOC, JEMALLOC, TCMALLOC = "libmimalloc.so.2", "libjemalloc.so.2", "libtcmalloc_minimal.so.4"
OWN, OWN_OUT = "libmemledger_preload.so", "libmemledger_preload_out.so"

# Rust programs with the allocator linked (tcmalloc has no crate and is preloaded).
LINKED = [
    Config("glibc", about="the C library's malloc"),
    Config("glibc-again", about="the same once more: what noise there is"),
    Config("mimalloc", "mimalloc"),
    Config("jemalloc", "jemalloc"),
    Config("snmalloc", "snmalloc"),
    Config("tcmalloc", preload=TCMALLOC, about="gperftools', preloaded"),
    Config("out", "out", about="memledger, profiling compiled out"),
    _ledger("never", "tags", "never", "compiled in with hooks, off for good"),
    _ledger("off", "tags", "0", "compiled in with hooks, switched off"),
    _ledger("tags", "tags", "1", "on, charged to tags"),
    _site(1), _site(4), _site(8), _site(16),
    _ledger("tags-2byte", "tags", "1,compressed", "on, charged to tags, cells of 2 bytes"),
    Config("je-prof-19", "jemalloc-prof", env=(("_RJEM_MALLOC_CONF", "prof:true,lg_prof_sample:19"),), about="jemalloc, a sample each 512 KiB"),
    Config("je-prof-all", "jemalloc-prof", env=(("_RJEM_MALLOC_CONF", "prof:true,lg_prof_sample:0"),), slow=200, about="jemalloc, every allocation"),
    Config("dhat", "dhat", slow=100, about="dhat-rs"),
    Config("mod-alloc", "mod-alloc", slow=5, about="mod-alloc with backtraces, frame pointers"),
]


def _pre(name, lib, word="", **more):
    return Config(name, preload=lib, env=(("MEMLEDGER", word),) if word else (), **more)


# Unmodified programs under a preload. There are no tags in them: depth 1 is the nearest, a tag for each place that calls malloc.
PRELOADED = [
    Config("glibc", about="no preload"),
    Config("glibc-again"),
    _pre("mimalloc", MIMALLOC),
    _pre("jemalloc", JEMALLOC),
    _pre("tcmalloc", TCMALLOC),
    _pre("out", OWN_OUT, about="memledger, profiling compiled out"),
    _pre("never", OWN, "never"),
    _pre("off", OWN, "0"),
    _pre("sites1", OWN, "1,depth=1"),
    _pre("sites4", OWN, "1,depth=4"),
    _pre("sites8", OWN, "1,depth=8"),
    _pre("sites16", OWN, "1,depth=16"),
]
HEAVY = [
    Config("heaptrack", wrap=("heaptrack", "-o", "heaptrack-out"), slow=10),
    Config("valgrind-dhat", wrap=("valgrind", "--tool=dhat", "--dhat-out-file=/dev/null", "-q"), slow=100),
]


def named(configs, names):
    return [c for c in configs if c.name in names]


def find_library(name, own):
    """Path of a preload, or None: those of the system, or in the folder `own`."""
    for folder in (own, "/usr/lib/x86_64-linux-gnu", "/usr/local/lib"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return os.path.realpath(path)
    return None
