//! The page owner of a process: who took each run of pages.
//!
//! The records are read first, then the nodes that they speak of. A run is shown as the kernel's allocator would have it: in blocks of
//! 2^order pages, aligned to their size, so that numbers of pages add up by order.

use crate::decode::{u32_at, u64_at, unit};
use crate::error::{Error, Result};
use crate::mem::Memory;
use crate::snapshot::{Ledger, NodeInfo, Snapshot, open};
use crate::view::View;
use crate::{MigrateType, ORDERS, Symbolizer};
use memledger_abi::owner::{NODE_RECURSION, NODE_SPECIAL, OWNER_TAKEN, OwnerControl, OwnerRecord};
use memledger_abi::{Descriptor, KIND_BUMP, KIND_LARGE, KIND_META, KIND_SLAB, MODE_NEVER};
use std::collections::{BTreeMap, HashSet};
use std::mem::offset_of;

/// Units and records read at a time.
const CHUNK: u64 = 1024;
/// Attempts at a record that is changing.
const ATTEMPTS: usize = 4;
/// Frames shown of a stack, as the kernel's `PAGE_OWNER_STACK_DEPTH`.
const FRAMES: usize = 16;

/// A stack, as a number: that of its node, or one that stands for a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u32);

/// Stands for runs that were taken before the page owner was ready.
pub const HANDLE_EARLY: Handle = Handle(u32::MAX - 2);

/// Who took a run, and who gave back what was there before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// Address.
    pub addr: u64,
    /// Pages of 4 KiB.
    pub pages: u64,
    /// A slab; else a large object.
    pub slab: bool,
    /// Allocation flags (`gfp_t`); 0 if early.
    pub mask: u32,
    /// Stack that took it.
    pub handle: Handle,
    /// Thread.
    pub pid: u32,
    /// Process.
    pub tgid: u32,
    /// Name of the thread.
    pub comm: Vec<u8>,
    /// Nanoseconds of the monotonic clock; 0 if early.
    pub ts: u64,
    /// Stack and time of the last time that these pages were given back.
    pub last_free: Option<(Handle, u64)>,
}

/// A block of pages, as the kernel counts them.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// Number of its first page.
    pub pfn: u64,
    /// It has 2^order pages.
    pub order: u32,
    /// Its run.
    pub run: &'a Owned,
}

/// All runs of a process.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    /// In order of address.
    pub runs: Vec<Owned>,
    /// Stacks that took something that has been given back.
    pub gone: Vec<Handle>,
    /// Blocks of 512 pages with something unmovable in them.
    unmovable: HashSet<u64>,
    /// Runs taken since the start.
    pub taken: u64,
    /// Of them without a stack.
    pub failures: u64,
    /// Of them by signal handlers inside the allocator.
    pub recursions: u64,
    /// Records that were changing all the time.
    pub torn: u64,
    snapshot: Option<Snapshot>,
    ledger: usize,
}

