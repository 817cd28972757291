//! The tracer of a process, from outside: its switch, its rings and its sums (`memledger_abi::trace`).
//!
//! Rings are read while their threads write them. What was copied is checked twice: by the ring's `head` after the copy, which tells
//! which slots may have been overwritten meanwhile, and by the number that stands in each event. What does not pass is counted as overrun.

use crate::decode::{u32_at, u64_at};
use crate::error::{Error, Result};
use crate::find::Found;
use crate::mem::{Memory, ProcessMemory};
use crate::proc::{self, Process};
use crate::slabinfo::pools;
use crate::snapshot::{self, Snapshot};
use memledger_abi::pool::{POOL_CACHE_LAST, pool_cache};
use memledger_abi::trace::{
    CacheStat, Event, ObjectSlot, RING_OWNERS, RingHeader, SWITCH_TRACE, SiteStat, TRACE_CACHES,
    TRACE_MAGIC, TRACE_STOP, TraceControl,
};
use memledger_abi::{Descriptor, SITE_BASE};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::time::Duration;

const EVENT: usize = 32;
/// Most rings that are followed; the list of a broken process may be endless.
const MAX_RINGS: usize = 1 << 16;
/// Most events that a ring can have.
const MAX_EVENTS: u64 = 1 << 26;
/// Most slots of the object table.
const MAX_OBJECTS: u64 = 1 << 27;

/// What the tracer is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `TRACER_*` bits.
    pub tracers: u32,
    /// Full rings drop new events until they have been read, rather than overwrite old ones.
    pub stop: bool,
    /// Bytes of events of rings that are made from now on; `None` = as it is.
    pub ring_bytes: Option<u64>,
    /// Only objects of at least so many bytes.
    pub min_bytes: Option<u64>,
    /// Only objects of at most so many bytes.
    pub max_bytes: Option<u64>,
    /// Only these indexes (16 at the most).
    pub sites: Vec<u32>,
    /// Not these caches (numbers below 128).
    pub caches_off: Vec<u32>,
    /// Only one site in so many; 0 and 1 = all.
    pub sample: u32,
}

/// An event of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What happened.
    pub event: Event,
    /// The thread; 0 = one that ended before the ring was read.
    pub tid: u32,
    /// Number of the ring, in order of making.
    pub ring: u32,
}

/// What a look at all rings gave.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Events, in order of time.
    pub records: Vec<Record>,
    /// Events lost since the last look: (ring, thread, how many).
    pub lost: Vec<(u32, u32, u64)>,
}

/// Where the reading of a ring stands.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    next: u64,
    dropped: u64,
}

/// A header as read.
struct Ring {
    addr: u64,
    events: u64,
    capacity: u64,
    head: u64,
    limit: u64,
    dropped: u64,
    site_overflow: u64,
    tables: [u64; 4],
    site_slots: u64,
    owners: Vec<(u64, u32)>,
}

/// Sums of all threads.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// By index, in order.
    pub sites: BTreeMap<u32, SiteStat>,
    /// By cache.
    pub caches: Vec<CacheStat>,
    /// Bytes of a slot, by cache; empty beyond those that have one.
    pub cache_bytes: Vec<u32>,
    /// Names of caches that have one, by number.
    pub cache_names: BTreeMap<usize, String>,
    /// Allocations by significant bits of the size asked for.
    pub sizes: Vec<u64>,
    /// Frees by significant bits of the lifetime in ticks.
    pub lifetimes: Vec<u64>,
    /// Live objects of the object table.
    pub objects: Vec<ObjectSlot>,
    /// Slots of the object table.
    pub object_slots: u64,
    /// Objects that found no room in it.
    pub object_overflow: u64,
    /// Events of sites that found no room.
    pub site_overflow: u64,
    /// Events dropped by full rings.
    pub dropped: u64,
    /// Events written to rings.
    pub events: u64,
    /// Rings.
    pub rings: usize,
    /// Events without a ring.
    pub lost_no_ring: u64,
    /// Events of signal handlers inside the tracer.
    pub lost_nested: u64,
    /// Bytes that the tracer has mapped.
    pub mapped_bytes: u64,
}

