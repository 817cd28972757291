//! The layout of named caches. Their slabs are slabs like others in the unit table, with [`CLASS_POOL`] as their class and the cache's
//! number in `UnitMeta::flags`; `UnitMeta::recip` is 0, so that an ordinary `free` does not take their objects for its own.

use core::mem::size_of;

/// `UnitMeta::class` of the slabs of named caches.
pub const CLASS_POOL: u8 = 255;
/// Bytes of a name at the most.
pub const POOL_NAME_MAX: usize = 64;
/// Number of the first named cache in the tracer; the last one that is told apart is [`POOL_CACHE_LAST`].
pub const POOL_CACHE_FIRST: usize = 80;
/// See [`POOL_CACHE_FIRST`]; it stands for all caches from that one on.
pub const POOL_CACHE_LAST: usize = 125;

/// [`PoolRecord::state`]: in use.
pub const POOL_LIVE: u32 = 1;
/// [`PoolRecord::state`]: destroyed while objects of it were live; they stay.
pub const POOL_LEFT: u32 = 2;
/// [`PoolRecord::state`]: the record is free.
pub const POOL_FREE: u32 = 0;

/// A named cache. 160 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PoolRecord {
    /// Address of the next record; 0 = last.
    pub next: u64,
    /// Its name, in UTF-8.
    pub name: [u8; POOL_NAME_MAX],
    /// Bytes of `name`.
    pub name_len: u32,
    /// Its number, from 1; stands in `UnitMeta::flags` of its slabs.
    pub id: u32,
    /// `POOL_*`.
    pub state: u32,
    /// Alignment of its objects, in bytes.
    pub align: u32,
    /// Bytes of an object, as it was asked for.
    pub object_bytes: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Slots of a slab.
    pub slots: u32,
    /// Units of a slab.
    pub units: u32,
    /// Slabs now.
    pub slabs: u64,
    /// Live objects.
    pub live: u64,
    /// Objects that were freed by a signal handler that could not wait: their slots stay unused.
    pub lost: u64,
    /// Unused, 0.
    pub pad: [u64; 3],
}

/// Number in the tracer's tables of the cache with this number.
pub const fn pool_cache(id: u32) -> usize {
    let n = POOL_CACHE_FIRST + id as usize - 1;
    if n > POOL_CACHE_LAST {
        POOL_CACHE_LAST
    } else {
        n
    }
}

const _: () = assert!(size_of::<PoolRecord>() == 160);
