//! Sites: where an allocation without a tag comes from, as an index.
//!
//! The context trie of `stackdepot` turns a stack into the number of a node; the index space puts the nodes behind the
//! tags: node `n` has the index `SITE_BASE + n`. Walks that end in no node go to reserved rows and are counted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memledger_abi::{INDEX_FOREIGN, INDEX_TABLE_FULL, SITE_BASE};
pub use stackdepot::Paths;
use stackdepot::{Depot, StackBounds, Walk};

use crate::settings::Settings;

static DEPOT: Depot = Depot::new();
static DEPTH: AtomicU32 = AtomicU32::new(Settings::DEFAULT.depth);

/// Allocations whose stack found no room in the depot; they are charged to the `table_full` row.
pub static TABLE_FULL: AtomicU64 = AtomicU64::new(0);
/// Allocations of which not even the return address could be used; they are charged to the `foreign` row.
pub static NO_STACK: AtomicU64 = AtomicU64::new(0);

/// Makes the depot ready for sites of `depth` frames, at least 1. `false`: there is no memory, or it was ready; without
/// memory all sites are the `foreign` row.
pub fn init(depth: u32) -> bool {
    DEPTH.store(depth.max(1), Ordering::Relaxed);
    DEPOT.init().is_ok()
}

/// The depot of this runtime.
pub fn depot() -> &'static Depot {
    &DEPOT
}

/// Frames kept of a site: [`Settings::depth`].
pub fn depth() -> u32 {
    DEPTH.load(Ordering::Relaxed)
}

/// Index of the site that the stack stands for; the row of what was lost if there is none. `sp` is the address of the
/// return address into the caller of the allocation function, `fp` is the frame pointer register at that moment.
///
/// # Safety
/// As [`Depot::walk`]: `sp` points into the stack that this thread runs on, and `bounds` is of this thread (a signal handler may share it).
#[inline]
pub unsafe fn site(sp: usize, fp: usize, bounds: &StackBounds) -> u32 {
    // SAFETY: by the contract.
    let walk = unsafe { DEPOT.walk(sp, fp, depth(), bounds) };
    index(walk)
}

/// As [`site`], by way of this thread's table of walks, which [`stackdepot::Paths::begin`] made for [`depth`] frames.
///
/// # Safety
/// As [`site`]; `paths` is of this thread, too.
#[inline]
pub unsafe fn known_site(sp: usize, fp: usize, bounds: &StackBounds, paths: &Paths) -> u32 {
    // SAFETY: by the contract.
    index(unsafe { DEPOT.walk_known(sp, fp, depth(), bounds, paths) })
}

#[inline]
fn index(walk: Walk) -> u32 {
    match walk.node() {
        Some(node) => SITE_BASE + node,
        None => lost(walk),
    }
}

#[cold]
fn lost(walk: Walk) -> u32 {
    let (count, index) = match walk {
        Walk::FULL => (&TABLE_FULL, INDEX_TABLE_FULL),
        _ => (&NO_STACK, INDEX_FOREIGN),
    };
    count.fetch_add(1, Ordering::Relaxed);
    index
}

/// To be called after `dlclose`: return addresses in what was unloaded may come to mean something else.
pub fn modules_changed() {
    DEPOT.modules_changed();
}

/// To be called in the child after `fork`; see also [`crate::runtime::after_fork`].
pub fn after_fork() {
    DEPOT.after_fork();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `site` as an allocation function would: with the address of its own return address.
    #[unsafe(naked)]
    extern "C" fn here(bounds: &StackBounds) -> u32 {
        core::arch::naked_asm!("mov rdx, rdi", "mov rdi, rsp", "mov rsi, rbp", "jmp {}", sym from_asm)
    }

    extern "C" fn from_asm(sp: usize, fp: usize, bounds: &StackBounds) -> u32 {
        // SAFETY: `here` passes its stack pointer; the bounds are the test thread's.
        unsafe { site(sp, fp, bounds) }
    }

    #[inline(never)]
    fn one(bounds: &StackBounds) -> u32 {
        core::hint::black_box(here(bounds))
    }

    #[inline(never)]
    fn two(bounds: &StackBounds) -> u32 {
        // Other code than `one`, so that the two are not merged.
        !core::hint::black_box(!here(bounds))
    }

    fn count(of: &AtomicU64) -> u64 {
        of.load(Ordering::Relaxed)
    }

    #[test]
    fn stacks_become_indexes_and_losses_are_counted() {
        let bounds = StackBounds::ZERO;
        assert_eq!((one(&bounds), count(&NO_STACK)), (INDEX_FOREIGN, 1));
        // One frame: the calls below may be unrolled.
        assert!(init(1) && depth() == 1 && !init(1));
        let mut seen = [0; 6];
        for (i, seen) in seen.iter_mut().enumerate() {
            *seen = if i % 2 == 0 {
                one(&bounds)
            } else {
                two(&bounds)
            };
        }
        assert_eq!((seen[0], seen[1]), (seen[2], seen[3]));
        assert_eq!((seen[0], seen[1]), (seen[4], seen[5]));
        assert!(seen[0] > SITE_BASE && seen[1] > SITE_BASE && seen[0] != seen[1]);
        assert!(
            seen.iter()
                .all(|index| index - SITE_BASE < DEPOT.node_count())
        );
        // SAFETY: address 9 is refused unread: a stack word is aligned.
        assert_eq!(unsafe { site(9, 0, &bounds) }, INDEX_FOREIGN);
        assert_eq!((count(&NO_STACK), count(&TABLE_FULL)), (2, 0));
        assert_eq!(lost(Walk::FULL), INDEX_TABLE_FULL);
        assert_eq!(count(&TABLE_FULL), 1);
    }
}