/// Times of the process's counter in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock {
    tsc: u64,
    mono: u64,
    per_tick: f64,
}

impl Clock {
    /// By this machine's own counter, in `wait`.
    pub fn measure(wait: Duration) -> Self {
        let (a, at) = crate::mem::clock();
        std::thread::sleep(wait);
        let (b, bt) = crate::mem::clock();
        let ticks = b.saturating_sub(a).max(1) as f64;
        Clock {
            tsc: a,
            mono: at,
            per_tick: bt.saturating_sub(at) as f64 / ticks,
        }
    }

    /// By what the process noted itself (for core files): `None` if that are not two moments.
    pub fn noted(control: &TraceControl) -> Option<Self> {
        let ticks = control.last_tsc.checked_sub(control.start_tsc)?;
        let nanos = control.last_mono.checked_sub(control.start_mono)?;
        (ticks > 0 && nanos > 0).then(|| Clock {
            tsc: control.start_tsc,
            mono: control.start_mono,
            per_tick: nanos as f64 / ticks as f64,
        })
    }

    /// `CLOCK_MONOTONIC` of a moment, in nanoseconds.
    pub fn nanos(&self, tsc: u64) -> u64 {
        let distance = tsc.wrapping_sub(self.tsc).cast_signed() as f64 * self.per_tick;
        self.mono.saturating_add_signed(distance as i64)
    }

    /// A number of ticks in nanoseconds.
    pub fn duration(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.per_tick) as u64
    }
}

/// Reads the rings of one runtime, by any memory.
#[derive(Debug)]
pub struct Rings {
    control: u64,
    pools_at: u64,
    seen: BTreeMap<u64, Position>,
    order: Vec<u64>,
}

impl Rings {
    /// Rings of the descriptor `d`; `None` if its runtime does not trace.
    pub fn new(mem: &dyn Memory, d: &Descriptor) -> Option<Self> {
        control(mem, d.trace)?;
        Some(Rings {
            control: d.trace,
            pools_at: d.pools_at,
            seen: BTreeMap::new(),
            order: Vec::new(),
        })
    }

    /// The control words, as they are.
    pub fn control(&self, mem: &dyn Memory) -> Option<TraceControl> {
        control(mem, self.control)
    }

    /// Events before now are left out of what follows.
    pub fn skip(&mut self, mem: &dyn Memory) {
        for ring in self.headers(mem) {
            self.seen.insert(
                ring.addr,
                Position {
                    next: ring.head,
                    dropped: ring.dropped,
                },
            );
        }
    }

    /// Oldest ring first.
    fn headers(&mut self, mem: &dyn Memory) -> Vec<Ring> {
        let mut at = self.control(mem).map_or(0, |c| c.rings);
        let mut rings = Vec::new();
        while at != 0 && rings.len() < MAX_RINGS {
            let Some((ring, next)) = header(mem, at) else {
                break;
            };
            rings.push(ring);
            at = next;
        }
        rings.reverse();
        for ring in &rings {
            if !self.order.contains(&ring.addr) {
                self.order.push(ring.addr);
            }
        }
        rings
    }

    /// What was written since the last call. `release` tells the process how far a ring has been read (mode stop).
    pub fn poll(&mut self, mem: &dyn Memory, mut release: impl FnMut(u64, u64)) -> Batch {
        let mut batch = Batch::default();
        for ring in self.headers(mem) {
            let number = self.order.iter().position(|&a| a == ring.addr);
            let number = number.unwrap_or(0) as u32;
            let from = self.seen.get(&ring.addr).copied().unwrap_or_default();
            let lost = copy(mem, &ring, from.next, number, &mut batch.records);
            let lost = lost + ring.dropped.saturating_sub(from.dropped);
            if lost > 0 {
                let tid = ring.owners.last().map_or(0, |o| o.1);
                batch.lost.push((number, tid, lost));
            }
            let now = Position {
                next: ring.head,
                dropped: ring.dropped,
            };
            self.seen.insert(ring.addr, now);
            if ring.limit != u64::MAX && ring.head != from.next {
                release(
                    ring.addr + offset_of!(RingHeader, limit) as u64,
                    ring.head + ring.capacity,
                );
            }
        }
        batch.records.sort_by_key(|r| r.event.time);
        batch
    }

