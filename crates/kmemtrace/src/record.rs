//! One event: filters, the ring, the sums.

use crate::control::Tracer;
use crate::ring::{EVENT, Ring, TraceSlot};
use crate::{System, tsc};
use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};
use memledger_abi::trace::{
    Event, FILTER_CACHE, FILTER_SAMPLE, FILTER_SITE, FILTER_SIZE, OP_ALLOC, TRACER_EVENTS,
    site_hash,
};

/// What happened. The time, the CPU and the number are added.
#[derive(Debug, Clone, Copy)]
pub struct Fact {
    /// `OP_ALLOC` or `OP_FREE`.
    pub op: u8,
    /// `TYPE_*`.
    pub kind: u8,
    /// `EVENT_*`.
    pub flags: u8,
    /// The cache: a size class, or `CACHE_*`; below `TRACE_CACHES`.
    pub cache: u8,
    /// Whom it is charged to.
    pub index: u32,
    /// The object.
    pub ptr: usize,
    /// Bytes asked for; of a free, those given.
    pub requested: usize,
    /// Bytes given.
    pub given: usize,
}

impl Tracer {
    /// Records `fact` for the calling thread. An allocation is to be recorded after it was made, a free before it is done, so that
    /// the times of all events of an address are in order.
    ///
    /// # Safety
    /// `slot` is the calling thread's.
    #[inline(always)]
    pub unsafe fn record<S: System>(&self, slot: *mut TraceSlot, fact: &Fact) {
        if self.filters().load(Ordering::Relaxed) != 0 && !self.wanted(fact) {
            return;
        }
        // SAFETY: the slot is this thread's; a handler that interrupts finds `busy` set and leaves the ring alone.
        unsafe {
            if (&raw const (*slot).busy).read_volatile() != 0 {
                self.lost_nested().fetch_add(1, Ordering::Relaxed);
                return;
            }
            (&raw mut (*slot).busy).write_volatile(1);
            compiler_fence(Ordering::SeqCst);
            let mut ring = (*slot).ring;
            if ring.is_null() {
                ring = self.acquire::<S>();
                (*slot).ring = ring;
            }
            if ring.is_null() {
                self.lost_no_ring().fetch_add(1, Ordering::Relaxed);
            } else {
                self.write::<S>(&*ring, fact);
            }
            compiler_fence(Ordering::SeqCst);
            (&raw mut (*slot).busy).write_volatile(0);
        }
    }

    #[inline(always)]
    fn write<S: System>(&self, ring: &Ring, fact: &Fact) {
        let time = tsc();
        // SAFETY: `System::cpu_at` vouches for the word for as long as the thread lives, and the ring is this thread's.
        let cpu = unsafe { ring.cpu_at.load(Ordering::Relaxed).read_volatile() } as u16;
        let tracers = self.tracers().load(Ordering::Relaxed);
        if tracers & TRACER_EVENTS != 0 {
            self.push::<S>(ring, fact, fact.op, time, cpu);
        }
        if tracers & !TRACER_EVENTS != 0 && self.sums::<S>(ring, fact, tracers, time, cpu) {
            self.push::<S>(ring, fact, memledger_abi::trace::OP_OVERFLOW, time, cpu);
        }
    }

    /// The event goes into the ring, or is counted.
    #[inline(always)]
    fn push<S: System>(&self, ring: &Ring, fact: &Fact, op: u8, time: u64, cpu: u16) {
        let head = ring.head.load(Ordering::Relaxed);
        if head >= ring.limit.load(Ordering::Relaxed) {
            Ring::add(&ring.dropped, 1);
            return;
        }
        let event = Event {
            time,
            ptr: fact.ptr as u64,
            op,
            kind: fact.kind,
            flags: fact.flags,
            index: fact.index,
            cpu,
            seq: head as u16,
            requested: fact.requested as u64,
            given: fact.given as u64,
        };
        let place = (head & (ring.capacity.load(Ordering::Relaxed) - 1)) as usize;
        if place == 0 {
            self.note_time::<S>();
        }
        let at = ring.events.load(Ordering::Relaxed) as usize + place * EVENT;
        // SAFETY: slot `place` of the ring's events, which only this thread writes; aligned to 32 bytes.
        let words = unsafe { &*(at as *const [AtomicU64; 4]) };
        for (word, value) in words.iter().zip(event.pack()) {
            word.store(value, Ordering::Relaxed);
        }
        ring.head.store(head + 1, Ordering::Release);
    }

    #[cold]
    #[inline(never)]
    fn wanted(&self, fact: &Fact) -> bool {
        let filters = self.filters().load(Ordering::Relaxed);
        let given = fact.given as u64;
        if filters & FILTER_SIZE != 0
            && !(self.min_bytes().load(Ordering::Relaxed)
                ..=self.max_bytes().load(Ordering::Relaxed))
                .contains(&given)
        {
            return false;
        }
        if filters & FILTER_CACHE != 0 && self.cache_is_off(usize::from(fact.cache)) {
            return false;
        }
        if filters & FILTER_SITE != 0 && !self.names_site(fact.index) {
            return false;
        }
        filters & FILTER_SAMPLE == 0
            || site_hash(fact.index).is_multiple_of(self.sample().load(Ordering::Relaxed).max(1))
    }
}

/// Whether a fact is an allocation.
pub(crate) fn is_alloc(fact: &Fact) -> bool {
    fact.op == OP_ALLOC
}
