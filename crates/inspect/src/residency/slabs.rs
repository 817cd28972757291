//! Goes over the unit table, byte by byte of what is resident.

use super::{Arena, IndexPin, SAMPLES};
use crate::decode;
use crate::mem::{Memory, Span};
use crate::smaps::{Pagemap, Pages};
use crate::view::View;
use crate::{Blocks, MigrateType};
use memledger_abi::{
    BumpHeader, Descriptor, KIND_BUMP, KIND_FREE, KIND_LARGE, KIND_META, KIND_SLAB, UnitMeta,
};
use std::collections::HashMap;
use std::io;

/// Units of the table read at a time: 64 MiB of address space.
const CHUNK: u64 = 1024;
/// Attempts at a run that is changing.
const ATTEMPTS: usize = 4;

/// One pass over the arena of a ledger.
pub(super) struct Walk<'a> {
    mem: &'a dyn Memory,
    pagemap: &'a Pagemap,
    d: &'a Descriptor,
    units: u64,
    table: Vec<u8>,
    /// Result: bytes by purpose.
    pub(super) arena: Arena,
    /// Result: who pins slabs.
    pub(super) pins: HashMap<u32, IndexPin>,
    /// Result: free runs and blocks.
    pub(super) blocks: Blocks,
}

impl<'a> Walk<'a> {
    pub(super) fn new(mem: &'a dyn Memory, pagemap: &'a Pagemap, view: &'a View) -> Self {
        Walk {
            mem,
            pagemap,
            d: &view.d,
            units: view.unit_count,
            table: Vec::new(),
            arena: Arena::default(),
            pins: HashMap::new(),
            blocks: Blocks::new(view.d.arena_base, view.d.unit_shift),
        }
    }

