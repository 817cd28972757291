//! Sites: whom an allocation without a tag is charged to. One depot a runtime; a node's number, moved behind the
//! tags, is its index.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memledger_abi::{INDEX_FOREIGN, INDEX_TABLE_FULL, SITE_BASE};
use stackdepot::{Depot, StackBounds, Walk};

static DEPOT: Depot = Depot::new();
static DEPTH: AtomicU32 = AtomicU32::new(1);

/// Allocations whose stack found no room in the depot; they are charged to the `table_full` row.
pub static TABLE_FULL: AtomicU64 = AtomicU64::new(0);
/// Allocations of which not even the return address could be used; they are charged to the `foreign` row.
pub static NO_STACK: AtomicU64 = AtomicU64::new(0);

/// Makes the depot ready for sites of `depth` frames. `false`: no memory; then all sites are the `foreign` row.
pub fn init(depth: u32) -> bool {
    DEPTH.store(depth.max(1), Ordering::Relaxed);
    DEPOT.init().is_ok()
}

/// The depot of this runtime.
pub fn depot() -> &'static Depot {
    &DEPOT
}

/// Index of the calling site.
///
/// # Safety
/// As [`Depot::walk`]: `sp` is the address of the return address on the stack that this thread runs on, `bounds` is this
/// thread's.
#[inline]
pub unsafe fn site(sp: usize, fp: usize, bounds: &mut StackBounds) -> u32 {
    // SAFETY: by the contract.
    let walk = unsafe { DEPOT.walk(sp, fp, DEPTH.load(Ordering::Relaxed), bounds) };
    match walk.node() {
        Some(node) => SITE_BASE + node,
        None => no_node(walk),
    }
}

#[cold]
fn no_node(walk: Walk) -> u32 {
    if walk == Walk::FULL {
        TABLE_FULL.fetch_add(1, Ordering::Relaxed);
        INDEX_TABLE_FULL
    } else {
        NO_STACK.fetch_add(1, Ordering::Relaxed);
        INDEX_FOREIGN
    }
}

/// To be called after `dlclose`: return addresses in what was unloaded may come to mean something else.
pub fn modules_changed() {
    DEPOT.modules_changed();
}

/// To be called in the child after `fork`.
pub fn after_fork() {
    DEPOT.after_fork();
}
