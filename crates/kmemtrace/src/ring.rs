//! Rings: made at a thread's first event, left at its end for another thread, never unmapped.

use crate::System;
use crate::control::Tracer;
use core::mem::{offset_of, size_of};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use memledger_abi::trace::{
    CacheStat, RING_OWNERS, RingHeader, RingOwner, SiteStat, TRACE_CACHES, TRACE_STOP,
};

/// Slots of a thread's table of sites.
pub(crate) const SITE_SLOTS: usize = 4096;
/// Bytes of an event.
pub(crate) const EVENT: usize = 32;
const PAGE: usize = 4096;

/// What a thread keeps of the tracer in its thread-local memory. All zero at first.
#[repr(C)]
#[derive(Debug)]
pub struct TraceSlot {
    /// Its ring; null before the first event and after the thread's end.
    pub ring: *mut Ring,
    /// 1 while the thread is inside the tracer: whoever comes then is a signal handler.
    pub busy: u32,
    /// Unused.
    pub pad: u32,
}

impl TraceSlot {
    /// No ring.
    pub const EMPTY: TraceSlot = TraceSlot {
        ring: null_mut(),
        busy: 0,
        pad: 0,
    };
}

/// [`RingHeader`] with atomic fields.
#[repr(C)]
pub struct Ring {
    pub(crate) next: AtomicPtr<Ring>,
    pub(crate) used: AtomicU32,
    pub(crate) busy: AtomicU32,
    pub(crate) events: AtomicU64,
    pub(crate) capacity: AtomicU64,
    pub(crate) head: AtomicU64,
    pub(crate) limit: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) cpu_at: AtomicPtr<i32>,
    pub(crate) sites: AtomicPtr<SiteStat>,
    pub(crate) site_slots: AtomicU64,
    pub(crate) site_overflow: AtomicU64,
    pub(crate) caches: AtomicPtr<CacheStat>,
    pub(crate) sizes: AtomicPtr<u64>,
    pub(crate) lifetimes: AtomicPtr<u64>,
    pub(crate) owner_count: AtomicU64,
    pub(crate) owners: [[AtomicU64; 2]; RING_OWNERS],
}

const _: () = {
    assert!(size_of::<Ring>() == size_of::<RingHeader>());
    assert!(offset_of!(Ring, head) == offset_of!(RingHeader, head));
    assert!(offset_of!(Ring, cpu_at) == offset_of!(RingHeader, cpu_at));
    assert!(offset_of!(Ring, lifetimes) == offset_of!(RingHeader, lifetimes));
    assert!(offset_of!(Ring, owners) == offset_of!(RingHeader, owners));
    assert!(size_of::<RingOwner>() == 16);
};

/// Where the parts of a ring's mapping begin, in bytes from its start.
const CACHES: usize = 512;
const SIZES: usize = CACHES + TRACE_CACHES * size_of::<CacheStat>();
const LIFETIMES: usize = SIZES + 64 * 8;
const SITES: usize = (LIFETIMES + 64 * 8).next_multiple_of(PAGE);
const EVENTS: usize = SITES + SITE_SLOTS * size_of::<SiteStat>();
const _: () = assert!(size_of::<Ring>() <= CACHES);

impl Ring {
    /// The thread's next event is the first of thread `tid`.
    fn own(&self, tid: u32) {
        let n = self.owner_count.load(Ordering::Relaxed);
        let owner = &self.owners[n as usize % RING_OWNERS];
        owner[0].store(self.head.load(Ordering::Relaxed), Ordering::Relaxed);
        owner[1].store(u64::from(tid), Ordering::Relaxed);
        self.owner_count.store(n + 1, Ordering::Release);
    }

    /// Adds to a count of which this thread is the only writer.
    #[inline(always)]
    pub(crate) fn add(count: &AtomicU64, n: u64) {
        count.store(
            count.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }
}

impl Tracer {
    /// A ring for the calling thread; null: no memory. Called once a thread, inside the tracer.
    #[cold]
    #[inline(never)]
    pub(crate) fn acquire<S: System>(&self) -> *mut Ring {
        let mut ring = self.abandoned();
        if ring.is_null() {
            ring = self.make::<S>();
        }
        if !ring.is_null() {
            // SAFETY: rings are never unmapped, and this one is the caller's.
            let r = unsafe { &*ring };
            r.cpu_at.store(S::cpu_at().cast_mut(), Ordering::Relaxed);
            r.own(S::tid());
        }
        self.note_time::<S>();
        ring
    }

