//! The current tag of a thread.
//!
//! The slot is 8 bytes; the low 4 hold the index, 0 = no tag, the high 4 are unused. `SLOT` is this copy's idea of where
//! it is: the distance from the thread pointer, 0 while no runtime is known. It changes once, from 0, so a guard that saw 0
//! restores nothing and one that saw a slot restores that slot.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicI64, Ordering};

use codetag::CodeTag;

use crate::arch;

static SLOT: AtomicI64 = AtomicI64::new(0);

/// Makes the slot known. Returns whether it is the one now in use.
pub(crate) fn adopt(offset: i64) -> bool {
    match SLOT.compare_exchange(0, offset, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(known) => known == offset,
    }
}

/// Distance from the thread pointer to the slot; 0 = none known.
#[inline(always)]
pub(crate) fn offset() -> i64 {
    SLOT.load(Ordering::Relaxed)
}

/// Index of the calling thread's current tag; 0 = none.
#[inline(always)]
pub fn current() -> u32 {
    let slot = offset();
    if slot == 0 {
        return 0;
    }
    // SAFETY: a non-zero `SLOT` came from a runtime, as the distance of its slot.
    unsafe { arch::load(slot) }
}

/// Makes `index` the calling thread's current tag (0 = none), and returns the one before. Does nothing, and returns 0,
/// while there is no runtime.
#[inline(always)]
pub fn set_current(index: u32) -> u32 {
    let slot = offset();
    if slot == 0 {
        return 0;
    }
    // SAFETY: as in `current`.
    unsafe {
        let old = arch::load(slot);
        arch::store(slot, index);
        old
    }
}

/// Restores the tag that was current before, when dropped. Not `Send`: the tag is the thread's.
#[derive(Debug)]
#[must_use = "the tag is current only as long as the guard lives"]
pub struct Guard {
    /// 0 = nothing to restore.
    slot: i64,
    old: u32,
    not_send: PhantomData<*const ()>,
}

/// Makes a tag current until the guard is dropped. An unregistered tag changes nothing: the outer tag stays.
#[inline(always)]
pub fn enter(tag: &CodeTag) -> Guard {
    enter_index(tag.index())
}

/// As [`enter`], by index; 0 changes nothing.
#[inline(always)]
pub fn enter_index(index: u32) -> Guard {
    let slot = offset();
    if index == 0 || slot == 0 {
        return Guard {
            slot: 0,
            old: 0,
            not_send: PhantomData,
        };
    }
    // SAFETY: as in `current`.
    let old = unsafe {
        let old = arch::load(slot);
        arch::store(slot, index);
        old
    };
    Guard {
        slot,
        old,
        not_send: PhantomData,
    }
}

/// As [`enter_index`], but 0 makes no tag current.
#[inline]
pub(crate) fn enter_exactly(index: u32) -> Guard {
    Guard {
        slot: offset(),
        old: set_current(index),
        not_send: PhantomData,
    }
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        if self.slot != 0 {
            // SAFETY: the distance that `enter_index` used on this thread.
            unsafe { arch::store(self.slot, self.old) }
        }
    }
}
