//! The arena: one reservation of address space, cut into units, and the free runs in it.
//!
//! ```text
//! base ─┬─ unit 0..16 (bump region) ─┬─ units in use or free ─┬─ never used ── end of the committed part ── reserved
//! hot records ──── one a unit ───────┘      cold records ──── one a unit
//! ```
//! Free runs are of two sorts. *Dirty* runs hold old content; they are handed out first. *Clean* runs read as zero: their pages
//! were given back (or never touched). Runs merge with neighbours of the same sort only. Dirty memory is bounded: above a limit
//! that grows with what is in use, the largest runs are purged, and what stays is halved every quarter of a second in which
//! the arena is used at all. There is no background thread.

use crate::lock::Lock;
use crate::platform::Platform;
use crate::sync;
use crate::unit::{CLEAN, Cold, DIRTY, USED, Unit, get, set};
use core::cell::UnsafeCell;
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use memledger_abi::{KIND_FREE, UNIT_SHIFT};

mod meta;
pub use meta::MetaKind;

/// Bytes of a unit.
pub const UNIT: usize = 1 << UNIT_SHIFT;
/// Units at the start of the arena that are never part of a run (the bump region). Makes unit 0 usable as "none".
pub const BUMP_UNITS: u32 = 16;
/// Units committed at once, at least.
const COMMIT_UNITS: usize = 64;
/// The arena begins at a multiple of this, in bytes.
const ALIGN: usize = 1 << 21;
/// Dirty units that are always allowed to stay: 40 MiB.
const DIRTY_MIN: usize = 640;
/// Purged at once, at least, in units: a system call should be worth it.
const PURGE_STEP: u32 = 16;
/// From this size on zeroed requests prefer clean memory, in bytes.
pub(crate) const ZERO_CLEAN: usize = 32 << 20;
/// Committed bytes from which on slabs are brought in as a whole.
const POPULATE_FROM: usize = 32 << 20;
/// How often dirty memory is halved, in milliseconds.
const DECAY_MS: u64 = 250;

const EXACT: usize = 64;
const BINS: usize = EXACT + 24;

/// Lists of free runs by length: exact up to 64 units, then one a doubling.
struct Bins {
    heads: [u32; BINS],
    mask: u128,
}

const fn bin_of(len: u32) -> usize {
    if (len as usize) <= EXACT {
        len as usize - 1
    } else {
        EXACT + (len.ilog2() as usize - 6)
    }
}

impl Bins {
    const fn new() -> Self {
        Bins {
            heads: [0; BINS],
            mask: 0,
        }
    }

    fn insert(&mut self, cold: &Colds, first: u32, len: u32, state: u32) {
        for u in [first, first + len - 1] {
            set!(cold.at(u).state, state);
            set!(cold.at(u).len, len);
        }
        let bin = bin_of(len);
        let head = self.heads[bin];
        set!(cold.at(first).next, head);
        set!(cold.at(first).prev, 0);
        if head != 0 {
            set!(cold.at(head).prev, first);
        }
        self.heads[bin] = first;
        self.mask |= 1 << bin;
    }

    fn remove(&mut self, cold: &Colds, first: u32) -> u32 {
        let c = cold.at(first);
        let len = get!(c.len);
        let (next, prev) = (get!(c.next), get!(c.prev));
        if next != 0 {
            set!(cold.at(next).prev, prev);
        }
        if prev != 0 {
            set!(cold.at(prev).next, next);
        } else {
            let bin = bin_of(len);
            self.heads[bin] = next;
            if next == 0 {
                self.mask &= !(1 << bin);
            }
        }
        set!(c.state, USED);
        set!(cold.at(first + len - 1).state, USED);
        len
    }

    /// A run that holds `n` units from a multiple of `align` on: (first unit of the run, where in it to begin). Looks at a
    /// bounded number of runs of each length.
    fn find(&self, cold: &Colds, n: u32, align: u32, base_unit: usize) -> Option<(u32, u32)> {
        let mut bins = self.mask >> bin_of(n) << bin_of(n);
        while bins != 0 {
            let bin = bins.trailing_zeros() as usize;
            bins &= bins - 1;
            let mut u = self.heads[bin];
            for _ in 0..64 {
                if u == 0 {
                    break;
                }
                let at = align_unit(u, align, base_unit);
                if at - u + n <= get!(cold.at(u).len) {
                    return Some((u, at));
                }
                u = get!(cold.at(u).next);
            }
        }
        None
    }