impl Owners {
    /// Reads process `pid`. `None`: its page owner is off.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn read(pid: u32) -> Result<Option<Self>> {
        let (mem, process, found) = open(pid)?;
        for (i, f) in found.iter().enumerate() {
            let d = &f.descriptor;
            if d.mode & MODE_NEVER != 0 || d.owner == 0 {
                continue;
            }
            let mut control = [0; size_of::<OwnerControl>()];
            let io = |e| crate::proc::failure(pid, "page owner", e);
            mem.read(d.owner, &mut control).map_err(io)?;
            let records = u64_at(&control, offset_of!(OwnerControl, records));
            let stride = u32_at(&control, offset_of!(OwnerControl, stride));
            if records == 0 {
                continue;
            }
            if !(size_of::<OwnerRecord>()..=4096).contains(&(stride as usize)) {
                return Err(Error::Corrupt {
                    pid,
                    what: "owner_stride",
                });
            }
            let view = View::read(&mem, d).map_err(|what| Error::Corrupt { pid, what })?;
            let count = |at| u64_at(&control, at);
            let mut owners = Owners {
                taken: count(offset_of!(OwnerControl, taken)),
                failures: count(offset_of!(OwnerControl, failures)),
                recursions: count(offset_of!(OwnerControl, recursions)),
                ledger: i,
                ..Owners::default()
            };
            owners
                .walk(&mem, d, &view, (records, stride.into()))
                .map_err(io)?;
            owners.snapshot = Some(Snapshot::read_found(&mem, process, &found)?);
            return Ok(Some(owners));
        }
        Ok(None)
    }

    fn walk(
        &mut self,
        mem: &dyn Memory,
        d: &Descriptor,
        view: &View,
        (records, stride): (u64, u64),
    ) -> std::io::Result<()> {
        let wide = u64::from(d.unit_stride);
        let mut at = 0;
        while at < view.unit_count {
            let n = CHUNK.min(view.unit_count - at);
            let mut units = vec![0; (n * wide) as usize];
            let mut owners = vec![0; (n * stride) as usize];
            mem.read(d.units.wrapping_add(at * wide), &mut units)?;
            mem.read(records.wrapping_add(at * stride), &mut owners)?;
            let mut i = 0;
            while i < n {
                let m = unit(&units[(i * wide) as usize..]);
                let addr = d.arena_base + ((at + i) << d.unit_shift);
                let live = m.kind != KIND_LARGE || m.index != 0;
                let run = match m.kind {
                    KIND_SLAB | KIND_LARGE | KIND_BUMP => u64::from(m.units).max(1),
                    _ => 1,
                };
                let run = run.min(view.unit_count - at - i);
                if matches!(m.kind, KIND_SLAB | KIND_BUMP | KIND_META) {
                    let blocks = (addr >> 21)..=((addr + (run << d.unit_shift) - 1) >> 21);
                    self.unmovable.extend(blocks);
                }
                let place = records + (at + i) * stride;
                let record = &owners[(i * stride) as usize..];
                let Some(record) = self.steady(mem, place, record) else {
                    i += run;
                    continue;
                };
                if matches!(m.kind, KIND_SLAB | KIND_LARGE | KIND_BUMP) && live {
                    let pages = run << (d.unit_shift - 12);
                    self.runs.push(owned(addr, pages, m.kind, &record));
                } else if record.seq != 0 {
                    self.gone.push(Handle(record.node));
                }
                i += run;
            }
            at += i;
        }
        Ok(())
    }

    /// A record that is not changing.
    fn steady(&mut self, mem: &dyn Memory, at: u64, bytes: &[u8]) -> Option<OwnerRecord> {
        let mut r = decode(bytes);
        for _ in 0..ATTEMPTS {
            if r.seq & 1 == 0 {
                return Some(r);
            }
            std::thread::yield_now();
            let mut again = [0; size_of::<OwnerRecord>()];
            if mem.read(at, &mut again).is_ok() {
                r = decode(&again);
            }
        }
        self.torn += 1;
        None
    }

    /// All blocks in order of their number, from `pfn` on.
    pub fn blocks(&self, pfn: u64) -> impl Iterator<Item = Block<'_>> {
        self.runs.iter().flat_map(move |run| {
            let (mut at, end) = (run.addr >> 12, (run.addr >> 12) + run.pages);
            std::iter::from_fn(move || {
                let left = end.checked_sub(at).filter(|&n| n > 0)?;
                let order = at.trailing_zeros().min(ORDERS as u32 - 1).min(left.ilog2());
                let block = Block {
                    pfn: at,
                    order,
                    run,
                };
                at += 1 << order;
                Some(block)
            })
            .filter(move |b| b.pfn >= pfn)
        })
    }

    /// Type of the block of 512 pages that holds page `pfn`.
    pub fn block_type(&self, pfn: u64) -> MigrateType {
        match self.unmovable.contains(&(pfn >> 9)) {
            true => MigrateType::Unmovable,
            false => MigrateType::Movable,
        }
    }

    /// Pages in use by stack, the stack first seen last first; `all`: also stacks without any. Early pages belong to none.
    pub fn stacks(&self, all: bool) -> Vec<(Handle, u64)> {
        let mut sums: BTreeMap<Handle, u64> = BTreeMap::new();
        for run in self.runs.iter().filter(|r| r.handle != HANDLE_EARLY) {
            *sums.entry(run.handle).or_default() += run.pages;
        }
        if all {
            self.gone.iter().for_each(|&h| {
                sums.entry(h).or_default();
            });
        }
        sums.into_iter().rev().collect()
    }

    /// The lines of a stack in the kernel's form, innermost first, without the allocator's own frames: `func+0xoff/0xsize [module]`.
    pub fn stack(&self, handle: Handle, symbols: &mut Symbolizer) -> Vec<String> {
        let name = match handle {
            HANDLE_EARLY => Some("register_early_stack"),
            Handle(NODE_RECURSION) => Some("register_dummy_stack"),
            Handle(n) if n >= NODE_SPECIAL => Some("register_failure_stack"),
            _ => None,
        };
        if let Some(name) = name {
            return vec![format!("{name}+0x0/0x0")];
        }
        let Some((snapshot, ledger)) = self.ledger() else {
            return Vec::new();
        };
        let nodes = ledger.stack(handle.0);
        let mut lines: Vec<(bool, String)> = nodes
            .iter()
            .map(|n| line(symbols, snapshot, ledger, n))
            .collect();
        let own = lines.iter().take_while(|(own, _)| *own).count();
        if own < lines.len() {
            lines.drain(..own);
        }
        lines.truncate(FRAMES);
        lines.into_iter().map(|(_, line)| line).collect()
    }

    fn ledger(&self) -> Option<(&Snapshot, &Ledger)> {
        let snapshot = self.snapshot.as_ref()?;
        Some((snapshot, snapshot.ledgers.get(self.ledger)?))
    }

    /// Pages that were taken early.
    pub fn early_pages(&self) -> u64 {
        let early = self.runs.iter().filter(|r| r.handle == HANDLE_EARLY);
        early.map(|r| r.pages).sum()
    }
}

