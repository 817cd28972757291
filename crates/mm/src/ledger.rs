//! Reading the account of this process from inside: the same scan that readers from outside do, without a lock and without
//! allocating. A slab that changes hands during its scan is read again.

use crate::manager::Manager;
use crate::platform::Platform;
use crate::unit::get;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use memledger_abi::{KIND_LARGE, KIND_SLAB};

/// Cells of the slab with the most slots fit here.
pub const CELLS_MAX: usize = 8192;

/// What a scan could not read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Torn {
    /// Slabs that changed hands at every attempt; they are not in the sums.
    pub slabs: u64,
}

impl<P: Platform> Manager<P> {
    /// Calls `f(index, bytes)` for every live object. `scratch` holds the cells of one slab meanwhile.
    pub fn scan(&self, scratch: &mut [u32; CELLS_MAX], mut f: impl FnMut(u32, u64)) -> Torn {
        let mut torn = Torn::default();
        if !self.ready() {
            return torn;
        }
        self.bump.for_each(&self.arena, &mut f);
        let count = self.arena.unit_count();
        let mut u = crate::arena::BUMP_UNITS;
        while u < count {
            let mut step = None;
            for _ in 0..8 {
                step = self.scan_unit(u, scratch, &mut f);
                if step.is_some() {
                    break;
                }
            }
            torn.slabs += u64::from(step.is_none());
            u += step.unwrap_or(1).max(1);
        }
        torn
    }

    /// Scans the run that begins at `u`; returns its units, or `None` if it changed meanwhile.
    fn scan_unit(
        &self,
        u: u32,
        scratch: &mut [u32; CELLS_MAX],
        f: &mut impl FnMut(u32, u64),
    ) -> Option<u32> {
        let hot = self.arena.hot(u);
        let seq = hot.seq.load(Ordering::Acquire);
        let (kind, bytes, units) = (get!(hot.kind), get!(hot.bytes), get!(hot.units));
        let (cells, slots, index) = (
            get!(hot.cells) as usize,
            get!(hot.slots) as usize,
            get!(hot.index),
        );
        let unchanged = || {
            fence(Ordering::Acquire);
            seq.is_multiple_of(2) && get!(hot.seq) == seq
        };
        match kind {
            KIND_SLAB => {
                if !unchanged() || slots > CELLS_MAX {
                    return None;
                }
                let slots = if cells == 0 { 0 } else { slots };
                for (i, copy) in scratch.iter_mut().enumerate().take(slots) {
                    // SAFETY: the record was whole, so these are addresses of cells; arena memory stays mapped even if the slab is
                    // released meanwhile (then the copy is thrown away).
                    *copy =
                        unsafe { (*(cells as *const AtomicU32).add(i)).load(Ordering::Relaxed) };
                }
                if !unchanged() {
                    return None;
                }
                for &i in scratch[..slots].iter().filter(|&&i| i != 0) {
                    f(i, bytes);
                }
                Some(units)
            }
            KIND_LARGE => {
                if !unchanged() {
                    return None;
                }
                if index != 0 {
                    f(index, bytes);
                }
                Some(units)
            }
            _ => unchanged().then_some(1),
        }
    }
}