    /// A run of the largest there are, but not `except` if there is another.
    fn largest(&self, cold: &Colds, except: u32) -> Option<u32> {
        let mut bins = self.mask;
        while bins != 0 {
            let bin = 127 - bins.leading_zeros();
            bins &= !(1 << bin);
            let head = self.heads[bin as usize];
            if head != except {
                return Some(head);
            }
            let next = get!(cold.at(head).next);
            if next != 0 {
                return Some(next);
            }
        }
        (self.mask != 0).then_some(except)
    }
}

/// The next unit from `u` on whose absolute address is a multiple of `align` units.
fn align_unit(u: u32, align: u32, base_unit: usize) -> u32 {
    let abs = base_unit + u as usize;
    (abs.next_multiple_of(align as usize) - base_unit) as u32
}

/// The cold records, by unit.
#[derive(Clone, Copy)]
struct Colds(*mut Cold);

impl Colds {
    #[inline]
    fn at(&self, u: u32) -> &'static Cold {
        // SAFETY: 1. the array begins at `self.0` and is committed for all units below the arena's committed count; 2. every
        // unit number that is passed comes from such a run; 3. the memory is never unmapped; 4. all fields are atomic.
        unsafe { &*self.0.add(u as usize) }
    }

    /// What merging looks at: the ends of a run in use must not look free (their records may be left over from when they
    /// were inside a free run).
    fn mark_used(&self, first: u32, n: u32) {
        set!(self.at(first).state, USED);
        set!(self.at(first + n - 1).state, USED);
    }
}

struct Inner {
    dirty: Bins,
    clean: Bins,
    /// Units ever taken from the never-used part.
    top: u32,
    /// Units committed.
    committed: u32,
    dirty_units: usize,
    used_units: usize,
    last_decay: u64,
    meta_next: usize,
    meta_end: usize,
}

/// A run that was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Its first unit.
    pub first: u32,
    /// Its pages read as zero.
    pub clean: bool,
}

/// The arena of a manager.
pub struct Arena<P> {
    base: AtomicUsize,
    hot: AtomicUsize,
    cold: AtomicUsize,
    reserved_units: AtomicUsize,
    /// What `free` compares pointers with: `committed_bytes`, or 0 when all frees are to take the slow way, to be traced.
    free_bytes: AtomicUsize,
    /// Bytes from `base` on that are committed.
    committed_bytes: AtomicUsize,
    /// Bytes of own metadata.
    pub meta_bytes: AtomicU64,
    /// The same by [`MetaKind`]: bytes, pieces.
    meta_kinds: [[AtomicU64; 2]; 5],
    /// Runs whose pages were moved there: each is a mapping of its own to the kernel, which allows about 65,000 of them.
    pub moved_runs: AtomicU32,
    /// Runs that a signal handler could not give back; linked by `Cold::next`.
    pending: sync::AtomicU32,
    lock: Lock<P>,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched with `lock` held (or by the one thread that initialises); all else is atomic.
unsafe impl<P: Platform> Sync for Arena<P> {}

impl<P: Platform> Arena<P> {
    /// An arena without memory.
    pub const fn new() -> Self {
        Arena {
            base: AtomicUsize::new(0),
            hot: AtomicUsize::new(0),
            cold: AtomicUsize::new(0),
            reserved_units: AtomicUsize::new(0),
            free_bytes: AtomicUsize::new(0),
            committed_bytes: AtomicUsize::new(0),
            meta_bytes: AtomicU64::new(0),
            meta_kinds: [const { [const { AtomicU64::new(0) }; 2] }; 5],
            moved_runs: AtomicU32::new(0),
            pending: sync::AtomicU32::new(0),
            lock: Lock::new(),
            inner: UnsafeCell::new(Inner {
                dirty: Bins::new(),
                clean: Bins::new(),
                top: 0,
                committed: 0,
                dirty_units: 0,
                used_units: 0,
                last_decay: 0,
                meta_next: 0,
                meta_end: 0,
            }),
        }
    }

