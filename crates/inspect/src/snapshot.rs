//! One reading of the ledgers of a process.
//!
//! Order matters: the account first, then the descriptor anew and the tables that it now speaks of, so that an index given
//! out during the reading still finds its tag or node.

use crate::corefile::{CoreInfo, CoreMemory};
use crate::decode;
use crate::error::{Error, Result};
use crate::find::{self, Found};
use crate::mem::{Memory, ProcessMemory, Span};
use crate::metadata::{self, SlabTails};
use crate::namespace;
use crate::proc::{self, Process};
use crate::scan;
use crate::slabinfo::{self, PoolInfo, SlabSum};
use crate::view::View;
use memledger_abi::trace::SWITCH_ON;
use memledger_abi::{
    MODE_NEVER, ModuleRecord, TAG_INACCURATE, TAG_LOADED, TagRow, node_module, node_ra,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Live memory of one index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Live bytes, in slot sizes.
    pub bytes: u64,
    /// Live allocations.
    pub calls: u64,
}

impl Sum {
    /// Adds another one.
    pub fn add(&mut self, other: Sum) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.calls = self.calls.saturating_add(other.calls);
    }
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
    /// Number of the node of the frame that was called from here; 0 = root.
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
    /// What it needs for itself, by purpose; in no row and no sum, and more than `meta_bytes`: also cells and unit table.
    pub metadata: Vec<(String, Sum)>,
    /// Slabs by class and number of the named cache (0 = none), as in the unit table.
    pub slabs: BTreeMap<(u8, u16), SlabSum>,
    /// Named caches, newest first.
    pub pools: Vec<PoolInfo>,
    /// Units that kept changing while they were read, could not be read or made no sense; not in the sums.
    pub torn_units: u64,
    /// Units of objects that were read.
    pub units: u64,
    /// Counters, records and names that could not be read: rows may be charged to `foreign`, or lack their names.
    pub unread: u64,
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
    /// What the core file tells, if it comes from one.
    pub core: Option<CoreInfo>,
}

impl Ledger {
    /// Nodes of a site's stack, innermost first. Bounded, whatever the nodes say.
    pub fn stack(&self, node: u32) -> Vec<NodeInfo> {
        const MAX_DEPTH: usize = 256;
        let mut stack = Vec::new();
        let mut at = node;
        while at != 0 && stack.len() < MAX_DEPTH {
            let Some(n) = self.nodes.get(at as usize) else {
                break;
            };
            stack.push(*n);
            at = n.parent;
        }
        // A node hangs from the one of the frame that it called.
        stack.reverse();
        stack
    }

    /// Sum of all its rows.
    pub fn total(&self) -> Sum {
        let mut total = Sum::default();
        let sites = self.site_sums.iter().map(|(_, s)| s);
        self.reserved
            .iter()
            .chain(&self.tag_sums)
            .chain(sites)
            .for_each(|s| total.add(*s));
        total
    }

    fn read(mem: &dyn Memory, found: &Found, pid: u32) -> Result<Self> {
        let view =
            View::read(mem, &found.descriptor).map_err(|what| Error::Corrupt { pid, what })?;
        let mut ledger = Ledger {
            addr: found.addr,
            reserved: vec![Sum::default(); 16],
            ..Ledger::default()
        };
        ledger.set_head(&view);
        if ledger.never {
            return Ok(ledger);
        }
        let account = scan::scan(mem, &view);
        // A descriptor that says `never` all at once is not checked, and not to be followed.
        let again = find::check(mem, found.addr)
            .ok()
            .filter(|d| d.mode & MODE_NEVER == 0);
        let now = again.and_then(|d| View::read(mem, &d).ok()).unwrap_or(view);
        ledger.set_head(&now);
        ledger.torn_units = account.torn;
        ledger.units = account.units;
        ledger.unread = now.unread;
        let tails = SlabTails::new(&account.slabs, now.d.cell_size);
        ledger.metadata = metadata::read(mem, now.d.meta, &tails, &mut ledger.unread);
        ledger.pools = slabinfo::pools(mem, now.d.pools_at, &mut ledger.unread);
        ledger.slabs.clone_from(&account.slabs);
        ledger.nodes = read_nodes(mem, &now, &mut ledger.unread);
        ledger.tags = read_tags(mem, &now, &mut ledger.unread);
        ledger.modules = read_modules(mem, &now, &mut ledger.unread);
        (ledger.reserved, ledger.tag_sums, ledger.site_sums) =
            account.split(ledger.tags.len(), ledger.nodes.len());
        Ok(ledger)
    }

