//! The account: goes over the unit table and adds up what is live, by index.
//!
//! The table is read in chunks; the cells of a chunk's slabs follow in one batch; then the chunk of the table again. A unit
//! whose `seq` was odd or is not the same afterwards was changing, and is tried again some rounds later. So memory in use by
//! the reader is bounded, and a unit is either read whole or counted as torn.

use crate::decode;
use crate::mem::{Memory, Span};
use crate::slabinfo::Slabs;
use crate::snapshot::Sum;
use crate::view::View;
use memledger_abi::pool::CLASS_POOL;
use memledger_abi::{
    BumpHeader, Descriptor, FIRST_TAG, INDEX_FOREIGN, INDEX_NONE, KIND_BUMP, KIND_LARGE, KIND_SLAB,
    UnitMeta,
};
use std::collections::HashMap;

/// Units of the table read at a time.
const CHUNK: u64 = 1024;
/// Rounds over units that were changing.
const ROUNDS: usize = 6;
/// An arena of 2^28 units (16 TiB) is the largest believed.
const MAX_UNITS: u64 = 1 << 28;
/// Smallest slot believed.
const MIN_SLOT: u64 = 8;
/// Bytes of cells buffered at a time.
const MAX_BATCH: usize = 32 << 20;
/// Nodes that may appear while reading.
const SLACK: u32 = 1 << 16;
/// Most entries of the dense tables; the rest go to a map.
const MAX_DENSE: u32 = 1 << 22;

/// Sums by index.
#[derive(Debug, Default)]
pub(crate) struct Account {
    site_base: u32,
    low_cap: u32,
    high_cap: u32,
    low: Vec<Sum>,
    high: Vec<Sum>,
    /// Indexes that no table had when the reading began.
    rest: HashMap<u32, Sum>,
    /// Units given up.
    pub(crate) torn: u64,
    /// Units with objects that were read.
    pub(crate) units: u64,
    /// Slabs by cache.
    pub(crate) slabs: Slabs,
}

impl Account {
    fn new(view: &View) -> Self {
        let cap = |n: u32| n.saturating_add(SLACK).min(MAX_DENSE);
        Account {
            site_base: view.d.site_base,
            low_cap: cap(view.tag_count).min(view.d.site_base),
            high_cap: cap(view.node_count),
            ..Account::default()
        }
    }

    #[inline]
    fn add(&mut self, index: u32, bytes: u64) {
        let (table, i, cap) = match index.checked_sub(self.site_base) {
            None => (&mut self.low, index, self.low_cap),
            Some(i) => (&mut self.high, i, self.high_cap),
        };
        let sum = match table.get_mut(i as usize) {
            Some(sum) => sum,
            None if i < cap => {
                table.resize(
                    (i as usize + 1).max(table.len() * 2).min(cap as usize),
                    Sum::default(),
                );
                &mut table[i as usize]
            }
            None => self.rest.entry(index).or_default(),
        };
        sum.bytes = sum.bytes.saturating_add(bytes);
        sum.calls += 1;
    }

    /// Splits into (reserved rows, tags, sites by node); what is in none of them is foreign.
    pub(crate) fn split(self, tags: usize, nodes: usize) -> (Vec<Sum>, Vec<Sum>, Vec<(u32, Sum)>) {
        let base = self.site_base;
        let mut reserved = vec![Sum::default(); FIRST_TAG as usize];
        let mut tag_sums = vec![Sum::default(); tags];
        let mut sites = Vec::new();
        let low = self.low.into_iter().zip(0..);
        let high = self
            .high
            .into_iter()
            .enumerate()
            .map(|(i, s)| (s, base.wrapping_add(i as u32)));
        let rest = self.rest.into_iter().map(|(i, s)| (s, i));
        for (sum, index) in low.chain(high).chain(rest).filter(|(s, _)| s.calls > 0) {
            let known = index <= INDEX_FOREIGN;
            let tag = index.checked_sub(FIRST_TAG).filter(|_| index < base);
            let tag = tag.and_then(|t| tag_sums.get_mut(t as usize));
            // Node 0 is the root: an empty stack.
            let node = index
                .checked_sub(base)
                .filter(|&n| n > 0 && (n as usize) < nodes);
            match (tag, node) {
                (Some(t), _) => t.add(sum),
                (None, Some(n)) => sites.push((n, sum)),
                _ if known => reserved[index as usize].add(sum),
                _ => reserved[INDEX_FOREIGN as usize].add(sum),
            }
        }
        sites.sort_unstable_by_key(|(n, _)| *n);
        (reserved, tag_sums, sites)
    }
}

