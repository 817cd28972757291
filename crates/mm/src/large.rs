//! Large objects: a run of units each, accounted in whole pages. The index stands in the hot record of the first unit; the other
//! units of the run keep empty records.
//!
//! Growing takes free units behind the object if there are any; else the pages are moved to another run without copying
//! (`mremap`), from [`MOVE_MIN`] bytes on. Shrinking gives whole units back and purges the pages of the last one.

use crate::arena::{UNIT, ZERO_CLEAN};
use crate::manager::{MAX_REQUEST, Manager};
use crate::platform::{Misuse, Moved, Platform, RunTaken};
use crate::unit::{get, set};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use memledger_abi::{KIND_LARGE, UNIT_SHIFT};

/// Pages are moved rather than copied from this size on, in bytes.
pub const MOVE_MIN: usize = 1 << 20;
/// Runs that live at a place their pages were moved to, at the most; beyond, objects are copied.
const MOVED_MAX: u32 = 8000;

impl<P: Platform> Manager<P> {
    /// A large object of `size` bytes aligned to `align`; zeroed if `zero`. Null when out of memory.
    #[cold]
    #[inline(never)]
    pub fn alloc_large(&self, size: usize, align: usize, zero: bool, index: u32) -> *mut u8 {
        if size > MAX_REQUEST - UNIT || align > MAX_REQUEST / 2 || !self.ready() {
            return null_mut();
        }
        let bytes = size.next_multiple_of(P::PAGE);
        let (Ok(n), Ok(align_units)) = (
            u32::try_from(bytes.div_ceil(UNIT)),
            u32::try_from(align.div_ceil(UNIT)),
        ) else {
            return null_mut();
        };
        let thread = P::thread();
        // SAFETY: this thread's slot.
        let nested = unsafe { (&raw const (*thread).busy).read_volatile() != 0 };
        let run = self.guarded(nested, || {
            let run = self.arena.take(n, align_units.max(1), zero, nested)?;
            P::run_taken(
                RunTaken {
                    first: run.first,
                    units: n,
                    large: true,
                    zero,
                },
                nested,
            );
            Some(run)
        });
        let Some(run) = run else {
            if !nested {
                return null_mut();
            }
            return self.alloc_bump(size, align, index);
        };
        let start = self.arena.address(run.first);
        if zero && !run.clean {
            if bytes >= ZERO_CLEAN {
                P::purge(start, bytes);
            } else {
                // SAFETY: the run is ours alone and has at least `bytes` bytes.
                unsafe { (start as *mut u8).write_bytes(0, bytes) };
            }
        }
        self.describe_large(run.first, n, bytes, index);
        start as *mut u8
    }

    fn describe_large(&self, first: u32, n: u32, bytes: usize, index: u32) {
        self.arena.hot(first).change(|h| {
            set!(h.start, self.arena.address(first) as u64);
            set!(h.bytes, bytes as u64);
            set!(h.slots, 1);
            set!(h.units, n);
            set!(h.back, 0);
            set!(h.recip, 0);
            set!(h.cells, 0);
            set!(h.index, index);
            set!(h.kind, KIND_LARGE);
        });
    }

    pub(crate) fn free_large(&self, first: u32, p: usize) {
        let hot = self.arena.hot(first);
        if hot.index.swap(0, Ordering::Relaxed) == 0 {
            P::misuse(Misuse::DoubleFree, p);
        }
        let n = get!(hot.units);
        self.arena.forget(first, 1);
        // SAFETY: this thread's slot.
        let nested = unsafe { (&raw const (*P::thread()).busy).read_volatile() != 0 };
        self.guarded(nested, || {
            P::run_given(first, nested);
            self.arena.give(first, n, nested)
        });
    }

    /// Resizes in place, if possible.
    pub(crate) fn resize_large(&self, first: u32, size: usize, index: u32) -> bool {
        let hot = self.arena.hot(first);
        let (old, n) = (get!(hot.bytes) as usize, get!(hot.units));
        if size > MAX_REQUEST - UNIT {
            return false;
        }
        let bytes = size.next_multiple_of(P::PAGE);
        let Ok(want) = u32::try_from(bytes.div_ceil(UNIT)) else {
            return false;
        };
        // SAFETY: this thread's slot.
        if unsafe { (&raw const (*P::thread()).busy).read_volatile() != 0 } {
            return false;
        }
        let start = self.arena.address(first);
        if want > n {
            if self
                .guarded(false, || self.arena.extend(first, n, want - n))
                .is_none()
            {
                return false;
            }
        } else if bytes < old {
            let end = start + ((want as usize) << UNIT_SHIFT);
            if start + bytes < end {
                P::purge(start + bytes, end.min(start + old) - (start + bytes));
            }
            if want < n {
                self.guarded(false, || {
                    self.arena.split(first, n, want);
                    let moved = get!(self.arena.cold(first).moved);
                    set!(self.arena.cold(first + want).moved, moved);
                    self.arena.moved_runs.fetch_add(moved, Ordering::Relaxed);
                    self.arena.give(first + want, n - want, false)
                });
            }
        }
        self.describe_large(first, want, bytes, index);
        true
    }

    /// Moves the pages of a large object to a new run. `None`: not for this size, or not possible; nothing has changed.
    pub(crate) fn move_large(
        &self,
        first: u32,
        size: usize,
        align: usize,
        index: u32,
    ) -> Option<*mut u8> {
        let hot = self.arena.hot(first);
        let old = get!(hot.bytes) as usize;
        if size < old || old < MOVE_MIN {
            return None;
        }
        let q = self.alloc_large(size, align, false, index);
        if q.is_null() {
            // The caller would try the same.
            return Some(q);
        }
        let to = self.arena.unit_of(q as usize)?;
        if get!(self.arena.hot(to).kind) != KIND_LARGE {
            return None;
        }
        let moved = if self.arena.moved_runs.load(Ordering::Relaxed) < MOVED_MAX {
            P::move_pages(self.arena.address(first), q as usize, old)
        } else {
            Moved::No
        };
        match moved {
            Moved::Yes => {
                self.arena.moved_runs.fetch_add(1, Ordering::Relaxed);
                set!(self.arena.cold(to).moved, 1);
            }
            // SAFETY: both objects are live and do not overlap; the new one is larger.
            Moved::No => unsafe {
                core::ptr::copy_nonoverlapping(self.arena.address(first) as *const u8, q, old);
            },
            Moved::Lost => {
                // The new run stays out of use; the object is as it was.
                self.arena.forget(to, 1);
                return Some(null_mut());
            }
        }
        self.free_large(first, self.arena.address(first));
        Some(q)
    }
}