    /// The sums of all threads.
    pub fn sums(&mut self, mem: &dyn Memory) -> Sums {
        let mut sums = Sums {
            caches: vec![CacheStat::default(); TRACE_CACHES],
            sizes: vec![0; 64],
            lifetimes: vec![0; 64],
            ..Sums::default()
        };
        let Some(c) = self.control(mem) else {
            return sums;
        };
        sums.object_overflow = c.object_overflow;
        sums.lost_no_ring = c.lost_no_ring;
        sums.lost_nested = c.lost_nested;
        sums.mapped_bytes = c.mapped_bytes;
        let sizes = read(mem, c.cache_bytes, c.cache_count.min(128) as usize * 4);
        sums.cache_bytes = sizes.chunks_exact(4).map(|b| u32_at(b, 0)).collect();
        sums.cache_names = cache_names(mem, self.pools_at);
        for ring in self.headers(mem) {
            sums.rings += 1;
            sums.events = sums.events.saturating_add(ring.head);
            sums.dropped = sums.dropped.saturating_add(ring.dropped);
            sums.site_overflow = sums.site_overflow.saturating_add(ring.site_overflow);
            sums.add_tables(mem, &ring);
        }
        if c.objects != 0 && c.objects_made <= MAX_OBJECTS {
            sums.object_slots = c.objects_made;
            let bytes = read(mem, c.objects, c.objects_made as usize * 32);
            let slots = bytes.chunks_exact(32).map(|b| ObjectSlot {
                ptr: u64_at(b, 0),
                time: u64_at(b, 8),
                who: u64_at(b, 16),
                requested: u64_at(b, 24),
            });
            sums.objects = slots.filter(|o| o.ptr != 0).collect();
        }
        sums
    }
}

impl Sums {
    fn add_tables(&mut self, mem: &dyn Memory, ring: &Ring) {
        let [sites, caches, sizes, lifetimes] = ring.tables;
        let words = |b: &[u8]| -> [u64; 8] { std::array::from_fn(|i| u64_at(b, 8 * i)) };
        for b in read(mem, sites, ring.site_slots as usize * 64).chunks_exact(64) {
            let w = words(b);
            if w[0] == 0 {
                continue;
            }
            let s = self.sites.entry(w[0] as u32).or_default();
            s.index = w[0];
            let to = [
                &mut s.allocs,
                &mut s.requested,
                &mut s.given,
                &mut s.frees,
                &mut s.freed,
                &mut s.cross,
                &mut s.freed_requested,
            ];
            to.into_iter()
                .zip(&w[1..])
                .for_each(|(to, n)| *to = to.saturating_add(*n));
        }
        let all = read(mem, caches, TRACE_CACHES * 64);
        for (b, c) in all.chunks_exact(64).zip(&mut self.caches) {
            let to = [
                &mut c.allocs,
                &mut c.requested,
                &mut c.given,
                &mut c.frees,
                &mut c.freed,
                &mut c.cross,
            ];
            to.into_iter()
                .zip(words(b))
                .for_each(|(to, n)| *to = to.saturating_add(n));
        }
        for (at, to) in [(sizes, &mut self.sizes), (lifetimes, &mut self.lifetimes)] {
            let bytes = read(mem, at, 512);
            for (b, to) in bytes.chunks_exact(8).zip(to) {
                *to = to.saturating_add(u64_at(b, 0));
            }
        }
    }
}

