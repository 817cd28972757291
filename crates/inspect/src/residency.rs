//! Where the resident memory of a process is, to the page.
//!
//! Three sources, of one moment as far as possible (nothing is stopped): the unit table and the cells say what each byte of the
//! arena is for, `pagemap` which pages are there, `smaps` what the other mappings hold. A byte counts if its page is resident, so
//! that the lines add up to the sum of `Rss`; what changed between the readings is a line of its own ([`Residency::drift`]).
//!
//! *Pinned* memory is resident free slots of slabs that still hold an object: the slab cannot go back to the system before the
//! last object of it goes. A slab's free bytes are shared out over its objects, so that the sum over all sites is the line.

mod slabs;

use crate::error::{Error, Result};
use crate::proc;
use crate::rows::charge;
use crate::smaps::{Area, Pagemap, parse};
use crate::snapshot::{Snapshot, open};
use crate::view::View;
use crate::{Helpers, Row, Symbolizer};
use memledger_abi::{Descriptor, MODE_NEVER};
use std::collections::{HashMap, HashSet};
use std::fs;

/// Addresses of objects that are kept for each index.
const SAMPLES: usize = 4;

/// What the arena's resident bytes are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arena {
    /// Live objects of slabs, in slot sizes.
    pub small: u64,
    /// Live objects of their own runs, as accounted (whole pages).
    pub large: u64,
    /// Free slots of slabs that hold live objects.
    pub pinned: u64,
    /// Slabs without a live object (their slots are in caches of threads, or kept for the next allocation).
    pub empty: u64,
    /// Free runs that still have their pages; they are given back in steps, as time goes on.
    pub dirty: u64,
    /// Behind large objects up to the end of their runs, and freed parts of the bump region.
    pub rounding: u64,
    /// Cells, bitmaps and what is left over in slabs.
    pub cells: u64,
    /// Unit tables, heaps, tags and nodes.
    pub tables: u64,
    /// Runs that were changing all the time.
    pub torn: u64,
}

impl Arena {
    /// Sum of all.
    pub fn total(&self) -> u64 {
        let Arena {
            small,
            large,
            pinned,
            empty,
            dirty,
            rounding,
            cells,
            tables,
            torn,
        } = *self;
        small + large + pinned + empty + dirty + rounding + cells + tables + torn
    }
}

/// Resident bytes of the other mappings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Others {
    /// Stacks of all threads.
    pub stacks: u64,
    /// Pages of files: code and read-only data.
    pub files: u64,
    /// Private copies of pages of files that were written to: variables.
    pub written: u64,
    /// Shared memory, and files mapped shared.
    pub shared: u64,
    /// The area of `brk`.
    pub brk: u64,
    /// Other anonymous memory, mapped by the program itself or its libraries.
    pub anonymous: u64,
}

/// Memory that a site's objects pin.
#[derive(Debug, Clone)]
pub struct Pin {
    /// The site, as in the report; `bytes` and `calls` are 0.
    pub row: Row,
    /// Its share of resident free slots, in bytes.
    pub held: u64,
    /// Part of `held` in slabs where no other site has objects.
    pub alone: u64,
    /// Its objects in partly used slabs.
    pub objects: u64,
    /// Their bytes.
    pub live: u64,
    /// Such slabs.
    pub slabs: u64,
    /// Bytes of those slabs' slots that are live, of any site.
    pub slab_live: u64,
    /// Bytes of those slabs' slots.
    pub slab_bytes: u64,
    /// Addresses of some of the objects: those of the emptiest slabs.
    pub samples: Vec<u64>,
}

/// Resident memory of a process, explained.
#[derive(Debug, Clone, Default)]
pub struct Residency {
    /// Process id.
    pub pid: u32,
    /// Name of the process.
    pub comm: String,
    /// Sum of `Rss` over all mappings.
    pub rss: u64,
    /// `VmRSS` of `/proc/PID/status`, read right after; the kernel's counters may lag behind.
    pub vm_rss: u64,
    /// Sum of `Swap` over all mappings; not resident.
    pub swap: u64,
    /// The allocator's own memory.
    pub arena: Arena,
    /// The rest.
    pub others: Others,
    /// `rss` less the lines: what changed between the readings, and (negative) pages of zeros that were only read, which the
    /// kernel does not count.
    pub drift: i64,
    /// Who pins memory, most first.
    pub pins: Vec<Pin>,
    /// Free runs by order and type, and blocks by type.
    pub blocks: crate::Blocks,
}

