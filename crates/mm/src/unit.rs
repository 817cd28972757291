//! The two records of a unit: the hot one, which is published (`memledger_abi::UnitMeta`) and is all that `free` reads, and
//! the cold one, which the arena and central use under their locks.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use memledger_abi::UnitMeta;

/// `memledger_abi::UnitMeta` with atomic fields; all accesses are relaxed but those of `seq`.
#[repr(C, align(64))]
pub struct Unit {
    /// Address of slot 0 or of the large object.
    pub start: AtomicU64,
    /// `floor(2^64 / bytes) + 1` for slabs, else 0.
    pub recip: AtomicU64,
    /// Address of the cells; 0 = none.
    pub cells: AtomicU64,
    /// Bytes of a slot or of the large object.
    pub bytes: AtomicU64,
    /// Slots of the slab.
    pub slots: AtomicU32,
    /// Index of the large object.
    pub index: AtomicU32,
    /// `KIND_*`.
    pub kind: AtomicU8,
    /// Size class.
    pub class: AtomicU8,
    /// Unused.
    pub flags: AtomicU16,
    /// Odd while the record changes.
    pub seq: AtomicU32,
    /// Units back to the first of the run.
    pub back: AtomicU32,
    /// Units of the run, in its first unit.
    pub units: AtomicU32,
    pad: AtomicU64,
}

const _: () = {
    assert!(size_of::<Unit>() == size_of::<UnitMeta>());
    assert!(offset_of!(Unit, cells) == offset_of!(UnitMeta, cells));
    assert!(offset_of!(Unit, bytes) == offset_of!(UnitMeta, bytes));
    assert!(offset_of!(Unit, index) == offset_of!(UnitMeta, index));
    assert!(offset_of!(Unit, kind) == offset_of!(UnitMeta, kind));
    assert!(offset_of!(Unit, seq) == offset_of!(UnitMeta, seq));
    assert!(offset_of!(Unit, units) == offset_of!(UnitMeta, units));
};

/// Relaxed load, to keep lines short.
macro_rules! get {
    ($e:expr) => {{
        $crate::sync::point();
        $e.load(core::sync::atomic::Ordering::Relaxed)
    }};
}
/// Relaxed store.
macro_rules! set {
    ($e:expr, $v:expr) => {{
        $crate::sync::point();
        $e.store($v, core::sync::atomic::Ordering::Relaxed)
    }};
}
pub(crate) use {get, set};

impl Unit {
    /// Runs `f`, which changes the record, between two steps of `seq`, so that a reader that saw a mixture knows. The caller
    /// holds the lock that guards the unit's run.
    pub fn change(&self, f: impl FnOnce(&Self)) {
        let s = get!(self.seq);
        set!(self.seq, s.wrapping_add(1));
        fence(Ordering::Release);
        f(self);
        self.seq.store(s.wrapping_add(2), Ordering::Release);
    }
}

/// The unit is not part of a free run.
pub const USED: u32 = 0;
/// Free, and its content may be anything.
pub const DIRTY: u32 = 1;
/// Free, and its pages read as zero.
pub const CLEAN: u32 = 2;

/// What only the arena (free runs) and central (slabs) need. Guarded by the arena's lock for free runs, by the class's lock
/// for slabs.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Cold {
    /// `USED`, `DIRTY` or `CLEAN`; right in the first and last unit of a free run.
    pub state: AtomicU32,
    /// Units of the free run; right in its first and last unit.
    pub len: AtomicU32,
    /// Next in its list, 0 = end.
    pub next: AtomicU32,
    /// Previous in its list, 0 = first.
    pub prev: AtomicU32,
    /// Free slots of the slab (bits set).
    pub free_slots: AtomicU32,
    /// Words of the bitmap below this one have no bit set.
    pub hint: AtomicU32,
    /// Address of the bitmap: bit set = slot is in the slab, neither live nor cached.
    pub bitmap: AtomicU64,
    /// 1 = pages of the run came by `move_pages`.
    pub moved: AtomicU32,
}

const _: () = assert!(size_of::<Cold>() == 64);
