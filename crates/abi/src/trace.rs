//! The layout of the tracer: control words, rings, events, statistics.
//!
//! ```text
//! Descriptor::trace ─▶ TraceControl ─▶ RingHeader ─▶ RingHeader ...     one a thread, also of threads that ended
//!                          │               ├▶ events[capacity]           the newest `capacity` of `head`
//!                          │               ├▶ sites[site_slots]          SiteStat, by open addressing
//!                          │               └▶ caches[TRACE_CACHES], sizes[64], lifetimes[64]
//!                          └▶ objects[object_slots]                      ObjectSlot, buckets of OBJECT_WAYS
//! ```
//!
//! # How to read a ring while it is written
//! The writer fills the slot of event number `head`, then raises `head`; nothing else. A reader reads `head`, copies slots, reads `head`
//! again as `h`: event `n` was copied whole if `n + capacity > h`, as the writer may be at number `h`, whose slot is that of
//! `h - capacity`. The others are overruns. The low 16 bits of `n` stand in the event, as a second check.
//!
//! # How to switch it
//! Bit [`SWITCH_TRACE`] of `Descriptor::mem_profiling`, after the words of [`TraceControl`] have been set. It takes effect with the next
//! allocation of any thread.

use core::mem::{offset_of, size_of};

/// Bit of `Descriptor::mem_profiling`: allocations are charged to whom they belong.
pub const SWITCH_ON: u32 = 1;
/// Bit of `Descriptor::mem_profiling`: allocations and frees are traced.
pub const SWITCH_TRACE: u32 = 2;

/// First 8 bytes of a [`TraceControl`]: `mltrace1` in memory order.
pub const TRACE_MAGIC: u64 = u64::from_le_bytes(*b"mltrace1");

/// [`TraceControl::tracers`]: events go to the rings.
pub const TRACER_EVENTS: u32 = 1;
/// [`TraceControl::tracers`]: sums per site.
pub const TRACER_SITES: u32 = 2;
/// [`TraceControl::tracers`]: sums per cache, histogram of sizes.
pub const TRACER_CACHES: u32 = 4;
/// [`TraceControl::tracers`]: the table of live objects; from it lifetimes and frees on another CPU.
pub const TRACER_OBJECTS: u32 = 8;

/// [`TraceControl::mode`]: new events overwrite the oldest.
pub const TRACE_OVERWRITE: u32 = 0;
/// [`TraceControl::mode`]: a full ring drops new events, and counts them, until a reader raises [`RingHeader::limit`].
pub const TRACE_STOP: u32 = 1;

/// [`TraceControl::filters`]: only objects of `min_bytes..=max_bytes` bytes as given.
pub const FILTER_SIZE: u32 = 1;
/// [`TraceControl::filters`]: not the caches whose bit is set in `caches_off`.
pub const FILTER_CACHE: u32 = 2;
/// [`TraceControl::filters`]: only the indexes in `sites`.
pub const FILTER_SITE: u32 = 4;
/// [`TraceControl::filters`]: only sites whose [`site_hash`] is a multiple of `sample`.
pub const FILTER_SAMPLE: u32 = 8;

/// Caches that are told apart: the size classes from 0 on, and [`CACHE_LARGE`], [`CACHE_EARLY`].
pub const TRACE_CACHES: usize = 128;
/// Number of the cache of large objects (page runs).
pub const CACHE_LARGE: usize = 127;
/// Number of the cache of the bump region.
pub const CACHE_EARLY: usize = 126;
/// Slots of a bucket of the object table.
pub const OBJECT_WAYS: usize = 8;
/// Owners that a ring remembers.
pub const RING_OWNERS: usize = 16;
/// Sites that a filter can name.
pub const TRACE_SITES: usize = 16;
/// [`Event::cpu`] when it is not known.
pub const CPU_UNKNOWN: u16 = 0xffff;

/// Hash by which sites are sampled, and placed in the table of sites.
#[inline(always)]
pub const fn site_hash(index: u32) -> u32 {
    index.wrapping_mul(0x9e37_79b1) >> 8
}