    fn set_head(&mut self, view: &View) {
        self.never = view.d.mode & MODE_NEVER != 0;
        self.enabled = view.d.mem_profiling & SWITCH_ON != 0 && !self.never;
        self.depth = view.d.depth;
        self.losses = view.losses;
        self.meta_bytes = view.meta_bytes;
    }
}

impl Snapshot {
    /// Reads the ledgers of process `pid` without stopping it.
    ///
    /// # Errors
    /// See [`Error`]; a runtime under `never` is no error here ([`Ledger::never`]).
    pub fn read(pid: u32) -> Result<Self> {
        let (start, time) = (Instant::now(), SystemTime::now());
        let (mem, process, found) = open(pid)?;
        let mut snapshot = Self::read_found(&mem, process, &found)?;
        let lost = snapshot.ledgers.iter().any(|l| l.torn_units > 0);
        if lost && mem.read(found[0].addr, &mut [0; 8]).is_err() {
            return Err(Error::Dying { pid });
        }
        (snapshot.time, snapshot.read_time) = (time, start.elapsed());
        Ok(snapshot)
    }

    /// Reads the own process, by the same way.
    ///
    /// # Errors
    /// As [`Snapshot::read`].
    pub fn read_self() -> Result<Self> {
        Self::read(namespace::own_pid())
    }

    /// Reads from any memory, for example a core file; `process` tells what is known of its process.
    ///
    /// # Errors
    /// No ledger, wrong version, not ready, corrupt.
    pub fn read_from(mem: &dyn Memory, process: Process) -> Result<Self> {
        let found = search(mem, &process)?;
        Self::read_found(mem, process, &found)
    }

    /// Reads the ledgers of a process that is gone from its core file, which may be larger than memory. What the core lacks
    /// of object files is read from these, below `sysroot` first ([`CoreMemory`]). [`Snapshot::core`] tells about the file.
    ///
    /// # Errors
    /// As [`Snapshot::read_from`]; no core file, or one that is cut off before the ledger.
    pub fn read_core(path: &Path, sysroot: Option<&Path>) -> Result<Self> {
        let (mem, process, mut info) = CoreMemory::open(path, sysroot)?;
        let mut snapshot = Self::read_from(&mem, process).map_err(|e| {
            // What was not found may have been in what is missing.
            match (info.truncated(), e) {
                (0, e) => e,
                (missing, e) => Error::Core {
                    what: format!(
                        "the core file is truncated: it lacks the last {missing} of {} bytes, and without them: {e}",
                        info.wanted_size
                    ),
                },
            }
        })?;
        info.unverified = mem.unverified();
        snapshot.core = Some(info);
        Ok(snapshot)
    }

    pub(crate) fn read_found(mem: &dyn Memory, process: Process, found: &[Found]) -> Result<Self> {
        let (start, time) = (Instant::now(), SystemTime::now());
        let ledgers: Result<Vec<Ledger>> = found
            .iter()
            .map(|f| Ledger::read(mem, f, process.pid))
            .collect();
        let ledgers = ledgers?;
        let mut total = Sum::default();
        ledgers.iter().for_each(|l| total.add(l.total()));
        Ok(Snapshot {
            process,
            ledgers,
            total,
            time,
            read_time: start.elapsed(),
            core: None,
        })
    }

    /// Only the tables of one ledger, without its account: what explains the indexes of a trace. `None`: they cannot be read.
    pub(crate) fn tables(mem: &dyn Memory, process: Process, found: &Found) -> Option<Self> {
        let descriptor = find::check(mem, found.addr).ok()?;
        let view = View::read(mem, &descriptor).ok()?;
        let mut ledger = Ledger {
            addr: found.addr,
            reserved: vec![Sum::default(); 16],
            ..Ledger::default()
        };
        ledger.set_head(&view);
        ledger.nodes = read_nodes(mem, &view, &mut ledger.unread);
        ledger.tags = read_tags(mem, &view, &mut ledger.unread);
        ledger.modules = read_modules(mem, &view, &mut ledger.unread);
        ledger.tag_sums = vec![Sum::default(); ledger.tags.len()];
        Some(Snapshot {
            process,
            ledgers: vec![ledger],
            total: Sum::default(),
            time: SystemTime::now(),
            read_time: Duration::ZERO,
            core: None,
        })
    }

    /// Counts of what was lost, summed over the ledgers, by `memledger_abi::loss`.
    pub fn losses(&self) -> [u64; 8] {
        std::array::from_fn(|i| {
            self.ledgers
                .iter()
                .fold(0, |n: u64, l| n.saturating_add(l.losses[i]))
        })
    }