/// What is gathered by index while slabs are gone over.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexPin {
    held: u64,
    alone: u64,
    objects: u64,
    live: u64,
    slabs: Vec<(u64, u64, u64)>,
    samples: Vec<(u64, u64)>,
}

impl Residency {
    /// Reads process `pid`.
    ///
    /// # Errors
    /// See [`Error`]; without a ledger there is nothing to explain.
    pub fn read(pid: u32, symbols: &mut Symbolizer, helpers: &Helpers) -> Result<Self> {
        let (mem, process, found) = open(pid)?;
        let mut pagemap = Pagemap::open(pid).map_err(|e| proc::failure(pid, "pagemap", e))?;
        let mut out = Residency {
            pid,
            comm: process.comm.clone(),
            ..Residency::default()
        };
        let mut pins = Vec::new();
        let mut known = Vec::new();
        let smaps =
            || fs::read(format!("/proc/{pid}/smaps")).map_err(|e| proc::failure(pid, "smaps", e));
        let arenas = |a: &&Area| {
            let inside = |d: &Descriptor| {
                d.units <= a.start && a.start < d.arena_base.saturating_add(1 << 40)
            };
            a.rss > 0 && a.name.is_empty() && found.iter().any(|f| inside(&f.descriptor))
        };
        pagemap.judge(parse(&smaps()?).iter().filter(arenas));
        for f in &found {
            let d = &f.descriptor;
            if d.mode & MODE_NEVER != 0 {
                return Err(Error::Never { pid });
            }
            let view = View::read(&mem, d).map_err(|what| Error::Corrupt { pid, what })?;
            let mut walk = slabs::Walk::new(&mem, &pagemap, &view);
            walk.run().map_err(|e| proc::failure(pid, "pagemap", e))?;
            out.arena = add(out.arena, walk.arena);
            out.blocks.add(&walk.blocks);
            pins.push((d.site_base, walk.pins));
            known.extend(own_ranges(d, &view));
        }
        for (start, end, tables) in &known {
            let pages = pagemap.pages(*start, *end);
            if *tables && let Ok(pages) = pages {
                out.arena.tables += pages.bytes(*start, *end);
            }
        }
        let text = smaps()?;
        out.vm_rss = status_rss(pid);
        out.mappings(&parse(&text), &known, &pagemap);
        let snapshot = Snapshot::read_found(&mem, process, &found)?;
        out.pins = resolve(&snapshot, &pins, symbols, helpers);
        Ok(out)
    }

    /// Sum of all lines but [`Residency::drift`].
    pub fn lines(&self) -> u64 {
        let Others {
            stacks,
            files,
            written,
            shared,
            brk,
            anonymous,
        } = self.others;
        self.arena.total() + stacks + files + written + shared + brk + anonymous
    }

    /// Sorts the mappings that are not the allocator's; sets the sums.
    fn mappings(&mut self, areas: &[Area], known: &[(u64, u64, bool)], pagemap: &Pagemap) {
        let pointers = stack_pointers(self.pid);
        let o = &mut self.others;
        for a in areas {
            self.rss += a.rss;
            self.swap += a.swap;
            // A mapping may hold the allocator's memory and, merged with it by the kernel, the program's.
            let (mut own, mut covered) = (0, 0);
            for &(start, end, _) in known {
                let (from, to) = (start.max(a.start), end.min(a.end));
                if from < to {
                    covered += to - from;
                    own += pagemap.pages(from, to).map_or(0, |p| p.bytes(from, to));
                }
            }
            let rest = match covered {
                0 => a.rss,
                n if n == a.end - a.start => 0,
                _ => a.rss.saturating_sub(own),
            };
            let stack = a.name.starts_with("[stack")
                || (a.name.is_empty() && pointers.iter().any(|p| (a.start..a.end).contains(p)));
            match a.name.as_str() {
                _ if stack => o.stacks += rest,
                _ if a.shared => o.shared += rest,
                "[heap]" => o.brk += rest,
                name if name.starts_with('/') => {
                    let written = a.anonymous.min(rest);
                    o.written += written;
                    o.files += rest - written;
                }
                name if name.starts_with("[v") => o.files += rest,
                _ => o.anonymous += rest,
            }
        }
        self.drift = self.rss as i64 - self.lines() as i64;
    }
}

