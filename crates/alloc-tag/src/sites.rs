//! Sites: where an allocation without a tag comes from, as an index.
//!
//! The context trie of `stackdepot` turns a stack into the number of a node; the index space puts the nodes behind the
//! tags: node `n` has the index `SITE_BASE + n`. Walks that end in no node go to reserved rows and are counted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memledger_abi::{INDEX_FOREIGN, INDEX_TABLE_FULL, SITE_BASE};
use stackdepot::{Depot, StackBounds, Walk};

use crate::settings::Settings;

/// All sites of the runtime. The runtime calls `init` once before the first [`site`], and `after_fork` in a child.
pub static DEPOT: Depot = Depot::new();

/// Frames kept of a site: [`Settings::depth`].
pub static DEPTH: AtomicU32 = AtomicU32::new(Settings::DEFAULT.depth);

static TABLE_FULL: AtomicU64 = AtomicU64::new(0);
static NO_STACK: AtomicU64 = AtomicU64::new(0);

/// Index of the site that the stack stands for; the row of what was lost if there is none. `sp` is the address of the
/// return address into the caller of the allocation function, `fp` is the frame pointer register at that moment.
///
/// # Safety
/// As [`Depot::walk`]: `sp` points into the stack that this thread runs on, and `bounds` is this thread's own.
#[inline]
pub unsafe fn site(sp: usize, fp: usize, bounds: &mut StackBounds) -> u32 {
    // SAFETY: by the contract.
    let walk = unsafe { DEPOT.walk(sp, fp, DEPTH.load(Ordering::Relaxed), bounds) };
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

/// Address of the count of walks that found the table full, a `u64`. For [`memledger_abi::loss::TABLE_FULL`].
pub fn table_full_address() -> u64 {
    &raw const TABLE_FULL as u64
}

/// Address of the count of walks without a stack, a `u64`. For [`memledger_abi::loss::NO_STACK`].
pub fn no_stack_address() -> u64 {
    &raw const NO_STACK as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `site` as an allocation function would: with the address of its own return address.
    #[unsafe(naked)]
    extern "C" fn here(bounds: &mut StackBounds) -> u32 {
        core::arch::naked_asm!("mov rdx, rdi", "mov rdi, rsp", "mov rsi, rbp", "jmp {}", sym from_asm)
    }

    extern "C" fn from_asm(sp: usize, fp: usize, bounds: &mut StackBounds) -> u32 {
        // SAFETY: `here` passes its stack pointer; the bounds are the test thread's.
        unsafe { site(sp, fp, bounds) }
    }

    #[inline(never)]
    fn one(bounds: &mut StackBounds) -> u32 {
        core::hint::black_box(here(bounds))
    }

    #[inline(never)]
    fn two(bounds: &mut StackBounds) -> u32 {
        core::hint::black_box(here(bounds))
    }

    fn count(address: u64) -> u64 {
        // SAFETY: the address of one of the counts above.
        unsafe { (*(address as *const AtomicU64)).load(Ordering::Relaxed) }
    }

    #[test]
    fn stacks_become_indexes_and_losses_are_counted() {
        let mut bounds = StackBounds::ZERO;
        assert_eq!(
            (one(&mut bounds), count(no_stack_address())),
            (INDEX_FOREIGN, 1)
        );
        DEPOT.init().unwrap();
        let mut seen = [0; 6];
        for (i, seen) in seen.iter_mut().enumerate() {
            *seen = if i % 2 == 0 {
                one(&mut bounds)
            } else {
                two(&mut bounds)
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
        assert_eq!(unsafe { site(9, 0, &mut bounds) }, INDEX_FOREIGN);
        assert_eq!(
            (count(no_stack_address()), count(table_full_address())),
            (2, 0)
        );
        assert_eq!(lost(Walk::FULL), INDEX_TABLE_FULL);
        assert_eq!(count(table_full_address()), 1);
    }
}
