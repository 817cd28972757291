//! Named caches of this process.

use super::api::{Whom, site, whom};
use super::trace::{indexes, record, tracing};
use super::{Linux, MM, allocation_failed, init};
use crate::pool::{Pool, PoolError, PoolSpec};
use kmemtrace::Fact;
use memledger_abi::pool::pool_cache;
use memledger_abi::trace::{OP_ALLOC, OP_FREE, TYPE_CACHE};

/// A cache of this process.
pub type Cache = Pool<Linux>;

/// Makes a cache.
///
/// # Errors
/// See [`PoolError`].
pub fn pool_create(spec: &PoolSpec<'_>) -> Result<&'static Cache, PoolError> {
    if !init() {
        return Err(PoolError::NoMemory);
    }
    MM.pool_create(spec)
}

/// An object of `pool`. Null: out of memory.
///
/// # Safety
/// `sp` is the address of the stack word that holds the return address of the allocation function, `fp` the frame pointer register
/// at its entry.
pub unsafe fn pool_allocate(pool: &Cache, sp: usize, fp: usize) -> *mut u8 {
    let index = match whom() {
        Whom::Index(index) => index,
        Whom::Site => site(sp, fp),
        Whom::Traced => return allocate_traced(pool, sp, fp),
    };
    let p = MM.pool_alloc(pool, index);
    if p.is_null() {
        allocation_failed(pool.record().object_bytes as usize);
    }
    p
}

#[cold]
#[inline(never)]
fn allocate_traced(pool: &Cache, sp: usize, fp: usize) -> *mut u8 {
    let (index, charged) = indexes(sp, fp);
    let p = MM.pool_alloc(pool, charged);
    if !p.is_null() {
        event(pool, OP_ALLOC, index, p as usize);
    }
    p
}

fn event(pool: &Cache, op: u8, index: u32, ptr: usize) {
    let about = pool.record();
    let given = about.slot_bytes as usize;
    record(&Fact {
        op,
        kind: TYPE_CACHE,
        flags: 0,
        cache: pool_cache(about.id) as u8,
        index,
        ptr,
        requested: if op == OP_ALLOC {
            about.object_bytes as usize
        } else {
            given
        },
        given,
    });
}

/// Frees an object of `pool`.
///
/// # Safety
/// `p` is a live object of `pool`, and is not used afterwards.
pub unsafe fn pool_free(pool: &Cache, p: *mut u8) {
    let p = p as usize;
    if tracing()
        && let Some(index) = MM.pool_index(pool, p)
    {
        event(pool, OP_FREE, index, p);
    }
    // SAFETY: by the contract.
    unsafe { MM.pool_free(pool, p) }
}

/// Gives the empty slabs of `pool` back; returns their bytes.
pub fn pool_shrink(pool: &Cache) -> usize {
    MM.pool_shrink(pool)
}

/// Ends `pool`.
///
/// # Errors
/// The number of objects that are live, and stay.
///
/// # Safety
/// `pool` is not used afterwards, but for [`pool_objects`] after an error.
pub unsafe fn pool_destroy(pool: &Cache) -> Result<(), u64> {
    // SAFETY: by the contract.
    unsafe { MM.pool_destroy(pool) }
}

/// Calls `f(address, index)` for each live object of `pool`.
pub fn pool_objects(pool: &Cache, f: impl FnMut(usize, u32)) {
    MM.pool_objects(pool, f);
}