/// Something to read for one unit.
struct Job {
    /// Number of the unit.
    unit: u64,
    meta: UnitMeta,
    /// Address and length of its cells or bump region.
    at: u64,
    len: usize,
}

/// Ranges of units: (first, count).
type Ranges = Vec<(u64, u64)>;

/// Reads the account of a ledger.
pub(crate) fn scan(mem: &dyn Memory, view: &View) -> Account {
    let mut scan = Scan {
        mem,
        d: &view.d,
        unit_count: view.unit_count,
        account: Account::new(view),
        table: Vec::new(),
        cells: Vec::new(),
    };
    let mut todo: Ranges = vec![(0, view.unit_count.min(MAX_UNITS))];
    for round in 0..ROUNDS {
        let mut torn = Vec::new();
        for (first, count) in todo {
            scan.range(first, count, &mut torn);
        }
        todo = torn;
        if todo.is_empty() {
            break;
        }
        if round > 0 {
            std::thread::yield_now();
        }
    }
    scan.account.torn += todo.iter().map(|(_, n)| n).sum::<u64>();
    scan.account
}

struct Scan<'a> {
    mem: &'a dyn Memory,
    d: &'a Descriptor,
    unit_count: u64,
    account: Account,
    table: Vec<u8>,
    cells: Vec<u8>,
}

