//! Which part of memory is this thread's own stack.
//!
//! Theory: a walk reads only addresses from its stack pointer up to the end of the stack, so it cannot fault if that
//! range is known to be readable. The system says where a thread's stack ends (`hi`). Everything between a stack
//! pointer and
//! `hi` is stack if it is readable without a gap, for a guard page or a hole divides a stack from whatever is below it.
//! So when the stack pointer goes below what is known (`lo`), the pages between are asked for, from above; if all
//! are readable they are known from then on: stacks grow page by page, a page is asked for once.
//!
//! A stack pointer elsewhere (`sigaltstack`, green threads) is foreign: nothing is known of it but that the page it
//! points into is readable, and nothing is kept of it, for its memory may go away while the thread lives. That
//! verdict is cheap: the first unreadable page below `lo` (`barrier`) makes everything below it foreign. As the main
//! thread's stack may later grow over that hole, the barrier is asked for again every so many verdicts.
//!
//! A signal handler may interrupt a walk and use the same bounds: each field is one word, every value that is written was
//! true when it was found, and stays true for as long as the thread lives.

use crate::platform::Platform;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Largest distance from known stack that is looked at in one go, in bytes.
const MAX_GAP: usize = 8 << 20;
/// Largest stack, in bytes.
const MAX_STACK: usize = 1 << 30;
/// Foreign verdicts by the barrier before it is asked for again.
const RECHECK: u32 = 256;

/// What is known of one thread's stack. Keep one for each thread, zeroed at its start ([`StackBounds::ZERO`]).
#[derive(Debug)]
pub struct StackBounds {
    lo: AtomicUsize,
    hi: AtomicUsize,
    barrier: AtomicUsize,
    patience: AtomicU32,
}

impl Default for StackBounds {
    fn default() -> Self {
        Self::ZERO
    }
}