    /// Does it.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let stride = u64::from(self.d.unit_stride);
        let mut at = 0;
        while at < self.units {
            let n = CHUNK.min(self.units - at);
            self.table.resize((n * stride) as usize, 0);
            let addr = self.d.units.wrapping_add(at * stride);
            self.mem.read(addr, &mut self.table)?;
            let metas: Vec<UnitMeta> = (0..n)
                .map(|i| decode::unit(&self.table[(i * stride) as usize..]))
                .collect();
            let mut i = 0;
            while i < n {
                i += self.one(at + i, metas[i as usize])?;
            }
            // A run may reach over the end of the chunk.
            at += i;
        }
        self.blocks.finish();
        Ok(())
    }

    /// The run that begins at `unit`; returns its units.
    fn one(&mut self, unit: u64, first: UnitMeta) -> io::Result<u64> {
        let mut meta = first;
        for _ in 0..ATTEMPTS {
            let run = match meta.kind {
                KIND_SLAB | KIND_LARGE | KIND_BUMP => u64::from(meta.units).max(1),
                _ => 1,
            };
            let run = run.min(self.units - unit);
            let begin = self.d.arena_base + (unit << self.d.unit_shift);
            let end = begin + (run << self.d.unit_shift);
            let pages = self.pagemap.pages(begin, end)?;
            let cells = self.cells(&meta, begin, end);
            let now = self.read_unit(unit)?;
            if now.seq == meta.seq && meta.seq & 1 == 0 && cells.is_some() {
                self.account(&meta, begin, end, &pages, &cells.unwrap_or_default());
                let kind = match meta.kind {
                    KIND_FREE => None,
                    KIND_LARGE => Some(MigrateType::Movable),
                    _ => Some(MigrateType::Unmovable),
                };
                self.blocks.run(begin, end, kind);
                return Ok(run);
            }
            meta = now;
            std::thread::yield_now();
        }
        let begin = self.d.arena_base + (unit << self.d.unit_shift);
        let end = begin + (1 << self.d.unit_shift);
        self.arena.torn += self.pagemap.pages(begin, end)?.bytes(begin, end);
        self.blocks.run(begin, end, Some(MigrateType::Unmovable));
        Ok(1)
    }

    fn read_unit(&self, unit: u64) -> io::Result<UnitMeta> {
        let mut buf = vec![0; self.d.unit_stride as usize];
        let at = self.d.units + unit * u64::from(self.d.unit_stride);
        self.mem.read(at, &mut buf)?;
        Ok(decode::unit(&buf))
    }

    /// Cells of a slab or bytes of a bump region; empty for others. `None`: they cannot be read, or make no sense.
    fn cells(&self, m: &UnitMeta, begin: u64, end: u64) -> Option<Vec<u8>> {
        let (at, len) = match m.kind {
            KIND_SLAB => {
                let slots = u64::from(m.slots);
                let last = m.start.checked_add(slots.checked_mul(m.bytes)?)?;
                let len = slots * u64::from(self.d.cell_size);
                let sane = m.start >= begin && last <= end && m.bytes >= 8;
                let inside = m.cells >= last && m.cells.checked_add(len)? <= end;
                if !sane || !inside {
                    return None;
                }
                (m.cells, len)
            }
            KIND_BUMP if m.start >= begin && m.start < end => (m.start, end - m.start),
            KIND_BUMP => return None,
            _ => (0, 0),
        };
        let mut buf = vec![0; len as usize];
        let mut span = [Span::new(at, &mut buf)];
        if len > 0 {
            self.mem.read_many(&mut span);
            span[0].ok.then_some(())?;
        }
        Some(buf)
    }

    fn account(&mut self, m: &UnitMeta, begin: u64, end: u64, pages: &Pages, cells: &[u8]) {
        let all = pages.bytes(begin, end);
        match m.kind {
            KIND_FREE => self.arena.dirty += all,
            KIND_LARGE if m.index != 0 => {
                let live = pages.bytes(m.start, m.start.saturating_add(m.bytes).min(end));
                self.arena.large += live;
                self.arena.rounding += all - live;
            }
            KIND_LARGE => self.arena.dirty += all,
            KIND_SLAB => self.slab(m, all, pages, cells),
            KIND_BUMP => self.bump(m, all, pages, cells),
            KIND_META => self.arena.tables += all,
            _ => self.arena.torn += all,
        }
    }

    fn slab(&mut self, m: &UnitMeta, all: u64, pages: &Pages, cells: &[u8]) {
        let width = self.d.cell_size as usize;
        let index = |cell: &[u8]| match width {
            2 => u32::from(decode::u16_at(cell, 0)),
            _ => decode::u32_at(cell, 0),
        };
        let (mut live, mut objects) = (0, 0);
        let mut by: HashMap<u32, (u64, Vec<u64>)> = HashMap::new();
        for (i, cell) in cells.chunks_exact(width).enumerate() {
            let index = index(cell);
            if index == 0 {
                continue;
            }
            let at = m.start + i as u64 * m.bytes;
            live += pages.bytes(at, at + m.bytes);
            objects += 1;
            let (n, samples) = by.entry(index).or_default();
            *n += 1;
            if samples.len() < SAMPLES {
                samples.push(at);
            }
        }
        let slots = u64::from(m.slots) * m.bytes;
        let usable = pages.bytes(m.start, m.start + slots);
        self.arena.cells += all - usable;
        if objects == 0 {
            self.arena.empty += usable;
            return;
        }
        let free = usable - live;
        self.arena.small += live;
        self.arena.pinned += free;
        if objects == u64::from(m.slots) {
            return;
        }
        let slab = (m.start, objects * m.bytes, slots);
        let shares = share(free, objects, by.iter().map(|(&i, (n, _))| (i, *n)));
        for (index, (n, samples)) in by {
            let held = shares[&index];
            let pin = self.pins.entry(index).or_default();
            pin.held += held;
            pin.alone += if n == objects { held } else { 0 };
            pin.objects += n;
            pin.live += n * m.bytes;
            pin.slabs.push(slab);
            // The emptier the slab, the more its objects matter.
            pin.samples.extend(samples.iter().map(|&a| (objects, a)));
            if pin.samples.len() > 64 * SAMPLES {
                pin.samples.sort_unstable();
                pin.samples.truncate(SAMPLES);
            }
        }
    }

    fn bump(&mut self, m: &UnitMeta, all: u64, pages: &Pages, region: &[u8]) {
        const HEADER: usize = size_of::<BumpHeader>();
        let (mut at, mut live) = (0, 0);
        while at + HEADER <= region.len() {
            let h = decode::bump(&region[at..]);
            let size = h.size as usize;
            if size < HEADER || size > region.len() - at {
                break;
            }
            if h.index != 0 {
                let from = m.start + (at + HEADER) as u64;
                live += pages.bytes(from, m.start + (at + size) as u64);
            }
            at += size;
        }
        self.arena.small += live;
        self.arena.rounding += all - live;
    }
}

/// Shares `free` bytes out over the sites of a slab by their objects; the parts add up to it.
fn share(free: u64, objects: u64, sites: impl Iterator<Item = (u32, u64)>) -> HashMap<u32, u64> {
    let mut sites: Vec<(u32, u64)> = sites.collect();
    sites.sort_unstable_by_key(|&(index, n)| (n, index));
    let (mut seen, mut given) = (0, 0);
    let part = |(index, n)| {
        seen += n;
        let until = (u128::from(free) * u128::from(seen) / u128::from(objects.max(1))) as u64;
        let part = until - given;
        given = until;
        (index, part)
    };
    sites.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_add_up() {
        let parts = share(1000, 7, [(5, 1), (6, 2), (9, 4)].into_iter());
        assert_eq!(parts.values().sum::<u64>(), 1000);
        assert_eq!(parts[&9], 1000 - 1000 * 3 / 7);
        assert_eq!(share(0, 1, [(3, 1)].into_iter())[&3], 0);
    }
}