impl Scan<'_> {
    fn range(&mut self, first: u64, count: u64, torn: &mut Ranges) {
        let (mut at, end) = (first, first + count);
        while at < end {
            let n = CHUNK.min(end - at);
            if !self.read_table(at, n) {
                // The table ends here, or the process is going away.
                self.account.torn += end - at;
                return;
            }
            at = self.chunk(at, n, torn);
        }
    }

    /// Reads `n` unit records from number `first` on.
    fn read_table(&mut self, first: u64, n: u64) -> bool {
        let stride = u64::from(self.d.unit_stride);
        self.table.resize((n * stride) as usize, 0);
        let addr = self.d.units.wrapping_add(first * stride);
        self.mem.read(addr, &mut self.table).is_ok()
    }

    fn meta(&self, i: u64) -> UnitMeta {
        decode::unit(&self.table[(i * u64::from(self.d.unit_stride)) as usize..])
    }

    /// Works through the chunk in `self.table`; returns where to go on.
    fn chunk(&mut self, first: u64, n: u64, torn: &mut Ranges) -> u64 {
        let mut jobs = Vec::new();
        let (mut i, mut buffered) = (0, 0);
        while i < n {
            let (unit, meta) = (first + i, self.meta(i));
            if meta.seq & 1 == 1 {
                torn.push((unit, 1));
                i += 1;
                continue;
            }
            let run = u64::from(meta.units).max(1);
            match self.job(unit, &meta) {
                Some(job) => {
                    buffered += job.len;
                    jobs.push(job);
                    i += run;
                }
                None => {
                    if matches!(meta.kind, KIND_SLAB | KIND_LARGE | KIND_BUMP) {
                        self.account.torn += 1;
                    }
                    i += 1;
                }
            }
            if buffered > MAX_BATCH {
                // Rare: a chunk of very large regions. The rest of the chunk comes next.
                break;
            }
        }
        self.finish(first, n, jobs, torn);
        first + i
    }

    /// What to read for a head; `None` if it is no head or makes no sense.
    fn job(&self, unit: u64, m: &UnitMeta) -> Option<Job> {
        let shift = self.d.unit_shift;
        let begin = self.d.arena_base.checked_add(unit.checked_shl(shift)?)?;
        let units = u64::from(m.units).max(1);
        if units > self.unit_count - unit {
            return None;
        }
        let end = begin.checked_add(units << shift)?;
        let job = |at, len: u64| {
            Some(Job {
                unit,
                meta: *m,
                at,
                len: len as usize,
            })
        };
        match m.kind {
            KIND_SLAB => {
                let slots = u64::from(m.slots);
                let last = m.start.checked_add(slots.checked_mul(m.bytes)?)?;
                let sane = m.bytes >= MIN_SLOT && m.start >= begin && last <= end;
                let cells = slots * u64::from(self.d.cell_size);
                // Under `never` there are no cells.
                if sane && m.cells != 0 {
                    job(m.cells, cells)
                } else {
                    None
                }
            }
            KIND_LARGE => job(0, 0),
            KIND_BUMP if m.start >= begin && m.start < end => job(m.start, end - m.start),
            _ => None,
        }
    }

    /// Reads the cells of `jobs`, checks that their units stayed as they were, and adds them up.
    fn finish(&mut self, first: u64, n: u64, jobs: Vec<Job>, torn: &mut Ranges) {
        let (jobs, long): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|j| j.len <= MAX_BATCH);
        // One slab or bump region of more than that is not believed.
        self.account.torn += long.len() as u64;
        if jobs.is_empty() {
            return;
        }
        let mut cells = std::mem::take(&mut self.cells);
        let total: usize = jobs.iter().map(|j| j.len).sum();
        if cells.len() < total {
            cells.resize(total, 0);
        }
        let (mut spans, mut rest) = (Vec::with_capacity(jobs.len()), &mut cells[..total]);
        for j in &jobs {
            let (buf, after) = rest.split_at_mut(j.len);
            spans.push(Span::new(j.at, buf));
            rest = after;
        }
        self.mem.read_many(&mut spans);
        let again = self.read_table(first, n);
        for (job, span) in jobs.iter().zip(&spans) {
            let run = u64::from(job.meta.units).max(1);
            let now = self.meta(job.unit - first);
            let same = again && now.seq == job.meta.seq && now.kind == job.meta.kind;
            if !same || (job.len > 0 && !span.ok) {
                torn.push((job.unit, run));
                continue;
            }
            self.account.units += run;
            self.add(&job.meta, &now, span.buf);
        }
        self.cells = cells;
    }

    fn add(&mut self, m: &UnitMeta, now: &UnitMeta, cells: &[u8]) {
        match m.kind {
            KIND_LARGE if now.index != INDEX_NONE => self.account.add(now.index, m.bytes),
            KIND_SLAB if self.d.cell_size == 2 => {
                let mut active = 0;
                for c in cells.as_chunks::<2>().0.iter().filter(|c| **c != [0; 2]) {
                    self.account.add(u16::from_ne_bytes(*c).into(), m.bytes);
                    active += 1;
                }
                self.add_slab(m, active);
            }
            KIND_SLAB => {
                let mut active = 0;
                for c in cells.as_chunks::<4>().0.iter().filter(|c| **c != [0; 4]) {
                    self.account.add(u32::from_ne_bytes(*c), m.bytes);
                    active += 1;
                }
                self.add_slab(m, active);
            }
            KIND_BUMP => self.add_bump(cells),
            _ => {}
        }
    }

    /// Adds a slab with so many live objects to its cache.
    fn add_slab(&mut self, m: &UnitMeta, active: u64) {
        // Only named caches have a number.
        let pool = if m.class == CLASS_POOL { m.flags } else { 0 };
        let sum = self.account.slabs.entry((m.class, pool)).or_default();
        (sum.slot_bytes, sum.slots, sum.units) = (m.bytes, m.slots, m.units);
        sum.slabs += 1;
        sum.active_slabs += u64::from(active > 0);
        sum.active += active;
    }

    /// Adds the objects of a bump region: what follows each header, the header itself not.
    fn add_bump(&mut self, region: &[u8]) {
        const HEADER: usize = size_of::<BumpHeader>();
        let mut at = 0;
        while at + HEADER <= region.len() {
            let h = decode::bump(&region[at..]);
            let size = h.size as usize;
            if size == 0 {
                return;
            }
            if size < HEADER || !size.is_multiple_of(16) || size > region.len() - at {
                self.account.torn += 1;
                return;
            }
            if h.index != INDEX_NONE {
                self.account.add(h.index, (size - HEADER) as u64);
            }
            at += size;
        }
    }
}