impl StackBounds {
    /// Nothing known yet.
    // Each use makes bounds of its own, as is meant.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const ZERO: Self = Self {
        lo: AtomicUsize::new(0),
        hi: AtomicUsize::new(0),
        barrier: AtomicUsize::new(0),
        patience: AtomicU32::new(0),
    };

    /// The known stack, `(lowest address, end)`; empty if nothing is known.
    pub fn known(&self) -> (usize, usize) {
        (
            self.lo.load(Relaxed).min(self.hi.load(Relaxed)),
            self.hi.load(Relaxed),
        )
    }

    /// Last 8-aligned word that a walk from `sp` may read.
    #[inline]
    pub(crate) fn last_word(&self, platform: &impl Platform, sp: usize) -> usize {
        if self.lo.load(Relaxed) <= sp && sp < self.hi.load(Relaxed) {
            self.hi.load(Relaxed) - 8
        } else {
            self.establish(platform, sp) - 8
        }
    }

    /// End of what may be read from `sp` on.
    #[cold]
    #[inline(never)]
    fn establish(&self, platform: &impl Platform, sp: usize) -> usize {
        let page = sp & !(PAGE - 1);
        let foreign = page + PAGE;
        let (mut lo, mut hi) = (self.lo.load(Relaxed), self.hi.load(Relaxed));
        if hi == 0 {
            // Never 0 again, so that it is asked once; nothing is below the first page. `lo` first: a handler that comes
            // between must not take [0, hi) for known.
            hi = (platform.stack_end() & !7).max(8);
            lo = hi.next_multiple_of(PAGE);
            self.lo.store(lo, Relaxed);
            self.hi.store(hi, Relaxed);
        }
        let near = sp < hi && lo.saturating_sub(page) <= MAX_GAP && hi - page <= MAX_STACK;
        if !near || self.behind_barrier(platform, page) {
            return foreign;
        }
        let mut below = lo;
        while below > page {
            if !platform.readable(below - PAGE) {
                self.barrier.store(below, Relaxed);
                self.patience.store(RECHECK, Relaxed);
                return foreign;
            }
            below -= PAGE;
        }
        self.lo.store(page, Relaxed);
        self.barrier.store(0, Relaxed);
        hi
    }

    fn behind_barrier(&self, platform: &impl Platform, page: usize) -> bool {
        if page >= self.barrier.load(Relaxed) {
            return false;
        }
        if self.patience.load(Relaxed) > 0 {
            self.patience.fetch_sub(1, Relaxed);
            return true;
        }
        self.patience.store(RECHECK, Relaxed);
        !platform.readable(self.barrier.load(Relaxed) - PAGE)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::platform::Object;
    use core::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    /// Pages below 64 that are readable, and how often somebody asked.
    struct Fake {
        pages: RefCell<BTreeSet<usize>>,
        asked: Cell<u32>,
        end: usize,
    }
    // SAFETY: a model; nothing is read through it.
    unsafe impl Platform for Fake {
        fn reserve(&self, _: usize) -> *mut u8 {
            core::ptr::null_mut()
        }
        fn commit(&self, _: *mut u8, _: usize) -> bool {
            false
        }
        fn map(&self, _: usize) -> *mut u8 {
            core::ptr::null_mut()
        }
        fn find_object(&self, _: usize) -> Option<Object> {
            None
        }
        fn readable(&self, page: usize) -> bool {
            self.asked.set(self.asked.get() + 1);
            self.pages.borrow().contains(&(page / PAGE))
        }
        fn stack_end(&self) -> usize {
            self.end
        }
    }
    fn fake(pages: impl IntoIterator<Item = usize>, end: usize) -> Fake {
        Fake {
            pages: RefCell::new(pages.into_iter().collect()),
            asked: Cell::new(0),
            end,
        }
    }

    #[test]
    fn each_page_is_asked_for_once() {
        let p = fake(10..20, 19 * PAGE + 128);
        let b = StackBounds::ZERO;
        let hi = 19 * PAGE + 128;
        assert_eq!(b.last_word(&p, 18 * PAGE + 8), hi - 8);
        assert_eq!(p.asked.get(), 2);
        assert_eq!(b.last_word(&p, 18 * PAGE), hi - 8);
        assert_eq!(p.asked.get(), 2);
        assert_eq!(b.last_word(&p, 15 * PAGE + 16), hi - 8);
        assert_eq!(p.asked.get(), 5);
        assert_eq!(b.known(), (15 * PAGE, hi));
    }

    #[test]
    fn beyond_a_hole_only_the_page_itself() {
        let p = fake((2..8).chain(10..20), 20 * PAGE);
        let b = StackBounds::ZERO;
        for _ in 0..100 {
            assert_eq!(b.last_word(&p, 4 * PAGE + 8), 5 * PAGE - 8);
        }
        assert!(p.asked.get() < 20, "{}", p.asked.get());
        assert_eq!(b.last_word(&p, 12 * PAGE), 20 * PAGE - 8);
        assert_eq!(b.last_word(&p, 3 * PAGE), 4 * PAGE - 8);
        // The stack grew over the hole.
        p.pages.borrow_mut().extend([8, 9]);
        let found = (0..2 * RECHECK).any(|_| b.last_word(&p, 4 * PAGE) == 20 * PAGE - 8);
        assert!(found);
    }

    #[test]
    fn above_the_end_and_without_an_end() {
        let p = fake(0..64, 20 * PAGE);
        let b = StackBounds::ZERO;
        assert_eq!(b.last_word(&p, 30 * PAGE + 8), 31 * PAGE - 8);
        assert_eq!(p.asked.get(), 0);
        let p = fake(0..64, 0);
        let b = StackBounds::ZERO;
        assert_eq!(b.last_word(&p, 30 * PAGE + 8), 31 * PAGE - 8);
        assert_eq!(p.asked.get(), 0);
        let far = fake(0..64, 1 << 40);
        let b = StackBounds::ZERO;
        assert_eq!(b.last_word(&far, 30 * PAGE), 31 * PAGE - 8);
        assert_eq!(far.asked.get(), 0);
    }
}