    /// Reserves the address space, as much as the system allows (1 TiB at most), and commits the first units. Called once.
    pub fn init(&self) -> bool {
        let limit = P::reserve_limit();
        // Without a limit: 1 TiB, halved until granted. Below one: in steps of an eighth of it.
        let mut want = limit.min(1 << 40);
        while want >= 4 << 20 {
            let units = want / (UNIT + size_of::<Unit>() + size_of::<Cold>());
            let table = (units * size_of::<Unit>()).next_multiple_of(P::PAGE);
            let p = P::reserve(2 * table + ALIGN + units * UNIT) as usize;
            if p != 0 {
                self.hot.store(p, Ordering::Relaxed);
                self.cold.store(p + table, Ordering::Relaxed);
                self.reserved_units.store(units, Ordering::Relaxed);
                self.base
                    .store((p + 2 * table).next_multiple_of(ALIGN), Ordering::Release);
                // SAFETY: called once, before any other use.
                let inner = unsafe { &mut *self.inner.get() };
                inner.top = BUMP_UNITS;
                inner.used_units = BUMP_UNITS as usize;
                return self.grow(inner, BUMP_UNITS);
            }
            want = if limit < 1 << 40 {
                want - (limit / 8).min(want)
            } else {
                want / 2
            };
        }
        false
    }

    /// Lowest address.
    #[inline(always)]
    pub fn base(&self) -> usize {
        self.base.load(Ordering::Relaxed)
    }

    /// Address of the hot records.
    #[inline(always)]
    pub fn hot_address(&self) -> usize {
        self.hot.load(Ordering::Relaxed)
    }

    /// Address of the count of committed bytes (a `u64`), for readers.
    pub fn committed_at(&self) -> u64 {
        self.committed_bytes.as_ptr() as u64
    }

    /// Units that have records.
    pub fn unit_count(&self) -> u32 {
        (self.committed_bytes.load(Ordering::Acquire) >> UNIT_SHIFT) as u32
    }

    /// The unit that address `p` is in, if it is in the committed part.
    #[inline(always)]
    pub fn unit_of(&self, p: usize) -> Option<u32> {
        let off = p.wrapping_sub(self.base());
        (off < self.committed_bytes.load(Ordering::Relaxed)).then_some((off >> UNIT_SHIFT) as u32)
    }

    /// As [`Arena::unit_of`] for `free`; `None` also when frees are to take the slow way.
    #[inline(always)]
    pub fn unit_to_free(&self, p: usize) -> Option<u32> {
        let off = p.wrapping_sub(self.base());
        (off < self.free_bytes.load(Ordering::Relaxed)).then_some((off >> UNIT_SHIFT) as u32)
    }

    /// Sends frees the fast way, or the slow one if they are traced. To be called whenever the committed bytes or the switch may
    /// have changed.
    ///
    /// The order of store and load (both sequentially consistent) matters: when tracing is switched on in between, either this call sees it,
    /// or whoever sees the switch closes the fast way after this store.
    #[cold]
    pub fn route_frees(&self) {
        self.free_bytes.store(
            self.committed_bytes.load(Ordering::Acquire),
            Ordering::SeqCst,
        );
        if P::tracing() {
            self.free_bytes.store(0, Ordering::SeqCst);
        }
    }

    /// Whether frees take the fast way.
    #[inline(always)]
    pub fn frees_are_fast(&self) -> bool {
        self.free_bytes.load(Ordering::Relaxed) != 0
    }

    /// Units that address space is reserved for.
    pub fn reserved(&self) -> usize {
        self.reserved_units.load(Ordering::Relaxed)
    }

    /// The hot record of a unit below [`Arena::unit_count`].
    #[inline(always)]
    pub fn hot(&self, u: u32) -> &'static Unit {
        // SAFETY: 1. the array begins at `hot` and is committed for every unit below the committed count, which only
        // grows and is raised after the commit; 2. callers pass such units; 3. it is never unmapped; 4. all fields are atomic.
        unsafe { &*(self.hot_address() as *const Unit).add(u as usize) }
    }

