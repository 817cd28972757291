//! One reading of the ledgers of a process.

use crate::{Memory, Process, Result};
use std::time::{Duration, SystemTime};

/// Live memory of one index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Live bytes, in slot sizes.
    pub bytes: u64,
    /// Live allocations.
    pub calls: u64,
}

/// A tag that the runtime knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagInfo {
    /// Source file.
    pub file: String,
    /// Function.
    pub func: String,
    /// Object file's name; empty for the executable.
    pub module: String,
    /// Path of the source module.
    pub path: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Its module is loaded.
    pub loaded: bool,
    /// All its allocations could be charged to it.
    pub accurate: bool,
}

/// A node of the context trie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Return address.
    pub ra: u64,
    /// Number of its module record; 0 = none.
    pub module: u32,
    /// Number of the calling frame's node; 0 = root.
    pub parent: u32,
    /// Its module was unloaded.
    pub dead: bool,
}

/// A module record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Lowest address.
    pub start: u64,
    /// End address.
    pub end: u64,
    /// What to subtract from an address to get the file's own.
    pub bias: u64,
    /// Path as the loader has it; empty for the executable.
    pub name: String,
    /// GNU build-id; empty = none.
    pub build_id: Vec<u8>,
    /// It is loaded.
    pub loaded: bool,
}

/// What one runtime of a process accounts.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// Address of its descriptor.
    pub addr: u64,
    /// Profiling is on.
    pub enabled: bool,
    /// Started with `never`: nothing below is filled.
    pub never: bool,
    /// Frames kept of a site.
    pub depth: u32,
    /// Reserved rows, by index (16 of them).
    pub reserved: Vec<Sum>,
    /// Sums of the tags, beside `tags`.
    pub tag_sums: Vec<Sum>,
    /// All tags registered.
    pub tags: Vec<TagInfo>,
    /// Sums of sites with live memory: (node, sum), in order of node.
    pub site_sums: Vec<(u32, Sum)>,
    /// All nodes.
    pub nodes: Vec<NodeInfo>,
    /// All module records.
    pub modules: Vec<ModuleInfo>,
    /// Counts of what was lost, by `memledger_abi::loss`.
    pub losses: [u64; 8],
    /// Bytes used by memledger itself; in no row.
    pub meta_bytes: u64,
    /// Units that kept changing while they were read, or could not be read; what is in them is not in the sums.
    pub torn_units: u64,
    /// Units in use by objects that were read.
    pub units: u64,
}

/// One reading of all ledgers of a process.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The process.
    pub process: Process,
    /// One for each runtime in it (a preloaded library and a linked crate may both be there).
    pub ledgers: Vec<Ledger>,
    /// Sum of all rows.
    pub total: Sum,
    /// When the reading began.
    pub time: SystemTime,
    /// How long it took.
    pub read_time: Duration,
}

impl Ledger {
    /// Return addresses of a node's stack with their module records, innermost first.
    pub fn stack(&self, _node: u32) -> Vec<NodeInfo> {
        todo!()
    }
}

impl Snapshot {
    /// Reads the ledgers of process `pid` without stopping it.
    pub fn read(_pid: u32) -> Result<Self> {
        todo!()
    }

    /// Reads the own process, by the same way.
    pub fn read_self() -> Result<Self> {
        Self::read(std::process::id())
    }

    /// Reads from any memory, for example a core file.
    pub fn read_from(_mem: &dyn Memory, _process: Process) -> Result<Self> {
        todo!()
    }

    /// Counts of what was lost, summed over the ledgers, by `memledger_abi::loss`.
    pub fn losses(&self) -> [u64; 8] {
        todo!()
    }

    /// Bytes that memledger itself uses, summed over the ledgers.
    pub fn meta_bytes(&self) -> u64 {
        self.ledgers.iter().map(|l| l.meta_bytes).sum()
    }

    /// Units that could not be read consistently.
    pub fn torn_units(&self) -> u64 {
        self.ledgers.iter().map(|l| l.torn_units).sum()
    }

    /// Profiling is on in at least one ledger.
    pub fn enabled(&self) -> bool {
        self.ledgers.iter().any(|l| l.enabled)
    }
}
