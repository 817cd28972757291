//! The control words, and what is published beside them.

use crate::System;
use crate::ring::Ring;
use crate::tsc;
use core::cell::UnsafeCell;
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use memledger_abi::trace::{
    OBJECT_WAYS, ObjectSlot, RingHeader, TRACE_MAGIC, TRACE_OVERWRITE, TRACE_SITES, TRACE_STOP,
    TRACER_EVENTS, TraceControl,
};

/// Bytes of events of a ring, unless told otherwise.
pub(crate) const RING_BYTES: u64 = 1 << 20;
/// Slots of the object table, unless told otherwise.
pub(crate) const OBJECT_SLOTS: u32 = 1 << 16;

/// What a process is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of events of a ring; 0 = 1 MiB.
    pub ring_bytes: u64,
    /// Full rings drop new events, and do not overwrite old ones.
    pub stop: bool,
    /// `TRACER_*` bits; 0 = events only.
    pub tracers: u32,
}

/// The tracer of a process. Const-constructible; there is one.
#[repr(transparent)]
pub struct Tracer(UnsafeCell<TraceControl>);

// SAFETY: every field is read and written through atomics in this process once `configure` is done (which runs before
// any event); readers with ptrace rights write control words.
unsafe impl Sync for Tracer {}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $t:ident;)*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub(crate) fn $name(&self) -> &$t {
                // SAFETY: an aligned word of this size in memory that lives as long as `self`, used in this process
                // through this atomic only.
                unsafe { $t::from_ptr((&raw mut (*self.0.get()).$name).cast()) }
            }
        )*
    };
}

impl Tracer {
    /// A tracer without rings, that takes all events.
    pub const fn new() -> Self {
        Tracer(UnsafeCell::new(TraceControl {
            magic: TRACE_MAGIC,
            size: size_of::<TraceControl>() as u32,
            ring_size: size_of::<RingHeader>() as u32,
            tracers: TRACER_EVENTS,
            mode: TRACE_OVERWRITE,
            ring_bytes: RING_BYTES,
            filters: 0,
            sample: 1,
            min_bytes: 0,
            max_bytes: u64::MAX,
            caches_off: [0; 2],
            sites: [0; TRACE_SITES],
            site_count: 0,
            object_slots: OBJECT_SLOTS,
            rings: 0,
            objects: 0,
            objects_made: 0,
            lost_no_ring: 0,
            lost_nested: 0,
            object_overflow: 0,
            cache_bytes: 0,
            cache_count: 0,
            start_tsc: 0,
            start_mono: 0,
            start_real: 0,
            last_tsc: 0,
            last_mono: 0,
            mapped_bytes: 0,
        }))
    }

    words! {
        tracers: AtomicU32;
        mode: AtomicU32;
        ring_bytes: AtomicU64;
        filters: AtomicU32;
        sample: AtomicU32;
        min_bytes: AtomicU64;
        max_bytes: AtomicU64;
        site_count: AtomicU32;
        object_slots: AtomicU32;
        objects: AtomicU64;
        objects_made: AtomicU64;
        lost_no_ring: AtomicU64;
        lost_nested: AtomicU64;
        object_overflow: AtomicU64;
        cache_bytes: AtomicU64;
        cache_count: AtomicU64;
        start_tsc: AtomicU64;
        start_mono: AtomicU64;
        start_real: AtomicU64;
        last_tsc: AtomicU64;
        last_mono: AtomicU64;
        mapped_bytes: AtomicU64;
    }

    /// The newest ring.
    pub(crate) fn rings(&self) -> &AtomicPtr<Ring> {
        // SAFETY: as for the words: an aligned pointer.
        unsafe { AtomicPtr::from_ptr((&raw mut (*self.0.get()).rings).cast()) }
    }

