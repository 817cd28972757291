//! A node of the context trie, as threads share it.
//!
//! Theory: a node stands for "this return address, reached from that inner frame". Its identity (`key`, `parent`) is
//! written once, before the node can be found, and never changes; what changes later are single words, each right
//! for itself: the unwind rule (0 until somebody needs it), the dead bit, and the inline child.
//!
//! The inline child is the child seen first. It makes the common frame free of hashing: most nodes have one child.
//! It is set once, in three steps: claim (`child_ra` 0 -> 1 by CAS), write `child`, release `child_ra`. Who sees
//! `child_ra == ra` therefore sees `child`. When the child dies, `child_ra` goes back to 1: nobody can claim it
//! again, so `child` never changes under a reader; only the same child, come to life again, may put its `ra` back.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Low 48 bits of a key: the return address.
pub(crate) const RA_MASK: u64 = 0x0000_ffff_ffff_ffff;
/// Flag: the module of the node was unloaded.
pub(crate) const DEAD: u32 = 1;
/// `child_ra` of a node whose inline child is being written, or is dead. No return address is that small.
const CLAIMED: u64 = 1;

/// Shared form of [`memledger_abi::Node`].
#[repr(C)]
pub(crate) struct NodeCell {
    pub(crate) key: AtomicU64,
    pub(crate) parent: AtomicU32,
    pub(crate) rule: AtomicU32,
    pub(crate) child_ra: AtomicU64,
    pub(crate) child: AtomicU32,
    pub(crate) flags: AtomicU32,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    use memledger_abi::Node;
    assert!(size_of::<NodeCell>() == size_of::<Node>());
    assert!(align_of::<NodeCell>() == align_of::<Node>());
    assert!(offset_of!(NodeCell, key) == offset_of!(Node, key));
    assert!(offset_of!(NodeCell, parent) == offset_of!(Node, parent));
    assert!(offset_of!(NodeCell, rule) == offset_of!(Node, rule));
    assert!(offset_of!(NodeCell, child_ra) == offset_of!(Node, child_ra));
    assert!(offset_of!(NodeCell, child) == offset_of!(Node, child));
    assert!(offset_of!(NodeCell, flags) == offset_of!(Node, flags));
};

impl NodeCell {
    /// Fills a node that nobody else can find yet.
    pub(crate) fn fill(&self, parent: u32, ra: u64, module: u32, depth: u32) {
        self.key
            .store(ra & RA_MASK | u64::from(module) << 48, Ordering::Relaxed);
        self.parent.store(parent, Ordering::Relaxed);
        self.flags.store(depth.min(255) << 8, Ordering::Relaxed);
    }

    /// Return address.
    #[inline]
    pub(crate) fn ra(&self) -> u64 {
        self.key.load(Ordering::Relaxed) & RA_MASK
    }

    /// Number of the module record; 0 = none.
    pub(crate) fn module(&self) -> u32 {
        (self.key.load(Ordering::Relaxed) >> 48) as u32
    }

    /// Frames from the innermost one to this one.
    pub(crate) fn depth(&self) -> u32 {
        self.flags.load(Ordering::Relaxed) >> 8 & 255
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & DEAD != 0
    }

    /// Same frame reached from the same inner frames, dead or not?
    #[inline]
    pub(crate) fn stands_for(&self, parent: u32, ra: u64) -> bool {
        self.ra() == ra && self.parent.load(Ordering::Relaxed) == parent
    }

    /// The inline child, if it is the one for `ra`. Only addresses that were inserted can match.
    #[inline]
    pub(crate) fn inline_child(&self, ra: u64) -> Option<u32> {
        (self.child_ra.load(Ordering::Acquire) == ra && ra > CLAIMED)
            .then(|| self.child.load(Ordering::Relaxed))
    }

    /// Makes `child` the inline child if there was none yet.
    pub(crate) fn offer_child(&self, ra: u64, child: u32) {
        if self
            .child_ra
            .compare_exchange(0, CLAIMED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.child.store(child, Ordering::Relaxed);
            self.child_ra.store(ra, Ordering::Release);
        }
    }

    /// Marks the node dead; it keeps its place, so that old handles can still be read.
    #[cfg(not(loom))]
    pub(crate) fn kill(&self) {
        self.flags.fetch_or(DEAD, Ordering::Relaxed);
    }

    /// The dead node's module is mapped again where it was: use the node again. Rules are read anew.
    pub(crate) fn revive(&self) {
        self.rule.store(0, Ordering::Relaxed);
        self.flags.fetch_and(!DEAD, Ordering::Release);
    }

    /// Takes the inline child out of use if it is set.
    #[cfg(not(loom))]
    pub(crate) fn hide_child(&self) {
        let ra = self.child_ra.load(Ordering::Relaxed);
        if ra > CLAIMED {
            let _ =
                self.child_ra
                    .compare_exchange(ra, CLAIMED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Puts a revived inline child back in use. `child` is written at most once, so a match is the published value.
    pub(crate) fn show_child(&self, ra: u64, child: u32) {
        if self.child.load(Ordering::Relaxed) == child {
            let _ =
                self.child_ra
                    .compare_exchange(CLAIMED, ra, Ordering::Release, Ordering::Relaxed);
        }
    }
}