/// Whether a frame is the allocator's own, and its line.
fn line(
    symbols: &mut Symbolizer,
    snapshot: &Snapshot,
    ledger: &Ledger,
    node: &NodeInfo,
) -> (bool, String) {
    const OWN: [&str; 7] = [
        "mm::",
        "<mm::",
        "alloc_tag::",
        "page_owner::",
        "memledger::",
        "<memledger::",
        "core::ops::function",
    ];
    let place = symbols.function_at(snapshot, ledger, node);
    let module = place.module.as_deref().unwrap_or("");
    let own = module.starts_with("libmemledger")
        || place
            .name
            .as_ref()
            .is_some_and(|n| OWN.iter().any(|own| n.starts_with(own)));
    let mut text = match (&place.name, place.extent) {
        (Some(name), Some((offset, size))) => format!("{name}+{offset:#x}/{size:#x}"),
        _ => format!("{:#x}", node.ra),
    };
    if !module.is_empty() {
        text.push_str(&format!(" [{module}]"));
    }
    (own, text)
}

fn owned(addr: u64, pages: u64, kind: u8, r: &OwnerRecord) -> Owned {
    let early = r.seq == 0 || r.state != OWNER_TAKEN;
    let name = r.comm.iter().position(|&b| b == 0).unwrap_or(r.comm.len());
    Owned {
        addr,
        pages,
        slab: kind != KIND_LARGE,
        mask: if early { 0 } else { r.mask },
        handle: if early { HANDLE_EARLY } else { Handle(r.node) },
        pid: if early { 0 } else { r.pid },
        tgid: if early { 0 } else { r.tgid },
        comm: match early {
            true => b"swapper".to_vec(),
            false => r.comm[..name].to_vec(),
        },
        ts: if early { 0 } else { r.ts },
        last_free: (r.free_ts != 0).then_some((Handle(r.free_node), r.free_ts)),
    }
}

fn decode(b: &[u8]) -> OwnerRecord {
    type R = OwnerRecord;
    let byte = |at: usize| b.get(at).copied().unwrap_or(0);
    OwnerRecord {
        seq: u32_at(b, offset_of!(R, seq)),
        node: u32_at(b, offset_of!(R, node)),
        free_node: u32_at(b, offset_of!(R, free_node)),
        pid: u32_at(b, offset_of!(R, pid)),
        tgid: u32_at(b, offset_of!(R, tgid)),
        mask: u32_at(b, offset_of!(R, mask)),
        ts: u64_at(b, offset_of!(R, ts)),
        free_ts: u64_at(b, offset_of!(R, free_ts)),
        units: u32_at(b, offset_of!(R, units)),
        state: byte(offset_of!(R, state)),
        migrate: byte(offset_of!(R, migrate)),
        pad: 0,
        comm: std::array::from_fn(|i| byte(offset_of!(R, comm) + i)),
    }
}