/// Ranges that are memledger's: (start, end, whether all of it is tables; else the unit table says).
fn own_ranges(d: &Descriptor, view: &View) -> Vec<(u64, u64, bool)> {
    let end = d.arena_base + (view.unit_count << d.unit_shift);
    let page = |at: u64| at.div_ceil(4096) * 4096;
    let table = |at: u64, n: u32, stride: u32| {
        let from = at / 4096 * 4096;
        (from, page(at + u64::from(n) * u64::from(stride)), true)
    };
    let mut ranges = vec![
        (d.units / 4096 * 4096, d.arena_base, true),
        (d.arena_base, end, false),
    ];
    let tables = [
        table(d.nodes, view.node_count, d.node_stride),
        table(d.tags, view.tag_count, d.tag_stride),
        table(d.modules, view.module_count, d.module_stride),
    ];
    for t in tables {
        // Some tables stand in the arena itself, where the unit table speaks of them, or in the library's own variables.
        let apart = ranges.iter().all(|r| t.1 <= r.0 || r.1 <= t.0);
        if apart && t.0 != 0 && t.0 < t.1 {
            ranges.push(t);
        }
    }
    ranges
}

fn add(a: Arena, b: Arena) -> Arena {
    Arena {
        small: a.small + b.small,
        large: a.large + b.large,
        pinned: a.pinned + b.pinned,
        empty: a.empty + b.empty,
        dirty: a.dirty + b.dirty,
        rounding: a.rounding + b.rounding,
        cells: a.cells + b.cells,
        tables: a.tables + b.tables,
        torn: a.torn + b.torn,
    }
}

/// Stack pointers of all threads, as far as `/proc/PID/task/TID/syscall` tells them (a running thread does not).
fn stack_pointers(pid: u32) -> Vec<u64> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let pointer = |path: std::path::PathBuf| -> Option<u64> {
        let text = fs::read_to_string(path.join("syscall")).ok()?;
        let sp = text.split_ascii_whitespace().rev().nth(1)?;
        u64::from_str_radix(sp.strip_prefix("0x")?, 16).ok()
    };
    tasks.flatten().filter_map(|t| pointer(t.path())).collect()
}

/// `VmRSS` in bytes; 0 if it cannot be read.
fn status_rss(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Turns indexes into rows, and merges those of one line.
fn resolve(
    snapshot: &Snapshot,
    pins: &[(u32, HashMap<u32, IndexPin>)],
    symbols: &mut Symbolizer,
    helpers: &Helpers,
) -> Vec<Pin> {
    type Key = (String, u32, Option<String>, String);
    let mut merged: HashMap<Key, (Row, IndexPin)> = HashMap::new();
    let indexes: Vec<Vec<u32>> = pins
        .iter()
        .map(|(_, p)| {
            let mut keys: Vec<u32> = p.keys().copied().collect();
            keys.sort_unstable();
            keys
        })
        .collect();
    let bases: Vec<u32> = pins.iter().map(|(base, _)| *base).collect();
    charge(
        snapshot,
        symbols,
        helpers,
        &bases,
        &indexes,
        |ledger, index, row| {
            let pin = &pins[ledger].1[&index];
            let key = (
                row.file.clone(),
                row.line,
                row.module.clone(),
                row.func.clone(),
            );
            let (_, sum) = merged
                .entry(key)
                .or_insert_with(|| (row, IndexPin::default()));
            sum.held += pin.held;
            sum.alone += pin.alone;
            sum.objects += pin.objects;
            sum.live += pin.live;
            sum.slabs.extend(&pin.slabs);
            sum.samples.extend(&pin.samples);
        },
    );
    let mut out: Vec<Pin> = merged
        .into_values()
        .map(|(row, p)| finish(row, p))
        .collect();
    out.sort_by(|a, b| {
        let key = |p: &Pin| {
            let (file, func) = (p.row.file.clone(), p.row.func.clone());
            (
                std::cmp::Reverse((p.held, p.objects)),
                file,
                p.row.line,
                func,
            )
        };
        key(a).cmp(&key(b))
    });
    out
}

fn finish(row: Row, mut p: IndexPin) -> Pin {
    let mut seen = HashSet::new();
    p.slabs.retain(|s| seen.insert(s.0));
    p.samples.sort_unstable();
    p.samples.truncate(SAMPLES);
    Pin {
        row,
        held: p.held,
        alone: p.alone,
        objects: p.objects,
        live: p.live,
        slabs: p.slabs.len() as u64,
        slab_live: p.slabs.iter().map(|s| s.1).sum(),
        slab_bytes: p.slabs.iter().map(|s| s.2).sum(),
        samples: p.samples.into_iter().map(|(_, addr)| addr).collect(),
    }
}
