//! How free memory of an arena is cut up: the figures of `/proc/buddyinfo` and `/proc/pagetypeinfo` (mm/vmstat.c), in the
//! kernel's text.
//!
//! A free run is cut into aligned blocks of 2^order pages, the largest first, as the kernel's buddy allocator keeps them. The
//! type of a block of 512 pages (2 MiB) is that of what is in use in it: one slab or table makes it unmovable; with nothing but
//! large objects, whose pages can be moved, it is movable; as is one that is all free. A free run counts for the type of its block.

use std::fmt::Write;

/// Orders 0 to 10, as the kernel has them by default.
pub const ORDERS: usize = 11;
const PAGE_SHIFT: u32 = 12;
const BLOCK_ORDER: u32 = 9;
/// Types in the kernel's order (`include/linux/mmzone.h`).
const NAMES: [&str; 6] = [
    "Unmovable",
    "Movable",
    "Reclaimable",
    "HighAtomic",
    "CMA",
    "Isolate",
];

/// The types that occur here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrateType {
    /// Slabs and tables: pointers into them are everywhere.
    Unmovable = 0,
    /// Large objects: `realloc` moves their pages.
    Movable = 1,
}

/// Free runs by type and order, and blocks by type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Blocks {
    base: u64,
    unit_shift: u32,
    /// Free ranges of the block that is being read.
    pending: Vec<(u64, u64)>,
    block: Option<u64>,
    kind: Option<MigrateType>,
    /// Free blocks: `[type][order]`.
    pub free: [[u64; ORDERS]; 2],
    /// Blocks of 512 pages by type.
    pub blocks: [u64; 2],
}

impl Blocks {
    /// For an arena at `base`.
    pub(crate) fn new(base: u64, unit_shift: u32) -> Self {
        Blocks {
            base,
            unit_shift,
            ..Blocks::default()
        }
    }

    /// The next run in order of address: free (`None`) or in use.
    pub(crate) fn run(&mut self, begin: u64, end: u64, kind: Option<MigrateType>) {
        let size = 1 << (BLOCK_ORDER + PAGE_SHIFT);
        let mut at = begin;
        while at < end {
            let block = at / size;
            if self.block != Some(block) {
                self.close();
                self.block = Some(block);
            }
            let to = end.min((block + 1) * size);
            match kind {
                None => match self.pending.last_mut() {
                    Some(last) if last.1 == at => last.1 = to,
                    _ => self.pending.push((at, to)),
                },
                Some(kind) => self.kind = Some(self.kind.map_or(kind, |k| k.min(kind))),
            }
            at = to;
        }
    }

    /// The last run was seen.
    pub(crate) fn finish(&mut self) {
        self.close();
    }

    fn close(&mut self) {
        if self.block.take().is_none() {
            return;
        }
        let kind = self.kind.take().unwrap_or(MigrateType::Movable) as usize;
        self.blocks[kind] += 1;
        for (begin, end) in std::mem::take(&mut self.pending) {
            let (mut at, end) = (begin >> PAGE_SHIFT, end >> PAGE_SHIFT);
            while at < end {
                let aligned = at.trailing_zeros().min(ORDERS as u32 - 1);
                let order = aligned.min((end - at).ilog2());
                self.free[kind][order as usize] += 1;
                at += 1 << order;
            }
        }
    }

    /// Adds another arena's.
    pub(crate) fn add(&mut self, other: &Blocks) {
        for (mine, theirs) in self.free.iter_mut().zip(&other.free) {
            mine.iter_mut().zip(theirs).for_each(|(m, t)| *m += t);
        }
        let blocks = self.blocks.iter_mut().zip(other.blocks);
        blocks.for_each(|(m, t)| *m += t);
    }

    /// The text of `/proc/buddyinfo`: one line, zone `Normal` of node 0.
    pub fn buddyinfo(&self) -> String {
        let mut text = format!("Node 0, zone {:>8} ", "Normal");
        for order in 0..ORDERS {
            let n: u64 = self.free.iter().map(|f| f[order]).sum();
            let _ = write!(text, "{n:>6} ");
        }
        text.push('\n');
        text
    }

    /// The text of `/proc/pagetypeinfo`.
    pub fn pagetypeinfo(&self) -> String {
        let mut text = format!(
            "Page block order: {BLOCK_ORDER}\nPages per block:  {}\n\n{:<43} ",
            1 << BLOCK_ORDER,
            "Free pages count per migrate type at order"
        );
        for order in 0..ORDERS {
            let _ = write!(text, "{order:>6} ");
        }
        text.push('\n');
        for (i, name) in NAMES.iter().enumerate() {
            let _ = write!(
                text,
                "Node {:>4}, zone {:>8}, type {name:>12} ",
                0, "Normal"
            );
            for order in 0..ORDERS {
                let n = self.free.get(i).map_or(0, |f| f[order]);
                let _ = write!(text, "{n:>6} ");
            }
            text.push('\n');
        }
        let _ = write!(text, "\n{:<23}", "Number of blocks type ");
        for name in NAMES {
            let _ = write!(text, "{name:>12} ");
        }
        let _ = write!(text, "\nNode 0, zone {:>8} ", "Normal");
        for i in 0..NAMES.len() {
            let n = self.blocks.get(i).copied().unwrap_or(0);
            let _ = write!(text, "{n:>12} ");
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_runs_are_cut_like_buddies() {
        let mut b = Blocks::new(0x20_0000, 16);
        // Block 1: 64 KiB slab, 192 KiB free, the rest large. Block 2: all free.
        b.run(0x20_0000, 0x21_0000, Some(MigrateType::Unmovable));
        b.run(0x21_0000, 0x22_0000, None);
        b.run(0x22_0000, 0x24_0000, None);
        b.run(0x24_0000, 0x40_0000, Some(MigrateType::Movable));
        b.run(0x40_0000, 0x60_0000, None);
        // Block 3: large only.
        b.run(0x60_0000, 0x80_0000, Some(MigrateType::Movable));
        b.finish();
        assert_eq!(b.blocks, [1, 2]);
        let mut want = [[0; ORDERS]; 2];
        (want[0][4], want[0][5], want[1][9]) = (1, 1, 1);
        assert_eq!(b.free, want);
        assert_eq!(
            b.buddyinfo(),
            "Node 0, zone   Normal      0      0      0      0      1      1      0      0      0      1      0 \n"
        );
        assert!(b.pagetypeinfo().contains(
            "Node    0, zone   Normal, type    Unmovable      0      0      0      0      1      1      0      0      0      0      0 \n"
        ));
        assert!(
            b.pagetypeinfo()
                .contains("type     Unmovable      Movable  Reclaimable")
        );
    }
}