/// Bucket of an object among `buckets` (a power of two).
#[inline(always)]
pub const fn object_bucket(ptr: u64, buckets: usize) -> usize {
    (((ptr >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32) as usize & (buckets - 1)
}

/// Control words and what the tracer publishes. Readers with ptrace rights write the control words while tracing is off.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TraceControl {
    /// [`TRACE_MAGIC`].
    pub magic: u64,
    /// `size_of::<TraceControl>()`.
    pub size: u32,
    /// `size_of::<RingHeader>()`.
    pub ring_size: u32,
    /// Control: `TRACER_*` bits.
    pub tracers: u32,
    /// Control: `TRACE_OVERWRITE` or `TRACE_STOP`, for new rings.
    pub mode: u32,
    /// Control: bytes of events of a new ring; the runtime takes the next power of two, 4 KiB to 1 GiB.
    pub ring_bytes: u64,
    /// Control: `FILTER_*` bits; 0 = everything is traced.
    pub filters: u32,
    /// Control: one site in so many.
    pub sample: u32,
    /// Control: smallest object traced, in bytes as given.
    pub min_bytes: u64,
    /// Control: largest object traced, in bytes as given.
    pub max_bytes: u64,
    /// Control: a bit for each cache that is not traced.
    pub caches_off: [u64; 2],
    /// Control: the sites traced.
    pub sites: [u32; TRACE_SITES],
    /// Control: how many of `sites` are set.
    pub site_count: u32,
    /// Control: slots of the object table, before it is made; a power of two is made of it.
    pub object_slots: u32,
    /// Address of the newest [`RingHeader`]; 0 = none yet.
    pub rings: u64,
    /// Address of the first [`ObjectSlot`]; 0 = none yet.
    pub objects: u64,
    /// Slots at `objects`.
    pub objects_made: u64,
    /// Events that found no ring, as there was no memory for one.
    pub lost_no_ring: u64,
    /// Events of signal handlers that interrupted the tracer.
    pub lost_nested: u64,
    /// Objects that found their bucket of the object table full.
    pub object_overflow: u64,
    /// Address of the slot sizes of the caches, as `u32`s.
    pub cache_bytes: u64,
    /// How many of them.
    pub cache_count: u64,
    /// Time stamp counter when tracing began.
    pub start_tsc: u64,
    /// `CLOCK_MONOTONIC` at that moment, in nanoseconds.
    pub start_mono: u64,
    /// `CLOCK_REALTIME` at that moment, in nanoseconds.
    pub start_real: u64,
    /// Time stamp counter when a ring last began anew (or was made).
    pub last_tsc: u64,
    /// `CLOCK_MONOTONIC` at that moment, in nanoseconds.
    pub last_mono: u64,
    /// Bytes mapped by the tracer.
    pub mapped_bytes: u64,
}

/// Who wrote events of a ring, from event number `since` on.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RingOwner {
    /// Number of the first event.
    pub since: u64,
    /// Thread id.
    pub tid: u64,
}

/// A ring.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RingHeader {
    /// Address of the next ring; 0 = last.
    pub next: u64,
    /// 1 = a thread has it, 0 = its thread ended and a new one may take it.
    pub used: u32,
    /// Private: the thread is inside the tracer.
    pub busy: u32,
    /// Address of the first [`Event`].
    pub events: u64,
    /// Events that the ring holds; a power of two.
    pub capacity: u64,
    /// Events written so far.
    pub head: u64,
    /// Control: number of the first event that is dropped; `u64::MAX` when new events overwrite old ones.
    pub limit: u64,
    /// Events dropped because the ring was full.
    pub dropped: u64,
    /// Private: where the number of the CPU stands.
    pub cpu_at: u64,
    /// Address of the first [`SiteStat`].
    pub sites: u64,
    /// Slots at `sites`; a power of two.
    pub site_slots: u64,
    /// Events of sites that found no slot; they are in no [`SiteStat`].
    pub site_overflow: u64,
    /// Address of [`TRACE_CACHES`] [`CacheStat`]s.
    pub caches: u64,
    /// Address of 64 `u64`s: allocations by requested bytes; bucket `n` holds those of `n` significant bits.
    pub sizes: u64,
    /// Address of 64 `u64`s: frees by lifetime in ticks of the time stamp counter, as `sizes`.
    pub lifetimes: u64,
    /// Owners so far; the last [`RING_OWNERS`] are in `owners`, at their number modulo that.
    pub owner_count: u64,
    /// See `owner_count`.
    pub owners: [RingOwner; RING_OWNERS],
}

/// What a thread summed for a site. 64 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SiteStat {
    /// Index; 0 = the slot is empty.
    pub index: u64,
    /// Allocations.
    pub allocs: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes given.
    pub given: u64,
    /// Frees of its objects by this thread.
    pub frees: u64,
    /// Bytes given, of those.
    pub freed: u64,
    /// Frees on another CPU than the allocation (needs the object table).
    pub cross: u64,
    /// Bytes asked for, of the frees that the object table knew.
    pub freed_requested: u64,
}

