//! Memory of the nodes: one array that grows in place.
//!
//! Theory: a node's number is its index for ever, so the array must never move: address space for all nodes is
//! reserved at the start, and made accessible in steps. Numbers are handed out by counting. A thread whose node is
//! not accessible yet makes all accessible from the known mark up to the end of its own step, then raises the mark;
//! racing threads do the same work twice, but below the mark everything is accessible whoever raised it.

use crate::node::NodeCell;
use crate::platform::Platform;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Bytes that become accessible at a time.
const STEP: usize = 64 << 10;
const NODE: usize = size_of::<NodeCell>();

pub(crate) struct Store {
    base: AtomicPtr<NodeCell>,
    capacity: AtomicU32,
    next: AtomicU32,
    committed: AtomicUsize,
    /// A number given back; 0 = none.
    spare: AtomicU32,
}

impl Store {
    pub(crate) const fn new() -> Self {
        Self {
            base: AtomicPtr::new(core::ptr::null_mut()),
            capacity: AtomicU32::new(0),
            next: AtomicU32::new(0),
            committed: AtomicUsize::new(0),
            spare: AtomicU32::new(0),
        }
    }

    /// Reserves room for `most` nodes, or an 8th or a 64th of that, and hands out the root. The array is not visible
    /// until [`Store::open`].
    pub(crate) fn init(&self, platform: &impl Platform, most: u32) -> Option<*mut NodeCell> {
        for capacity in [most, most / 8, most / 64] {
            let base = platform.reserve((capacity as usize * NODE).next_multiple_of(STEP));
            if capacity > 0 && !base.is_null() {
                self.capacity.store(capacity, Ordering::Relaxed);
                return self.hand_out(platform, base.cast()).map(|_| base.cast());
            }
        }
        None
    }

    /// Lets walks begin.
    pub(crate) fn open(&self, base: *mut NodeCell) {
        self.base.store(base, Ordering::Release);
    }

    /// Node 0; null before [`Store::open`].
    #[inline]
    pub(crate) fn base(&self) -> *mut NodeCell {
        self.base.load(Ordering::Acquire)
    }

    /// Numbers that may be read.
    pub(crate) fn len(&self) -> u32 {
        let readable = self.committed.load(Ordering::Acquire) / NODE;
        self.next
            .load(Ordering::Acquire)
            .min(self.capacity.load(Ordering::Relaxed))
            .min(readable as u32)
    }

    /// Address of the count of numbers handed out.
    pub(crate) fn next_at(&self) -> u64 {
        self.next.as_ptr().expose_provenance() as u64
    }

    /// Address of the count of accessible bytes.
    pub(crate) fn bytes_at(&self) -> u64 {
        self.committed.as_ptr().expose_provenance() as u64
    }

    /// Accessible bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.committed.load(Ordering::Relaxed)
    }

    /// Takes back a number whose node nobody else has seen: two threads made the same node, and this one came second.
    pub(crate) fn give_back(&self, id: u32) {
        self.spare.store(id, Ordering::Release);
    }

    /// A new number whose node is accessible, and zero but for what filling overwrites.
    pub(crate) fn hand_out(&self, platform: &impl Platform, base: *mut NodeCell) -> Option<u32> {
        if self.spare.load(Ordering::Relaxed) != 0 {
            let spare = self.spare.swap(0, Ordering::Acquire);
            if spare != 0 {
                return Some(spare);
            }
        }
        let capacity = self.capacity.load(Ordering::Relaxed);
        if self.next.load(Ordering::Relaxed) >= capacity {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::AcqRel);
        if id >= capacity {
            self.next.store(capacity, Ordering::Relaxed);
            return None;
        }
        let from = self.committed.load(Ordering::Acquire);
        let need = (id as usize + 1) * NODE;
        if need > from {
            let to = need.next_multiple_of(STEP);
            if !platform.commit(base.cast::<u8>().wrapping_add(from), to - from) {
                // Give the number back if nobody took the next one: memory may come.
                let _ = self
                    .next
                    .compare_exchange(id + 1, id, Ordering::AcqRel, Ordering::Relaxed);
                return None;
            }
            self.committed.fetch_max(to, Ordering::AcqRel);
        }
        Some(id)
    }
}
