//! The sums: per site and per cache in tables of the thread, per object in the table that all share.

use crate::System;
use crate::control::Tracer;
use crate::record::{Fact, is_alloc};
use crate::ring::{Ring, SITE_SLOTS};
use core::sync::atomic::{AtomicU64, Ordering};
use memledger_abi::trace::{
    CPU_UNKNOWN, CacheStat, OBJECT_WAYS, ObjectSlot, SiteStat, TRACE_CACHES, TRACER_CACHES,
    TRACER_OBJECTS, TRACER_SITES, object_bucket, site_hash,
};

/// Slots that are looked at for a site.
const PROBES: usize = 32;

/// What the object table knew of a freed object.
struct Past {
    time: u64,
    cpu: u16,
    requested: u64,
}

/// A word of a table that only this thread writes, and readers outside read.
///
/// # Safety
/// `at` is an aligned `u64` in memory that is never unmapped.
#[inline(always)]
unsafe fn bump(at: *mut u64, n: u64) {
    // SAFETY: by the contract.
    Ring::add(unsafe { AtomicU64::from_ptr(at) }, n);
}

impl Tracer {
    /// Adds `fact` to the sums that are wanted. Returns true when the object table had no room for the first time on this thread.
    #[inline(never)]
    pub(crate) fn sums<S: System>(
        &self,
        ring: &Ring,
        fact: &Fact,
        tracers: u32,
        time: u64,
        cpu: u16,
    ) -> bool {
        let (mut past, mut overflow) = (None, false);
        if tracers & TRACER_OBJECTS != 0
            && let Some(table) = self.object_table::<S>()
        {
            if is_alloc(fact) {
                overflow = !remember(table, fact, time, cpu) && self.object_lost(ring);
            } else {
                past = forget(table, fact.ptr as u64);
            }
        }
        let cross = past
            .as_ref()
            .is_some_and(|p| p.cpu != cpu && p.cpu != CPU_UNKNOWN && cpu != CPU_UNKNOWN);
        if let Some(p) = &past {
            // SAFETY: the ring's histogram has 64 words.
            unsafe {
                let at = ring.lifetimes.load(Ordering::Relaxed);
                bump(at.add(bucket(time.saturating_sub(p.time))), 1);
            }
        }
        if tracers & TRACER_CACHES != 0 {
            add_cache(ring, fact, cross);
        }
        if tracers & TRACER_SITES != 0 {
            add_site(ring, fact, cross, past.map_or(0, |p| p.requested));
        }
        overflow
    }

    /// Counts an object without room. Returns whether it is the first one since the table exists.
    #[cold]
    fn object_lost(&self, _ring: &Ring) -> bool {
        self.object_overflow().fetch_add(1, Ordering::Relaxed) == 0
    }
}

/// Bucket of a histogram: significant bits, 63 at the most.
fn bucket(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).min(63)
}

fn add_cache(ring: &Ring, fact: &Fact, cross: bool) {
    let cache = usize::from(fact.cache) % TRACE_CACHES;
    // SAFETY: the ring has `TRACE_CACHES` of them, which only this thread writes; all fields are aligned words.
    unsafe {
        let at: *mut CacheStat = ring.caches.load(Ordering::Relaxed).add(cache);
        if is_alloc(fact) {
            bump(&raw mut (*at).allocs, 1);
            bump(&raw mut (*at).requested, fact.requested as u64);
            bump(&raw mut (*at).given, fact.given as u64);
            let sizes = ring.sizes.load(Ordering::Relaxed);
            bump(sizes.add(bucket(fact.requested as u64)), 1);
        } else {
            bump(&raw mut (*at).frees, 1);
            bump(&raw mut (*at).freed, fact.given as u64);
            bump(&raw mut (*at).cross, u64::from(cross));
        }
    }
}

fn add_site(ring: &Ring, fact: &Fact, cross: bool, freed_requested: u64) {
    let table: *mut SiteStat = ring.sites.load(Ordering::Relaxed);
    let mut place = site_hash(fact.index) as usize;
    // Index 0 marks an empty slot; it names nobody.
    let wanted = u64::from(fact.index.max(1));
    for _ in 0..PROBES {
        place &= SITE_SLOTS - 1;
        // SAFETY: below `SITE_SLOTS`; only this thread writes the table; all fields are aligned words.
        unsafe {
            let at = table.add(place);
            let index = AtomicU64::from_ptr(&raw mut (*at).index);
            let found = index.load(Ordering::Relaxed);
            if found == 0 {
                index.store(wanted, Ordering::Release);
            }
            if found == 0 || found == wanted {
                if is_alloc(fact) {
                    bump(&raw mut (*at).allocs, 1);
                    bump(&raw mut (*at).requested, fact.requested as u64);
                    bump(&raw mut (*at).given, fact.given as u64);
                } else {
                    bump(&raw mut (*at).frees, 1);
                    bump(&raw mut (*at).freed, fact.given as u64);
                    bump(&raw mut (*at).cross, u64::from(cross));
                    bump(&raw mut (*at).freed_requested, freed_requested);
                }
                return;
            }
        }
        place += 1;
    }
    Ring::add(&ring.site_overflow, 1);
}

/// The words of a bucket's slot.
///
/// # Safety
/// `i` is a slot of the table.
unsafe fn words(table: *mut ObjectSlot, i: usize) -> &'static [AtomicU64; 4] {
    // SAFETY: by the contract; the table is never unmapped and all fields are words.
    unsafe { &*table.add(i).cast() }
}

/// Puts an object into its bucket. False: it is full.
fn remember((table, buckets): (*mut ObjectSlot, usize), fact: &Fact, time: u64, cpu: u16) -> bool {
    let ptr = fact.ptr as u64;
    let first = object_bucket(ptr, buckets) * OBJECT_WAYS;
    for i in first..first + OBJECT_WAYS {
        // SAFETY: the bucket is below `buckets`.
        let slot = unsafe { words(table, i) };
        let at = slot[0].load(Ordering::Relaxed);
        // The same address: its free was not seen (tracing was off, or filtered).
        let mine = at == ptr
            || at == 0
                && slot[0]
                    .compare_exchange(0, ptr, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok();
        if mine {
            slot[1].store(time, Ordering::Relaxed);
            slot[2].store(
                u64::from(fact.index) | u64::from(cpu) << 32,
                Ordering::Relaxed,
            );
            slot[3].store(fact.requested as u64, Ordering::Release);
            return true;
        }
    }
    false
}

/// Takes an object out of its bucket.
fn forget((table, buckets): (*mut ObjectSlot, usize), ptr: u64) -> Option<Past> {
    let first = object_bucket(ptr, buckets) * OBJECT_WAYS;
    (first..first + OBJECT_WAYS).find_map(|i| {
        // SAFETY: the bucket is below `buckets`.
        let slot = unsafe { words(table, i) };
        if slot[0].load(Ordering::Acquire) != ptr {
            return None;
        }
        let past = Past {
            time: slot[1].load(Ordering::Relaxed),
            cpu: (slot[2].load(Ordering::Relaxed) >> 32) as u16,
            requested: slot[3].load(Ordering::Relaxed),
        };
        slot[0].store(0, Ordering::Release);
        Some(past)
    })
}