    /// A ring whose thread has ended, now the caller's.
    fn abandoned(&self) -> *mut Ring {
        let mut at = self.rings().load(Ordering::Acquire);
        while !at.is_null() {
            // SAFETY: rings are never unmapped.
            let ring = unsafe { &*at };
            if ring.used.load(Ordering::Relaxed) == 0
                && ring
                    .used
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return at;
            }
            at = ring.next.load(Ordering::Acquire);
        }
        null_mut()
    }

    fn make<S: System>(&self) -> *mut Ring {
        let bytes = self.ring_bytes().load(Ordering::Relaxed);
        let bytes = bytes.clamp(PAGE as u64, 1 << 30).next_power_of_two() as usize;
        let at = self.map::<S>(EVENTS + bytes);
        if at == 0 {
            return null_mut();
        }
        let capacity = (bytes / EVENT) as u64;
        let stop = self.mode().load(Ordering::Relaxed) == TRACE_STOP;
        // SAFETY: a new mapping, zeroed and page-aligned, larger than a `Ring`, for which zeros are valid.
        let ring = unsafe { &*(at as *const Ring) };
        let set = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        set(&ring.events, (at + EVENTS) as u64);
        set(&ring.capacity, capacity);
        set(&ring.limit, if stop { capacity } else { u64::MAX });
        set(&ring.site_slots, SITE_SLOTS as u64);
        ring.sites
            .store((at + SITES) as *mut SiteStat, Ordering::Relaxed);
        ring.caches
            .store((at + CACHES) as *mut CacheStat, Ordering::Relaxed);
        ring.sizes
            .store((at + SIZES) as *mut u64, Ordering::Relaxed);
        ring.lifetimes
            .store((at + LIFETIMES) as *mut u64, Ordering::Relaxed);
        ring.used.store(1, Ordering::Relaxed);
        let ring = at as *mut Ring;
        let mut first = self.rings().load(Ordering::Relaxed);
        loop {
            // SAFETY: not yet published: the caller's alone.
            unsafe { (*ring).next.store(first, Ordering::Relaxed) };
            match self.rings().compare_exchange_weak(
                first,
                ring,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return ring,
                Err(now) => first = now,
            }
        }
    }

    /// The calling thread ends; its ring stays readable, and the next thread goes on in it.
    ///
    /// # Safety
    /// `slot` is the calling thread's.
    pub unsafe fn thread_exit(&self, slot: *mut TraceSlot) {
        // SAFETY: the slot is the caller's; rings are never unmapped.
        unsafe {
            let ring = (&raw const (*slot).ring).read_volatile();
            if !ring.is_null() {
                (&raw mut (*slot).ring).write_volatile(null_mut());
                (*ring).used.store(0, Ordering::Release);
            }
        }
    }

    /// In the child after `fork`: the rings of threads that are not here are free, and this thread's goes on under a new id.
    ///
    /// # Safety
    /// `slot` is the calling thread's, which is the only one.
    pub unsafe fn after_fork<S: System>(&self, slot: *mut TraceSlot) {
        // SAFETY: as in `thread_exit`.
        unsafe {
            let own = (*slot).ring;
            let mut at = self.rings().load(Ordering::Relaxed);
            while !at.is_null() {
                if at != own {
                    (*at).used.store(0, Ordering::Relaxed);
                }
                at = (*at).next.load(Ordering::Relaxed);
            }
            if !own.is_null() {
                (*own).own(S::tid());
            }
        }
    }

    /// Where the calling thread's CPU number stands became known: its ring, made before, is told.
    ///
    /// # Safety
    /// `slot` is the calling thread's.
    pub unsafe fn cpu_known<S: System>(&self, slot: *mut TraceSlot) {
        // SAFETY: as in `thread_exit`.
        unsafe {
            let ring = (*slot).ring;
            if !ring.is_null() {
                (*ring)
                    .cpu_at
                    .store(S::cpu_at().cast_mut(), Ordering::Relaxed);
            }
        }
    }
}