    /// Bytes that memledger itself uses, summed over the ledgers.
    pub fn meta_bytes(&self) -> u64 {
        self.ledgers
            .iter()
            .fold(0, |n, l| n.saturating_add(l.meta_bytes))
    }

    /// Units that could not be read consistently.
    pub fn torn_units(&self) -> u64 {
        self.ledgers.iter().map(|l| l.torn_units).sum()
    }

    /// Counters, records and names that could not be read, summed over the ledgers.
    pub fn unread(&self) -> u64 {
        self.ledgers
            .iter()
            .fold(0, |n, l| n.saturating_add(l.unread))
    }

    /// Profiling is on in at least one ledger.
    pub fn enabled(&self) -> bool {
        self.ledgers.iter().any(|l| l.enabled)
    }

    /// All ledgers were started with `never`.
    pub fn never(&self) -> bool {
        self.ledgers.iter().all(|l| l.never)
    }
}

/// Opens a process and finds its initialised descriptors (at least one).
pub(crate) fn open(pid: u32) -> Result<(ProcessMemory, Process, Vec<Found>)> {
    let process = Process::read(pid)?;
    let mem = ProcessMemory::new(pid);
    // Tells a refusal from memory that is not there.
    if let Some(m) = process
        .mappings
        .iter()
        .find(|m| m.readable && m.path.starts_with('/'))
        && let Err(e) = mem.read(m.start, &mut [0; 1])
        && !matches!(e.raw_os_error(), Some(libc::EFAULT | libc::EIO))
    {
        return Err(proc::failure(pid, "memory", e));
    }
    let found = search(&mem, &process)?;
    Ok((mem, process, found))
}

fn search(mem: &dyn Memory, process: &Process) -> Result<Vec<Found>> {
    let pid = process.pid;
    let search = find::descriptors(mem, &process.mappings);
    let (ready, young): (Vec<Found>, Vec<Found>) = search
        .found
        .into_iter()
        .partition(|f| f.descriptor.ready != 0);
    if !ready.is_empty() {
        return Ok(ready);
    }
    if !young.is_empty() {
        return Err(Error::NotReady { pid });
    }
    if let Some(&found) = search.other_versions.first() {
        return Err(Error::WrongVersion { pid, found });
    }
    if search.objects == 0 && pid != 0 && !process.alive() {
        return Err(Error::Dying { pid });
    }
    if pid == 0 && (search.objects == 0 || search.bad > 0) {
        let what = match search.bad {
            0 => "no object file of the process is in it, nor found elsewhere (--sysroot)",
            _ => {
                "the ledger is not in it: it was written without private memory (see /proc/PID/coredump_filter)"
            }
        };
        return Err(Error::Core { what: what.into() });
    }
    let exe = process
        .mappings
        .iter()
        .find(|m| m.offset == 0 && process.exe.to_str() == Some(&m.path));
    let interp = exe.and_then(|m| find::has_interpreter(mem, m.start));
    Err(Error::NoLedger {
        pid,
        reason: proc::no_ledger_reason(pid, interp),
    })
}

/// Reads `count` records of `stride` bytes, as many as are readable up to `max`, and decodes each; counts the others.
fn read_records<T>(
    mem: &dyn Memory,
    addr: u64,
    stride: u32,
    count: u32,
    max: u32,
    unread: &mut u64,
    one: fn(&[u8]) -> T,
) -> Vec<T> {
    const PIECE: usize = 1 << 20;
    let stride = stride.max(1) as usize;
    let (mut out, mut buf) = (Vec::new(), Vec::new());
    let (mut left, mut at) = (count.min(max) as usize, addr);
    let mut most = (PIECE / stride).max(1);
    while left > 0 {
        let n = left.min(most);
        buf.resize(n * stride, 0);
        if mem.read(at, &mut buf).is_err() {
            if n == 1 {
                break;
            }
            // Memory may end within the piece.
            most = n / 2;
            continue;
        }
        out.extend(buf.chunks_exact(stride).map(one));
        left -= n;
        at = at.wrapping_add((n * stride) as u64);
    }
    *unread += left as u64 + u64::from(count.saturating_sub(max));
    out
}

fn read_nodes(mem: &dyn Memory, view: &View, unread: &mut u64) -> Vec<NodeInfo> {
    read_records(
        mem,
        view.d.nodes,
        view.d.node_stride,
        view.node_count,
        1 << 24,
        unread,
        |b| {
            let n = decode::node(b);
            NodeInfo {
                ra: node_ra(n.key),
                module: node_module(n.key),
                parent: n.parent,
                dead: n.flags & 1 == 1,
            }
        },
    )
}