/// Bytes at an address; nothing if they cannot be read.
fn read(mem: &dyn Memory, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    match at != 0 && mem.read(at, &mut bytes).is_ok() {
        true => bytes,
        false => Vec::new(),
    }
}

/// Names of the caches that have one, by their number in the tracer's tables.
fn cache_names(mem: &dyn Memory, pools_at: u64) -> BTreeMap<usize, String> {
    let mut names = BTreeMap::new();
    for pool in pools(mem, pools_at, &mut 0)
        .into_iter()
        .filter(|p| p.id > 0)
    {
        match pool_cache(pool.id) {
            POOL_CACHE_LAST => names.insert(POOL_CACHE_LAST, "(other named caches)".to_owned()),
            number => names.insert(number, pool.name),
        };
    }
    names
}

fn control(mem: &dyn Memory, at: u64) -> Option<TraceControl> {
    type C = TraceControl;
    let b = read(mem, at, size_of::<C>());
    if b.is_empty() || u64_at(&b, 0) != TRACE_MAGIC {
        return None;
    }
    let (w, l) = (|at| u32_at(&b, at), |at| u64_at(&b, at));
    if w(offset_of!(C, size)) as usize != size_of::<C>()
        || w(offset_of!(C, ring_size)) as usize != size_of::<RingHeader>()
    {
        return None;
    }
    Some(C {
        magic: TRACE_MAGIC,
        size: w(offset_of!(C, size)),
        ring_size: w(offset_of!(C, ring_size)),
        tracers: w(offset_of!(C, tracers)),
        mode: w(offset_of!(C, mode)),
        ring_bytes: l(offset_of!(C, ring_bytes)),
        filters: w(offset_of!(C, filters)),
        sample: w(offset_of!(C, sample)),
        min_bytes: l(offset_of!(C, min_bytes)),
        max_bytes: l(offset_of!(C, max_bytes)),
        caches_off: std::array::from_fn(|i| l(offset_of!(C, caches_off) + 8 * i)),
        sites: std::array::from_fn(|i| w(offset_of!(C, sites) + 4 * i)),
        site_count: w(offset_of!(C, site_count)),
        object_slots: w(offset_of!(C, object_slots)),
        rings: l(offset_of!(C, rings)),
        objects: l(offset_of!(C, objects)),
        objects_made: l(offset_of!(C, objects_made)),
        lost_no_ring: l(offset_of!(C, lost_no_ring)),
        lost_nested: l(offset_of!(C, lost_nested)),
        object_overflow: l(offset_of!(C, object_overflow)),
        cache_bytes: l(offset_of!(C, cache_bytes)),
        cache_count: l(offset_of!(C, cache_count)),
        start_tsc: l(offset_of!(C, start_tsc)),
        start_mono: l(offset_of!(C, start_mono)),
        start_real: l(offset_of!(C, start_real)),
        last_tsc: l(offset_of!(C, last_tsc)),
        last_mono: l(offset_of!(C, last_mono)),
        mapped_bytes: l(offset_of!(C, mapped_bytes)),
    })
}

/// The header at `at`, and the address of the next; `None` if it makes no sense.
fn header(mem: &dyn Memory, at: u64) -> Option<(Ring, u64)> {
    type H = RingHeader;
    let b = read(mem, at, size_of::<H>());
    if b.is_empty() {
        return None;
    }
    let l = |at| u64_at(&b, at);
    let count = l(offset_of!(H, owner_count));
    let first = count.saturating_sub(RING_OWNERS as u64);
    let owners = (first..count).map(|n| {
        let at = offset_of!(H, owners) + 16 * (n as usize % RING_OWNERS);
        (l(at), l(at + 8) as u32)
    });
    let ring = Ring {
        addr: at,
        events: l(offset_of!(H, events)),
        capacity: l(offset_of!(H, capacity)),
        head: l(offset_of!(H, head)),
        limit: l(offset_of!(H, limit)),
        dropped: l(offset_of!(H, dropped)),
        site_overflow: l(offset_of!(H, site_overflow)),
        tables: [
            l(offset_of!(H, sites)),
            l(offset_of!(H, caches)),
            l(offset_of!(H, sizes)),
            l(offset_of!(H, lifetimes)),
        ],
        site_slots: l(offset_of!(H, site_slots)).min(1 << 20),
        owners: owners.collect(),
    };
    let sane = ring.capacity.is_power_of_two() && ring.capacity <= MAX_EVENTS;
    sane.then(|| (ring, l(offset_of!(H, next))))
}