    /// Whether `index` is one of the sites of the filter.
    pub(crate) fn names_site(&self, index: u32) -> bool {
        let n = (self.site_count().load(Ordering::Relaxed) as usize).min(TRACE_SITES);
        (0..n).any(|i| {
            // SAFETY: as for the words; `i` is below the length of the array.
            let at = unsafe { AtomicU32::from_ptr(&raw mut (*self.0.get()).sites[i]) };
            at.load(Ordering::Relaxed) == index
        })
    }

    /// Whether the bit of `cache` is set.
    pub(crate) fn cache_is_off(&self, cache: usize) -> bool {
        // SAFETY: as for the words; `cache` is below 128.
        let at =
            unsafe { AtomicU64::from_ptr(&raw mut (*self.0.get()).caches_off[cache >> 6 & 1]) };
        at.load(Ordering::Relaxed) >> (cache & 63) & 1 != 0
    }

    /// Address of the control words, to be published.
    pub fn address(&self) -> u64 {
        self.0.get() as u64
    }

    /// Names the sizes of the caches, and sets what the process was started with. To be called before the first event.
    pub fn configure(&self, cache_bytes: &'static [u32], settings: Option<Settings>) {
        self.cache_bytes()
            .store(cache_bytes.as_ptr() as u64, Ordering::Relaxed);
        self.cache_count()
            .store(cache_bytes.len() as u64, Ordering::Relaxed);
        let Some(s) = settings else { return };
        if s.ring_bytes != 0 {
            self.ring_bytes().store(s.ring_bytes, Ordering::Relaxed);
        }
        if s.tracers != 0 {
            self.tracers().store(s.tracers, Ordering::Relaxed);
        }
        let mode = if s.stop { TRACE_STOP } else { TRACE_OVERWRITE };
        self.mode().store(mode, Ordering::Relaxed);
    }

    /// Notes the time, so that readers can turn ticks into nanoseconds. Not on the way of an ordinary event.
    #[cold]
    pub(crate) fn note_time<S: System>(&self) {
        let (mono, real) = S::clocks();
        let now = tsc();
        if self
            .start_tsc()
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.start_mono().store(mono, Ordering::Relaxed);
            self.start_real().store(real, Ordering::Relaxed);
        }
        self.last_mono().store(mono, Ordering::Relaxed);
        self.last_tsc().store(now, Ordering::Relaxed);
    }

    /// Maps memory, and counts it.
    pub(crate) fn map<S: System>(&self, bytes: usize) -> usize {
        let at = S::map(bytes);
        if at != 0 {
            self.mapped_bytes()
                .fetch_add(bytes as u64, Ordering::Relaxed);
        }
        at
    }

    /// The object table: (first slot, buckets). Made at first use; `None` = no memory.
    #[inline]
    pub(crate) fn object_table<S: System>(&self) -> Option<(*mut ObjectSlot, usize)> {
        let at = self.objects().load(Ordering::Acquire);
        if at == 0 {
            return self.make_objects::<S>();
        }
        let slots = self.objects_made().load(Ordering::Relaxed) as usize;
        Some((at as *mut ObjectSlot, slots / OBJECT_WAYS))
    }

    #[cold]
    fn make_objects<S: System>(&self) -> Option<(*mut ObjectSlot, usize)> {
        let wanted = self.object_slots().load(Ordering::Relaxed);
        let slots = wanted.clamp(64, 1 << 26).next_power_of_two() as usize;
        // Whoever writes the number first decides it, also for others that come meanwhile.
        let made = match self.objects_made().compare_exchange(
            0,
            slots as u64,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => slots,
            Err(theirs) => theirs as usize,
        };
        let at = self.map::<S>(made * size_of::<ObjectSlot>()) as u64;
        if at == 0 {
            return None;
        }
        // Two threads at once: the later mapping stays unused (and was never touched).
        let at = match self
            .objects()
            .compare_exchange(0, at, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => at,
            Err(theirs) => theirs,
        };
        Some((at as *mut ObjectSlot, made / OBJECT_WAYS))
    }
}

impl Default for Tracer {
    fn default() -> Self {
        Self::new()
    }
}