fn read_tags(mem: &dyn Memory, view: &View, unread: &mut u64) -> Vec<TagInfo> {
    let rows = read_records(
        mem,
        view.d.tags,
        view.d.tag_stride,
        view.tag_count,
        1 << 20,
        unread,
        decode::tag,
    );
    let wanted: Vec<(u64, u32)> = rows
        .iter()
        .flat_map(|t| {
            [
                (t.file, t.file_len),
                (t.func, t.func_len),
                (t.module, t.module_len),
                (t.path, t.path_len),
            ]
        })
        .collect();
    let mut strings = read_strings(mem, &wanted, unread).into_iter();
    let mut next = || strings.next().unwrap_or_default();
    let one = |t: &TagRow| TagInfo {
        file: next(),
        func: next(),
        module: next(),
        path: next(),
        line: t.line,
        column: t.column,
        loaded: t.flags & TAG_LOADED != 0,
        accurate: t.flags & TAG_INACCURATE == 0,
    };
    rows.iter().map(one).collect()
}

fn read_modules(mem: &dyn Memory, view: &View, unread: &mut u64) -> Vec<ModuleInfo> {
    let records = read_records(
        mem,
        view.d.modules,
        view.d.module_stride,
        view.module_count,
        1 << 16,
        unread,
        decode::module,
    );
    let wanted: Vec<(u64, u32)> = records.iter().map(|m| (m.name, m.name_len)).collect();
    let names = read_strings(mem, &wanted, unread);
    let one = |(m, name): (&ModuleRecord, String)| ModuleInfo {
        start: m.start,
        end: m.end,
        bias: m.bias,
        name,
        build_id: m.build_id[..(m.build_id_len as usize).min(m.build_id.len())].to_vec(),
        loaded: m.state == 1,
    };
    records.iter().zip(names).map(one).collect()
}

/// Reads many strings: neighbours in memory in one piece, pieces in batches. What cannot be read is `?` and counted.
fn read_strings(mem: &dyn Memory, wanted: &[(u64, u32)], unread: &mut u64) -> Vec<String> {
    /// Longest string believed, gap bridged, and longest piece.
    const MAX_LEN: u32 = 4096;
    const GAP: u64 = 256;
    const PIECE: u64 = 64 << 10;
    const TOTAL: usize = 256 << 20;
    let mut order: Vec<usize> = (0..wanted.len()).filter(|&i| wanted[i].1 > 0).collect();
    order.sort_unstable_by_key(|&i| wanted[i]);
    let len = |i: usize| u64::from(wanted[i].1.min(MAX_LEN));
    // Pieces: (start, end, members of `order`).
    let mut pieces: Vec<(u64, u64, std::ops::Range<usize>)> = Vec::new();
    for (k, &i) in order.iter().enumerate() {
        let (start, end) = (wanted[i].0, wanted[i].0.saturating_add(len(i)));
        match pieces.last_mut() {
            Some((s, e, r)) if start <= e.saturating_add(GAP) && end - *s <= PIECE => {
                (*e, r.end) = ((*e).max(end), k + 1);
            }
            _ => pieces.push((start, end, k..k + 1)),
        }
    }
    let mut out: Vec<String> = wanted
        .iter()
        .map(|w| if w.1 > 0 { "?" } else { "" }.to_owned())
        .collect();
    let (mut budget, mut left) = (TOTAL, order.len());
    'all: for batch in pieces.chunks(1024) {
        let mut bufs: Vec<Vec<u8>> = batch
            .iter()
            .map(|(s, e, _)| vec![0; (e - s) as usize])
            .collect();
        let mut spans: Vec<Span<'_>> = batch
            .iter()
            .zip(&mut bufs)
            .map(|((s, ..), b)| Span::new(*s, b))
            .collect();
        mem.read_many(&mut spans);
        for ((start, _, members), span) in batch.iter().zip(&spans) {
            for &i in &order[members.clone()] {
                let n = len(i) as usize;
                budget = budget.saturating_sub(n);
                if budget == 0 {
                    break 'all;
                }
                let at = (wanted[i].0 - start) as usize;
                let mut alone = vec![0; if span.ok { 0 } else { n }];
                if span.ok {
                    out[i] = String::from_utf8_lossy(&span.buf[at..at + n]).into_owned();
                } else if mem.read(wanted[i].0, &mut alone).is_ok() {
                    out[i] = String::from_utf8_lossy(&alone).into_owned();
                } else {
                    continue;
                }
                left -= 1;
            }
        }
    }
    *unread += left as u64;
    out
}