/// Copies the events `from..ring.head`; returns how many of them are lost.
fn copy(mem: &dyn Memory, ring: &Ring, from: u64, number: u32, out: &mut Vec<Record>) -> u64 {
    let from = from.min(ring.head);
    let first = from.max(ring.head.saturating_sub(ring.capacity));
    let (mask, size) = (ring.capacity - 1, EVENT as u64);
    let mut bytes = Vec::new();
    let mut at = first;
    while at < ring.head {
        let n = (ring.head - at).min(ring.capacity - (at & mask));
        let part = read(mem, ring.events + (at & mask) * size, n as usize * EVENT);
        if part.is_empty() {
            return ring.head - from;
        }
        bytes.extend(part);
        at += n;
    }
    // The writer may be at event `head` now, in the slot of event `head - capacity`. A core file does not change.
    let mut again = [0; 8];
    let head_at = ring.addr + offset_of!(RingHeader, head) as u64;
    let head = match mem.read(head_at, &mut again) {
        Ok(()) => u64::from_ne_bytes(again),
        Err(_) => ring.head,
    };
    // A full ring that drops is not written at all.
    let writing = u64::from(head < ring.limit);
    let whole = first.max(head.saturating_add(writing).saturating_sub(ring.capacity));
    let mut lost = whole.min(ring.head) - from;
    for (n, b) in (first..).zip(bytes.chunks_exact(EVENT)) {
        if n < whole {
            continue;
        }
        let event = Event::unpack(std::array::from_fn(|i| u64_at(b, 8 * i)));
        if event.seq != n as u16 {
            lost += 1;
            continue;
        }
        let owner = ring.owners.iter().rev().find(|o| o.0 <= n);
        out.push(Record {
            event,
            tid: owner.map_or(0, |o| o.1),
            ring: number,
        });
    }
    lost
}

/// The tracer of a live process.
#[derive(Debug)]
pub struct Tracing {
    mem: ProcessMemory,
    /// The process, when it was opened.
    pub process: Process,
    found: Found,
    rings: Rings,
}

impl Tracing {
    /// Opens the tracer of process `pid`: that of its first runtime that has one.
    ///
    /// # Errors
    /// Those of finding a ledger; [`Error::Never`] if no runtime in it can trace.
    pub fn open(pid: u32) -> Result<Self> {
        let (mem, process, found) = snapshot::open(pid)?;
        let mut each = found.iter();
        let (found, rings) = each
            .find_map(|f| Some((*f, Rings::new(&mem, &f.descriptor)?)))
            .ok_or(Error::Never { pid })?;
        Ok(Tracing {
            mem,
            process,
            found,
            rings,
        })
    }

    /// The control words; `None` if the process has gone.
    pub fn control(&self) -> Option<TraceControl> {
        self.rings.control(&self.mem)
    }

    /// Whether it traces now; `None` if the process has gone.
    pub fn on(&self) -> Option<bool> {
        Some(self.switch()? & SWITCH_TRACE != 0)
    }

    fn switch(&self) -> Option<u32> {
        let at = self.found.addr + offset_of!(Descriptor, mem_profiling) as u64;
        let mut word = [0; 4];
        self.mem.read(at, &mut word).ok()?;
        Some(u32::from_ne_bytes(word))
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        let pid = self.process.pid;
        self.mem
            .write(at, data)
            .map_err(|e| proc::failure(pid, "tracer", e))
    }

