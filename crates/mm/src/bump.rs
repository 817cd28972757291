//! The bump region: the last resort of signal handlers that interrupt the manager on their own thread, and of what allocates
//! while the manager is being set up. One fixed megabyte at the start of the arena, a lock-free bump, records that can be walked
//! (`memledger_abi::BumpHeader`). Freed records are not used again: it is reached about never.

use crate::arena::{Arena, BUMP_UNITS, UNIT};
use crate::platform::Platform;
use crate::sync::AtomicUsize;
use crate::unit::set;
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, Ordering};
use memledger_abi::{BumpHeader, KIND_BUMP, KIND_CONTINUED};

/// `BumpHeader` with atomic fields.
#[repr(C)]
struct Header {
    size: AtomicU32,
    index: AtomicU32,
    requested: AtomicU32,
    pad: u32,
}

const _: () = assert!(size_of::<Header>() == size_of::<BumpHeader>());

/// State of the region: how far it is used.
pub struct Bump {
    used: AtomicUsize,
}

impl Bump {
    /// An unused region.
    pub const fn new() -> Self {
        Bump {
            used: AtomicUsize::new(0),
        }
    }

    /// Describes the region in the hot records of its units.
    pub fn publish<P: Platform>(&self, arena: &Arena<P>) {
        for u in 0..BUMP_UNITS {
            arena.hot(u).change(|h| {
                set!(h.start, arena.address(0) as u64);
                set!(h.bytes, (BUMP_UNITS as usize * UNIT) as u64);
                set!(h.back, u);
                set!(h.units, BUMP_UNITS);
                set!(h.kind, if u == 0 { KIND_BUMP } else { KIND_CONTINUED });
            });
        }
    }

    /// `size` zeroed bytes aligned to `align`, charged to `index`; null when the region is used up.
    pub fn alloc<P: Platform>(
        &self,
        arena: &Arena<P>,
        size: usize,
        align: usize,
        index: u32,
    ) -> *mut u8 {
        let room = BUMP_UNITS as usize * UNIT;
        let align = align.max(16);
        if size > room || align > room {
            return core::ptr::null_mut();
        }
        // Room for the worst padding; the object ends where the record ends, so the header before it is found from it.
        let record = size_of::<Header>() + size.next_multiple_of(16) + (align - 16);
        let mut at = self.used.load(Ordering::Relaxed);
        loop {
            if at + record > room {
                return core::ptr::null_mut();
            }
            match self
                .used
                .compare_exchange(at, at + record, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => at = now,
            }
        }
        let start = arena.address(0) + at;
        let object = (start + size_of::<Header>()).next_multiple_of(align);
        if object - size_of::<Header>() > start {
            // The padding is a record of its own, free from the start.
            self.header(start).size.store(
                (object - size_of::<Header>() - start) as u32,
                Ordering::Release,
            );
        }
        let h = self.header(object - size_of::<Header>());
        h.index.store(index, Ordering::Relaxed);
        h.requested.store(size as u32, Ordering::Relaxed);
        h.size.store(
            (start + record - (object - size_of::<Header>())) as u32,
            Ordering::Release,
        );
        object as *mut u8
    }

    fn header(&self, at: usize) -> &'static Header {
        // SAFETY: `at` is 16-aligned, inside the bump region (committed at init, never unmapped), and the place of a header:
        // callers pass only such addresses. All fields are atomic.
        unsafe { &*(at as *const Header) }
    }

    /// Whether `p` can be the address of an object of the region.
    pub fn plausible<P: Platform>(&self, arena: &Arena<P>, p: usize) -> bool {
        p.is_multiple_of(16) && p - arena.address(0) >= size_of::<Header>()
    }

    /// Whether `p`, a plausible address, is live.
    pub fn live(&self, p: usize) -> bool {
        self.header(p - size_of::<Header>())
            .index
            .load(Ordering::Relaxed)
            != 0
    }

    /// Bytes that were asked for at `p`, a live object of the region.
    pub fn size(&self, p: usize) -> usize {
        self.header(p - size_of::<Header>())
            .requested
            .load(Ordering::Relaxed) as usize
    }

    /// Frees `p`, an object of the region. `false`: it was free already.
    pub fn free(&self, p: usize) -> bool {
        self.header(p - size_of::<Header>())
            .index
            .swap(0, Ordering::Relaxed)
            != 0
    }

    /// Calls `f(index, bytes)` for each live object.
    pub fn for_each<P: Platform>(&self, arena: &Arena<P>, mut f: impl FnMut(u32, u64)) {
        let room = BUMP_UNITS as usize * UNIT;
        let mut at = 0;
        while at + size_of::<Header>() <= room {
            let h = self.header(arena.address(0) + at);
            let size = h.size.load(Ordering::Acquire) as usize;
            if size == 0 {
                return;
            }
            let index = h.index.load(Ordering::Relaxed);
            if index != 0 {
                f(index, (size - size_of::<Header>()) as u64);
            }
            at += size;
        }
    }
}

impl Default for Bump {
    fn default() -> Self {
        Self::new()
    }
}