/// What a thread summed for a cache. 64 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStat {
    /// Allocations.
    pub allocs: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes given.
    pub given: u64,
    /// Frees.
    pub frees: u64,
    /// Bytes given, of those.
    pub freed: u64,
    /// Frees on another CPU.
    pub cross: u64,
    /// Unused.
    pub pad: [u64; 2],
}

/// A live object. 32 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObjectSlot {
    /// Address; 0 = empty.
    pub ptr: u64,
    /// Time stamp counter at its allocation.
    pub time: u64,
    /// Bits 0..32: index. 32..48: CPU.
    pub who: u64,
    /// Bytes asked for.
    pub requested: u64,
}

/// An event, as 4 words in the ring.
///
/// ```text
/// 0: time stamp counter
/// 1: bits 0..48 pointer, 48..52 operation, 52..56 type, 56..64 flags
/// 2: bits 0..32 index, 32..48 CPU, 48..64 number of the event
/// 3: bits 0..48 bytes requested (a free: bytes given), 48..64 bytes given / 8; 0 = whole pages
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event {
    /// Time stamp counter.
    pub time: u64,
    /// The object's address.
    pub ptr: u64,
    /// `OP_*`.
    pub op: u8,
    /// `TYPE_*`.
    pub kind: u8,
    /// `EVENT_*` bits.
    pub flags: u8,
    /// Tag or site it is charged to.
    pub index: u32,
    /// CPU, [`CPU_UNKNOWN`] = not known.
    pub cpu: u16,
    /// Low bits of the event's number in its ring.
    pub seq: u16,
    /// Bytes asked for; of a free, those given.
    pub requested: u64,
    /// Bytes given.
    pub given: u64,
}

/// [`Event::op`]: an allocation.
pub const OP_ALLOC: u8 = 1;
/// [`Event::op`]: a free.
pub const OP_FREE: u8 = 2;
/// [`Event::op`]: the first object of this thread that the object table has no room for.
pub const OP_OVERFLOW: u8 = 3;
/// [`Event::kind`]: a slot of a slab of no name.
pub const TYPE_KMALLOC: u8 = 0;
/// [`Event::kind`]: an object of a named cache.
pub const TYPE_CACHE: u8 = 1;
/// [`Event::kind`]: whole pages.
pub const TYPE_PAGES: u8 = 2;
/// [`Event::flags`]: zeroed memory was asked for.
pub const EVENT_ZERO: u8 = 1;
/// [`Event::flags`]: more than the usual alignment was asked for.
pub const EVENT_ALIGNED: u8 = 2;
/// [`Event::flags`]: half of a change of size.
pub const EVENT_REALLOC: u8 = 4;

impl Event {
    /// The four words of the ring.
    #[inline(always)]
    pub const fn pack(&self) -> [u64; 4] {
        let given = if self.given < 1 << 19 && self.kind != TYPE_PAGES {
            self.given >> 3 << 48
        } else {
            0
        };
        [
            self.time,
            self.ptr & 0xffff_ffff_ffff
                | (self.op as u64) << 48
                | (self.kind as u64) << 52
                | (self.flags as u64) << 56,
            self.index as u64 | (self.cpu as u64) << 32 | (self.seq as u64) << 48,
            self.requested & 0xffff_ffff_ffff | given,
        ]
    }

    /// An event from its words.
    pub const fn unpack(w: [u64; 4]) -> Event {
        let requested = w[3] & 0xffff_ffff_ffff;
        let eighths = w[3] >> 48;
        Event {
            time: w[0],
            ptr: w[1] & 0xffff_ffff_ffff,
            op: (w[1] >> 48) as u8 & 15,
            kind: (w[1] >> 52) as u8 & 15,
            flags: (w[1] >> 56) as u8,
            index: w[2] as u32,
            cpu: (w[2] >> 32) as u16,
            seq: (w[2] >> 48) as u16,
            requested,
            given: if eighths == 0 {
                requested.next_multiple_of(4096)
            } else {
                eighths * 8
            },
        }
    }
}

const _: () = {
    assert!(size_of::<TraceControl>() == 256);
    assert!(size_of::<RingHeader>() == 120 + 16 * RING_OWNERS);
    assert!(size_of::<SiteStat>() == 64 && size_of::<CacheStat>() == 64);
    assert!(size_of::<ObjectSlot>() == 32);
    assert!(offset_of!(TraceControl, rings) == 144);
};