    /// Switches it.
    ///
    /// # Errors
    /// Those of writing to the process.
    pub fn set(&self, on: bool) -> Result<()> {
        let pid = self.process.pid;
        let word = self.switch().ok_or(Error::Dying { pid })?;
        let word = if on {
            word | SWITCH_TRACE
        } else {
            word & !SWITCH_TRACE
        };
        let at = self.found.addr + offset_of!(Descriptor, mem_profiling) as u64;
        self.write(at, &word.to_ne_bytes())
    }

    /// Sets what it does. To be called while it is off; rings that are there take the mode, but not the size.
    ///
    /// # Errors
    /// Those of writing to the process.
    pub fn configure(&mut self, options: &Options) -> Result<()> {
        use memledger_abi::trace as t;
        type C = TraceControl;
        let base = self.rings.control;
        let word = |at: usize, value: u32| self.write(base + at as u64, &value.to_ne_bytes());
        let long = |at: usize, value: u64| self.write(base + at as u64, &value.to_ne_bytes());
        let mut filters = 0;
        if options.min_bytes.is_some() || options.max_bytes.is_some() {
            filters |= t::FILTER_SIZE;
            long(offset_of!(C, min_bytes), options.min_bytes.unwrap_or(0))?;
            long(
                offset_of!(C, max_bytes),
                options.max_bytes.unwrap_or(u64::MAX),
            )?;
        }
        if !options.caches_off.is_empty() {
            filters |= t::FILTER_CACHE;
            let mut bits = 0u128;
            for cache in options.caches_off.iter().filter(|&&c| c < 128) {
                bits |= 1 << cache;
            }
            long(offset_of!(C, caches_off), bits as u64)?;
            long(offset_of!(C, caches_off) + 8, (bits >> 64) as u64)?;
        }
        if !options.sites.is_empty() {
            filters |= t::FILTER_SITE;
            let n = options.sites.len().min(t::TRACE_SITES);
            for (i, site) in options.sites[..n].iter().enumerate() {
                word(offset_of!(C, sites) + 4 * i, *site)?;
            }
            word(offset_of!(C, site_count), n as u32)?;
        }
        if options.sample > 1 {
            filters |= t::FILTER_SAMPLE;
            word(offset_of!(C, sample), options.sample)?;
        }
        word(offset_of!(C, filters), filters)?;
        word(offset_of!(C, tracers), options.tracers)?;
        if let Some(bytes) = options.ring_bytes {
            long(offset_of!(C, ring_bytes), bytes)?;
        }
        let mode = if options.stop { TRACE_STOP } else { 0 };
        word(offset_of!(C, mode), mode)?;
        for ring in self.rings.headers(&self.mem) {
            let limit = match options.stop {
                true => ring.head.saturating_add(ring.capacity),
                false => u64::MAX,
            };
            let at = ring.addr + offset_of!(RingHeader, limit) as u64;
            self.write(at, &limit.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Leaves out what is in the rings already.
    pub fn skip(&mut self) {
        self.rings.skip(&self.mem);
    }

    /// What was written since the last call.
    pub fn poll(&mut self) -> Batch {
        let mem = &self.mem;
        self.rings.poll(mem, |at, limit| {
            // A process that has gone needs no release.
            let _ = mem.write(at, &limit.to_ne_bytes());
        })
    }

    /// The sums of all threads.
    pub fn sums(&mut self) -> Sums {
        self.rings.sums(&self.mem)
    }

    /// The tables that explain indexes, without the account; `None` if the process has gone.
    pub fn tables(&self) -> Option<Snapshot> {
        Snapshot::tables(&self.mem, self.process.clone(), &self.found)
    }
}

/// Node of a site's index.
pub fn node_of(index: u32) -> Option<u32> {
    index.checked_sub(SITE_BASE)
}

/// This machine's time stamp counter, now.
pub fn now() -> u64 {
    crate::mem::clock().0
}

/// `CLOCK_MONOTONIC`, now, in nanoseconds.
pub fn now_nanos() -> u64 {
    crate::mem::clock().1
}
