//! Live bytes over time, in a fixed number of slices: when the trace outgrows them, each two become one.

/// Most slices.
const SLICES: usize = 256;

/// A slice of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slice {
    /// Allocations in it.
    pub allocs: u64,
    /// Frees in it.
    pub frees: u64,
    /// By how many bytes the live ones changed.
    pub change: i128,
}

/// Slices of equal length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timeline {
    start: Option<u64>,
    /// Length of a slice, in the unit of the trace.
    pub width: u64,
    /// The slices, from the first event on.
    pub slices: Vec<Slice>,
}

impl Timeline {
    /// Adds bytes allocated (more than 0) or freed.
    pub(super) fn add(&mut self, time: u64, bytes: i128) {
        let start = *self.start.get_or_insert(time);
        self.width = self.width.max(1000);
        let mut at = time.saturating_sub(start) / self.width;
        while at >= SLICES as u64 {
            self.width = self.width.saturating_mul(2);
            let merge = |pair: &[Slice]| {
                let mut all = pair[0];
                if let Some(second) = pair.get(1) {
                    all.allocs += second.allocs;
                    all.frees += second.frees;
                    all.change += second.change;
                }
                all
            };
            self.slices = self.slices.chunks(2).map(merge).collect();
            at = time.saturating_sub(start) / self.width;
        }
        let at = at as usize;
        if self.slices.len() <= at {
            self.slices.resize(at + 1, Slice::default());
        }
        let slice = &mut self.slices[at];
        slice.change += bytes;
        match bytes >= 0 {
            true => slice.allocs += 1,
            false => slice.frees += 1,
        }
    }
}