    /// The cold record of a unit below [`Arena::unit_count`].
    #[inline]
    pub fn cold(&self, u: u32) -> &'static Cold {
        self.colds().at(u)
    }

    fn colds(&self) -> Colds {
        Colds(self.cold.load(Ordering::Relaxed) as *mut Cold)
    }

    /// Address of a unit.
    #[inline]
    pub fn address(&self, u: u32) -> usize {
        self.base() + ((u as usize) << UNIT_SHIFT)
    }

    /// The lock: the innermost one, whose holder waits for nothing.
    pub fn lock(&self) -> &Lock<P> {
        &self.lock
    }

    fn with<R>(&self, nested: bool, f: impl FnOnce(&mut Inner) -> R) -> Option<R> {
        if nested {
            if !self.lock.acquire_nested() {
                return None;
            }
        } else {
            self.lock.acquire();
        }
        // SAFETY: the lock is held, and `f` cannot re-enter: it calls nothing that takes the lock.
        let inner = unsafe { &mut *self.inner.get() };
        if self.pending.load(Ordering::Relaxed) != 0 {
            self.take_pending(inner);
        }
        let r = f(inner);
        self.lock.release();
        Some(r)
    }

    /// Takes a run of `n` units that begins at a multiple of `align` units. `zero`: it will be zeroed, so the largest prefer clean memory.
    /// `None`: out of memory, or (`nested`) the lock is held by the code that was interrupted.
    pub fn take(&self, n: u32, align: u32, zero: bool, nested: bool) -> Option<Run> {
        let run = self.with(nested, |inner| self.take_locked(inner, n, align, zero))??;
        Some(run)
    }

    fn take_locked(&self, inner: &mut Inner, n: u32, align: u32, zero: bool) -> Option<Run> {
        // With both below the number of units (2^24 at the most) no sum below can overflow.
        let reserved = self.reserved_units.load(Ordering::Relaxed);
        if n as usize > reserved || align as usize > reserved {
            return None;
        }
        let colds = self.colds();
        let base_unit = self.base() >> UNIT_SHIFT;
        // Memory that was used lately is in the caches, so even zeroed requests take it (and clear it); only the largest, of
        // which often little is touched, rather take pages that are zero.
        let clean_first = zero && n as usize * UNIT >= ZERO_CLEAN;
        for clean in [clean_first, !clean_first] {
            let bins = if clean {
                &mut inner.clean
            } else {
                &mut inner.dirty
            };
            if let Some((first, at)) = bins.find(&colds, n, align, base_unit) {
                let len = bins.remove(&colds, first);
                let state = if clean { CLEAN } else { DIRTY };
                if at > first {
                    bins.insert(&colds, first, at - first, state);
                }
                if at + n < first + len {
                    bins.insert(&colds, at + n, first + len - at - n, state);
                }
                if !clean {
                    inner.dirty_units -= n as usize;
                }
                inner.used_units += n as usize;
                colds.mark_used(at, n);
                return Some(Run { first: at, clean });
            }
        }
        let at = align_unit(inner.top, align, base_unit);
        if at + n > inner.committed && !self.grow(inner, at + n) {
            return None;
        }
        if at > inner.top {
            let (first, len) = (inner.top, at - inner.top);
            self.insert_merged(inner, first, len, CLEAN);
        }
        inner.top = at + n;
        inner.used_units += n as usize;
        colds.mark_used(at, n);
        Some(Run {
            first: at,
            clean: true,
        })
    }

    /// Commits units so that `units` of them are.
    fn grow(&self, inner: &mut Inner, units: u32) -> bool {
        let reserved = self.reserved_units.load(Ordering::Relaxed);
        let old = inner.committed as usize;
        let new = (units as usize)
            .next_multiple_of(COMMIT_UNITS)
            .min(reserved);
        if new < units as usize {
            return false;
        }
        let page = P::PAGE;
        for table in [self.hot_address(), self.cold.load(Ordering::Relaxed)] {
            let from = (table + old * 64).next_multiple_of(page);
            let to = (table + new * 64).next_multiple_of(page);
            let from = if old == 0 { table & !(page - 1) } else { from };
            if to > from && !P::commit(from, to - from) {
                return false;
            }
        }
        if !P::commit(self.base() + old * UNIT, (new - old) * UNIT) {
            return false;
        }
        inner.committed = new as u32;
        self.committed_bytes.store(new * UNIT, Ordering::Release);
        self.route_frees();
        true
    }

    /// Puts a free run to its neighbours of the same state.
    fn insert_merged(&self, inner: &mut Inner, mut first: u32, mut len: u32, state: u32) -> u32 {
        let colds = self.colds();
        let top = inner.top;
        let bins = if state == CLEAN {
            &mut inner.clean
        } else {
            &mut inner.dirty
        };
        if first > BUMP_UNITS && get!(colds.at(first - 1).state) == state {
            let before = get!(colds.at(first - 1).len);
            first -= before;
            bins.remove(&colds, first);
            len += before;
        }
        if first + len < top && get!(colds.at(first + len).state) == state {
            len += bins.remove(&colds, first + len);
        }
        bins.insert(&colds, first, len, state);
        first
    }

    /// Brings in the pages of a clean run that is about to be filled, once the heap is large enough for the rest of a slab not
    /// to matter.
    pub fn populate(&self, run: Run, n: u32) {
        if run.clean && self.committed_bytes.load(Ordering::Relaxed) >= POPULATE_FROM {
            P::populate(self.address(run.first), n as usize * UNIT);
        }
    }

    /// Splits the used run `[first, first + n)`: its last `n - keep` units become a run of their own, to be given back.
    pub fn split(&self, first: u32, n: u32, keep: u32) {
        self.colds().mark_used(first, keep);
        self.colds().mark_used(first + keep, n - keep);
    }

    /// Gives a run back. Its hot records must no longer describe it (see [`Arena::forget`]). In a signal handler that must not
    /// wait (`nested`) the run is put aside for whoever takes the lock next.
    pub fn give(&self, first: u32, n: u32, nested: bool) {
        if get!(self.cold(first).moved) != 0 {
            set!(self.cold(first).moved, 0);
            self.moved_runs.fetch_sub(1, Ordering::Relaxed);
            // A run that cannot be mapped anew stays out of use: its pages may be gone.
            if P::reset(self.address(first), n as usize * UNIT)
                && !self.give_clean(first, n, nested)
            {
                self.put_aside(first, n);
            }
            return;
        }
        let now = P::now_ms();
        let goal = self.with(nested, |inner| {
            inner.used_units -= n as usize;
            inner.dirty_units += n as usize;
            let merged = self.insert_merged(inner, first, n, DIRTY);
            let limit = DIRTY_MIN.max(inner.used_units / 8);
            if inner.dirty_units > limit {
                inner.last_decay = now;
                // Not far below: what a program uses again and again should be able to stay.
                Some((limit - limit / 8, merged))
            } else if now.wrapping_sub(inner.last_decay) >= DECAY_MS {
                inner.last_decay = now;
                Some((inner.dirty_units / 2, merged))
            } else {
                None
            }
        });
        match goal {
            None => self.put_aside(first, n),
            Some(None) => {}
            Some(Some((goal, merged))) => {
                self.purge_to(goal, merged, nested);
            }
        }
    }

    /// Puts a used run aside, without the lock.
    pub(crate) fn put_aside(&self, first: u32, n: u32) {
        set!(self.cold(first).len, n);
        let mut head = self.pending.load(Ordering::Relaxed);
        loop {
            set!(self.cold(first).next, head);
            match self
                .pending
                .compare_exchange(head, first, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Gives back what was put aside. The lock is held.
    fn take_pending(&self, inner: &mut Inner) {
        let mut first = self.pending.swap(0, Ordering::Acquire);
        while first != 0 {
            let (next, n) = (get!(self.cold(first).next), get!(self.cold(first).len));
            inner.used_units -= n as usize;
            inner.dirty_units += n as usize;
            self.insert_merged(inner, first, n, DIRTY);
            first = next;
        }
    }

    /// Gives back a run whose pages read as zero.
    fn give_clean(&self, first: u32, n: u32, nested: bool) -> bool {
        self.with(nested, |inner| {
            inner.used_units -= n as usize;
            self.insert_merged(inner, first, n, CLEAN);
        })
        .is_some()
    }

    /// Purges dirty runs, the largest first but that of `except` (which is in the caches) last, until at most `goal` dirty units
    /// are left. The lock is not held during the system calls. Returns the bytes given back.
    pub fn purge_to(&self, goal: usize, except: u32, nested: bool) -> usize {
        let mut given = 0;
        loop {
            let taken = self.with(nested, |inner| self.take_dirty(inner, goal, except));
            let Some(Some((first, len))) = taken else {
                return given;
            };
            P::purge(self.address(first), len as usize * UNIT);
            given += len as usize * UNIT;
            if !self.give_clean(first, len, nested) {
                self.put_aside(first, len);
                return given;
            }
        }
    }

    /// Takes a dirty run out, or as much of its end as is too much.
    fn take_dirty(&self, inner: &mut Inner, goal: usize, except: u32) -> Option<(u32, u32)> {
        let over = inner.dirty_units.checked_sub(goal).filter(|&n| n > 0)? as u32;
        let colds = self.colds();
        let first = inner.dirty.largest(&colds, except)?;
        let len = inner.dirty.remove(&colds, first);
        let keep = len.saturating_sub(over.max(PURGE_STEP));
        if keep > 0 {
            inner.dirty.insert(&colds, first, keep, DIRTY);
        }
        let (first, len) = (first + keep, len - keep);
        colds.mark_used(first, len);
        inner.dirty_units -= len as usize;
        inner.used_units += len as usize;
        Some((first, len))
    }

    /// Extends the used run `[first, first + n)` by `more` units, if they are free right behind it.
    /// Returns whether the new units are clean.
    pub fn extend(&self, first: u32, n: u32, more: u32) -> Option<bool> {
        if more as usize > self.reserved_units.load(Ordering::Relaxed) {
            return None;
        }
        self.with(false, |inner| {
            let colds = self.colds();
            let next = first + n;
            if next == inner.top {
                if next + more > inner.committed && !self.grow(inner, next + more) {
                    return None;
                }
                inner.top += more;
                inner.used_units += more as usize;
                colds.mark_used(next, more);
                return Some(true);
            }
            let state = get!(colds.at(next).state);
            if state == USED || get!(colds.at(next).len) < more {
                return None;
            }
            let bins = if state == CLEAN {
                &mut inner.clean
            } else {
                &mut inner.dirty
            };
            let len = bins.remove(&colds, next);
            if len > more {
                bins.insert(&colds, next + more, len - more, state);
            }
            if state == DIRTY {
                inner.dirty_units -= more as usize;
            }
            inner.used_units += more as usize;
            colds.mark_used(next, more);
            Some(state == CLEAN)
        })?
    }

    /// Marks the hot records of a run as free, before [`Arena::give`].
    pub fn forget(&self, first: u32, n: u32) {
        for u in first..first + n {
            self.hot(u).change(|h| {
                set!(h.kind, KIND_FREE);
                set!(h.recip, 0);
                set!(h.index, 0);
                set!(h.start, 0);
                set!(h.cells, 0);
                set!(h.slots, 0);
                set!(h.bytes, 0);
                set!(h.back, 0);
            });
        }
    }

    /// (bytes in runs that are handed out, bytes of dirty free runs, bytes of committed address space). The caller has set `busy`.
    pub fn usage(&self) -> (usize, usize, usize) {
        self.with(false, |i| {
            (
                i.used_units * UNIT,
                i.dirty_units * UNIT,
                i.committed as usize * UNIT,
            )
        })
        .unwrap_or((0, 0, 0))
    }
}

impl<P: Platform> Default for Arena<P> {
    fn default() -> Self {
        Self::new()
    }
}
