//! Named caches: slabs of their own for objects of one kind, as the kernel's `kmem_cache`.
//!
//! A cache has a lock, a list of slabs with free slots, and its slots are exactly as large as its objects (the classes of `malloc`
//! round). Its objects are charged as others are, by a cell each, so that readers need to know nothing of caches. Nothing on the way of
//! `malloc` and `free` knows of them either: the hot records of their slabs have no reciprocal, which sends `free` to where it finds
//! out that the pointer is none of its own.
//!
//! The record of a cache is published and is never unmapped; a new cache takes over the record of one that was destroyed. All that is done
//! under a cache's lock is done with `busy` set, so that signal handlers do not wait (see `lock`).

use crate::arena::{Arena, MetaKind, UNIT};
use crate::heap::Entry;
use crate::lock::Lock;
use crate::manager::Manager;
use crate::platform::{Misuse, Platform, RunTaken};
use crate::slab;
use crate::unit::{get, set};
use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};
use memledger_abi::KIND_SLAB;
use memledger_abi::pool::{CLASS_POOL, POOL_FREE, POOL_LEFT, POOL_LIVE, POOL_NAME_MAX, PoolRecord};

/// Largest object, in bytes.
pub const MAX_OBJECT: usize = 1 << 20;
/// Largest alignment, in bytes: that of a unit.
pub const MAX_ALIGN: usize = UNIT;
/// Slots that a slab has at the least.
const MIN_SLOTS: usize = 8;
/// Slots that a slab has at the most: what readers have room for.
const MAX_SLOTS: usize = 8192;
/// Empty slabs that a cache keeps.
const EMPTY_KEPT: u32 = 1;

/// What a cache is to be.
#[derive(Debug, Clone, Copy)]
pub struct PoolSpec<'a> {
    /// Its name: 1 to 64 bytes without white space and control characters.
    pub name: &'a str,
    /// Bytes of an object.
    pub size: usize,
    /// Alignment of objects, a power of two.
    pub align: usize,
}

/// Why a cache could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// The name is empty, longer than 64 bytes, or has white space or control characters in it.
    Name,
    /// The object is larger than [`MAX_OBJECT`], or its alignment is no power of two or larger than [`MAX_ALIGN`].
    Size,
    /// 65535 caches are in use.
    TooMany,
    /// Out of memory, or called by a signal handler that must not wait.
    NoMemory,
}

impl core::fmt::Display for PoolError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            PoolError::Name => "a cache's name is 1 to 64 bytes without blanks",
            PoolError::Size => "objects of a cache are at most 1 MiB large and aligned to 64 KiB",
            PoolError::TooMany => "too many caches",
            PoolError::NoMemory => "out of memory",
        })
    }
}

impl core::error::Error for PoolError {}

struct Inner {
    /// First slab with free slots, by unit; 0 = none.
    partial: u32,
    /// Slabs all of whose slots are free.
    empty: u32,
}

/// [`PoolRecord`] with atomic fields; all accesses are relaxed. What does not count is written before the cache is handed out.
#[repr(C)]
struct Record {
    next: AtomicU64,
    name: [AtomicU64; POOL_NAME_MAX / 8],
    name_len: AtomicU32,
    id: AtomicU32,
    state: AtomicU32,
    align: AtomicU32,
    object_bytes: AtomicU64,
    slot_bytes: AtomicU64,
    slots: AtomicU32,
    units: AtomicU32,
    slabs: AtomicU64,
    live: AtomicU64,
    lost: AtomicU64,
    pad: [u64; 3],
}

const _: () = {
    assert!(size_of::<Record>() == size_of::<PoolRecord>());
    assert!(offset_of!(Record, state) == offset_of!(PoolRecord, state));
    assert!(offset_of!(Record, slots) == offset_of!(PoolRecord, slots));
    assert!(offset_of!(Record, lost) == offset_of!(PoolRecord, lost));
};

/// A cache. The record comes first: its address is the cache's.
#[repr(C)]
pub struct Pool<P> {
    record: Record,
    lock: Lock<P>,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched with the lock held; all else is atomic.
unsafe impl<P: Platform> Sync for Pool<P> {}

/// All caches.
pub struct Pools<P> {
    lock: Lock<P>,
    head: AtomicPtr<Pool<P>>,
}

impl<P: Platform> Pools<P> {
    pub(crate) const fn new() -> Self {
        Pools {
            lock: Lock::new(),
            head: AtomicPtr::new(null_mut()),
        }
    }

    /// Address of the word that holds the address of the first record.
    pub fn head_at(&self) -> u64 {
        self.head.as_ptr() as u64
    }

    fn each(&self, mut f: impl FnMut(&'static Pool<P>)) {
        let mut at = self.head.load(Ordering::Acquire);
        // SAFETY: caches are never unmapped; `next` is set before a cache is put at the head, and does not change.
        while let Some(pool) = unsafe { at.as_ref() } {
            f(pool);
            at = get!(pool.record.next) as *mut Pool<P>;
        }
    }

    /// Before `fork`: takes all locks.
    pub(crate) fn fork_prepare(&self) {
        self.lock.fork_prepare();
        self.each(|pool| pool.lock.fork_prepare());
    }

    /// After `fork`.
    pub(crate) fn fork_done(&self, child: bool) {
        self.each(|pool| pool.lock.fork_done(child));
        self.lock.fork_done(child);
    }
}

impl<P: Platform> Pool<P> {
    /// A copy of its record; the counters may be of slightly different moments.
    pub fn record(&self) -> PoolRecord {
        let r = &self.record;
        let mut name = [0; POOL_NAME_MAX];
        for (to, word) in name.chunks_exact_mut(8).zip(&r.name) {
            to.copy_from_slice(&get!(word).to_ne_bytes());
        }
        PoolRecord {
            next: get!(r.next),
            name,
            name_len: get!(r.name_len),
            id: get!(r.id),
            state: get!(r.state),
            align: get!(r.align),
            object_bytes: get!(r.object_bytes),
            slot_bytes: get!(r.slot_bytes),
            slots: get!(r.slots),
            units: get!(r.units),
            slabs: get!(r.slabs),
            live: get!(r.live),
            lost: get!(r.lost),
            pad: r.pad,
        }
    }

    /// Writes what a new cache is. The list's lock is held, and nobody has the cache.
    fn describe(&self, spec: &PoolSpec<'_>, slot: usize, slots: u32, units: u32) {
        let r = &self.record;
        let mut name = [0; POOL_NAME_MAX];
        name[..spec.name.len()].copy_from_slice(spec.name.as_bytes());
        for (word, bytes) in r.name.iter().zip(name.as_chunks::<8>().0) {
            set!(word, u64::from_ne_bytes(*bytes));
        }
        set!(r.name_len, spec.name.len() as u32);
        set!(r.align, spec.align as u32);
        set!(r.object_bytes, spec.size as u64);
        set!(r.slot_bytes, slot as u64);
        set!(r.slots, slots);
        set!(r.units, units);
        set!(r.slabs, 0);
        set!(r.live, 0);
        set!(r.lost, 0);
        r.state.store(POOL_LIVE, Ordering::Release);
    }

    fn with<R>(&self, nested: bool, f: impl FnOnce(&mut Inner, &Record) -> R) -> Option<R> {
        if !nested {
            self.lock.acquire();
        } else if !self.lock.acquire_nested() {
            return None;
        }
        // SAFETY: the lock is held, and `f` does not come here again.
        let r = unsafe { f(&mut *self.inner.get(), &self.record) };
        self.lock.release();
        Some(r)
    }
}

/// Bytes of a slot, units of a slab.
fn layout(spec: &PoolSpec<'_>) -> Option<(usize, u32)> {
    if !spec.align.is_power_of_two() || spec.align > MAX_ALIGN || spec.size > MAX_OBJECT {
        return None;
    }
    let slot = spec.size.max(8).next_multiple_of(spec.align.max(8));
    // A cell, a bit and the rounding of the tail: 1/8 more is enough for slots of 64 bytes on.
    let least = MIN_SLOTS * (slot + 8) + 64;
    Some((slot, least.div_ceil(UNIT) as u32))
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| !c.is_whitespace() && !c.is_control();
    (1..=POOL_NAME_MAX).contains(&name.len()) && name.chars().all(plain)
}

/// The first unit of the slab that `p` is in, and its slot, if it is a slot of this cache.
fn find<P: Platform>(arena: &Arena<P>, id: u32, p: usize) -> Option<(u32, usize)> {
    let unit = arena.unit_of(p)?;
    let first = unit - get!(arena.hot(unit).back);
    let hot = arena.hot(first);
    let ours = get!(hot.kind) == KIND_SLAB
        && get!(hot.class) == CLASS_POOL
        && u32::from(get!(hot.flags)) == id;
    let (offset, bytes) = (
        p.checked_sub(get!(hot.start) as usize)?,
        get!(hot.bytes) as usize,
    );
    let slot = offset.checked_div(bytes).filter(|_| ours)?;
    (offset == slot * bytes && slot < get!(hot.slots) as usize).then_some((first, slot))
}

/// The index in a cell of `width` bytes.
fn load(cell: usize, width: usize) -> u32 {
    // SAFETY: callers pass the address of a cell of a slab that stays mapped, aligned to its width.
    unsafe {
        match width {
            2 => u32::from((*(cell as *const AtomicU16)).load(Ordering::Relaxed)),
            _ => (*(cell as *const AtomicU32)).load(Ordering::Relaxed),
        }
    }
}

/// Writes the index to a cell of `width` bytes.
fn store(cell: usize, width: usize, index: u32) {
    // SAFETY: as in `load`.
    unsafe {
        match width {
            2 => (*(cell as *const AtomicU16)).store(index as u16, Ordering::Relaxed),
            _ => (*(cell as *const AtomicU32)).store(index, Ordering::Relaxed),
        }
    }
}

impl<P: Platform> Manager<P> {
    /// Makes a cache.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn pool_create(&self, spec: &PoolSpec<'_>) -> Result<&'static Pool<P>, PoolError> {
        if !is_name(spec.name) {
            return Err(PoolError::Name);
        }
        let (slot, units) = layout(spec).ok_or(PoolError::Size)?;
        let shape = slab::cut(slot, units as usize * UNIT, self.cell_bytes(), MAX_SLOTS);
        if !self.ready() || self.is_nested() {
            return Err(PoolError::NoMemory);
        }
        self.guarded(false, || {
            self.pools.lock.acquire();
            let made = self.pool_record().inspect(|pool| {
                pool.with(false, |inner, _| (inner.partial, inner.empty) = (0, 0));
                pool.describe(spec, slot, shape.slots, units);
            });
            self.pools.lock.release();
            made
        })
    }

    /// A free record, or a new one. The list's lock is held.
    fn pool_record(&self) -> Result<&'static Pool<P>, PoolError> {
        let (mut free, mut last) = (None, 0);
        self.pools.each(|pool| {
            let record = pool.record();
            last = last.max(record.id);
            if record.state == POOL_FREE {
                free = Some(pool);
            }
        });
        if let Some(pool) = free {
            return Ok(pool);
        }
        if last >= u32::from(u16::MAX) {
            return Err(PoolError::TooMany);
        }
        let memory = self
            .arena
            .meta_for(MetaKind::Pool, size_of::<Pool<P>>(), false);
        // SAFETY: null, or zeroed memory for ever, aligned to 64: a valid cache without slabs, and a free lock.
        let pool = unsafe { memory.cast::<Pool<P>>().as_ref() }.ok_or(PoolError::NoMemory)?;
        let head = self.pools.head.load(Ordering::Relaxed);
        set!(pool.record.id, last + 1);
        set!(pool.record.next, head as u64);
        self.pools.head.store(memory.cast(), Ordering::Release);
        Ok(pool)
    }

    /// Whether this is a signal handler that interrupted the manager.
    fn is_nested(&self) -> bool {
        // SAFETY: this thread's slot.
        unsafe { (&raw const (*P::thread()).busy).read_volatile() != 0 }
    }

    /// An object of the cache, charged to `index` (not 0). Null: out of memory, or a signal handler that must not wait.
    pub fn pool_alloc(&self, pool: &Pool<P>, index: u32) -> *mut u8 {
        let (nested, width) = (self.is_nested(), self.cell_bytes());
        let entry = self.guarded(nested, || {
            pool.with(nested, |inner, r| {
                if inner.partial == 0 && !self.pool_grow(inner, r, nested) {
                    return None;
                }
                let first = inner.partial;
                let (hot, cold) = (self.arena.hot(first), self.arena.cold(first));
                if get!(cold.free_slots) == get!(hot.slots) {
                    inner.empty -= 1;
                }
                let mut e = Entry { slot: 0, cell: 0 };
                // SAFETY: `first` is a slab of this cache, whose lock is held; there is room for one entry.
                if unsafe { slab::take_slots(&self.arena, first, &mut e, 1, width) } == 0 {
                    return None;
                }
                if get!(cold.free_slots) == 0 {
                    unlink(&self.arena, inner, first);
                }
                r.live.fetch_add(1, Ordering::Relaxed);
                if e.cell != 0 {
                    store(e.cell, width, index);
                }
                Some(e)
            })
        });
        entry.flatten().map_or(null_mut(), |e| e.slot as *mut u8)
    }

    /// A new slab. The cache's lock is held.
    fn pool_grow(&self, inner: &mut Inner, r: &Record, nested: bool) -> bool {
        let width = self.cell_bytes();
        let (slot, units) = (get!(r.slot_bytes) as usize, get!(r.units));
        let shape = slab::cut(slot, units as usize * UNIT, width, MAX_SLOTS);
        let Some(run) = self.arena.take(units, 1, false, nested) else {
            return false;
        };
        let taken = RunTaken {
            first: run.first,
            units,
            large: false,
            zero: false,
        };
        P::run_taken(taken, nested);
        let cut = slab::Cut {
            size: slot,
            units,
            class: CLASS_POOL,
            recip: 0,
            flags: get!(r.id) as u16,
            shape,
        };
        slab::create_cut(&self.arena, run.first, run.clean, &cut, width);
        push(&self.arena, inner, run.first);
        inner.empty += 1;
        r.slabs.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Frees an object of the cache. What is none ends the process by [`Platform::misuse`].
    ///
    /// # Safety
    /// `p` is not used afterwards.
    pub unsafe fn pool_free(&self, pool: &Pool<P>, p: usize) {
        let width = self.cell_bytes();
        let id = get!(pool.record.id);
        let Some((first, slot)) = find(&self.arena, id, p) else {
            P::misuse(Misuse::NoObject, p);
        };
        let hot = self.arena.hot(first);
        let cells = get!(hot.cells) as usize;
        if cells != 0 {
            if load(cells + slot * width, width) == 0 {
                P::misuse(Misuse::DoubleFree, p);
            }
            store(cells + slot * width, width, 0);
        }
        let nested = self.is_nested();
        let done = self.guarded(nested, || {
            pool.with(nested, |inner, r| {
                let free = slab::put_slot_number(&self.arena, first, slot)?;
                r.live.fetch_sub(1, Ordering::Relaxed);
                if free == 1 {
                    push(&self.arena, inner, first);
                }
                if free == get!(hot.slots) {
                    inner.empty += 1;
                    if inner.empty > EMPTY_KEPT && !nested {
                        self.pool_release(inner, r, first);
                    }
                }
                Some(())
            })
        });
        match done {
            Some(Some(())) => {}
            Some(None) => P::misuse(Misuse::DoubleFree, p),
            None => {
                pool.record.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whom a live object of the cache is charged to; `None` if `p` is none, or nothing is known of it (mode `never`).
    pub fn pool_index(&self, pool: &Pool<P>, p: usize) -> Option<u32> {
        let (first, slot) = find(&self.arena, get!(pool.record.id), p)?;
        let (cells, width) = (
            get!(self.arena.hot(first).cells) as usize,
            self.cell_bytes(),
        );
        let index = (cells != 0).then(|| load(cells + slot * width, width));
        index.filter(|&index| index != 0)
    }

    /// Gives an empty slab back. The cache's lock is held.
    fn pool_release(&self, inner: &mut Inner, r: &Record, first: u32) {
        let units = get!(r.units);
        unlink(&self.arena, inner, first);
        inner.empty -= 1;
        r.slabs.fetch_sub(1, Ordering::Relaxed);
        P::run_given(first, false);
        self.arena.forget(first, units);
        self.arena.give(first, units, false);
    }

    /// Gives all empty slabs back; returns their bytes.
    pub fn pool_shrink(&self, pool: &Pool<P>) -> usize {
        if self.is_nested() {
            return 0;
        }
        let freed = self.guarded(false, || {
            pool.with(false, |i, r| self.pool_release_all(i, r))
        });
        freed.unwrap_or(0)
    }

    fn pool_release_all(&self, inner: &mut Inner, r: &Record) -> usize {
        let (mut u, mut bytes) = (inner.partial, 0);
        while u != 0 {
            let next = get!(self.arena.cold(u).next);
            if get!(self.arena.cold(u).free_slots) == get!(self.arena.hot(u).slots) {
                self.pool_release(inner, r, u);
                bytes += get!(r.units) as usize * UNIT;
            }
            u = next;
        }
        bytes
    }

    /// Ends a cache. `Err`: so many objects of it are live (or lost); they stay as they are, and so does the record.
    ///
    /// # Errors
    /// The number of objects.
    ///
    /// # Safety
    /// The cache is not used afterwards, but for [`Manager::pool_objects`] after an error.
    pub unsafe fn pool_destroy(&self, pool: &Pool<P>) -> Result<(), u64> {
        if self.is_nested() {
            return Err(pool.record().live);
        }
        let live = self.guarded(false, || {
            pool.with(false, |inner, r| {
                self.pool_release_all(inner, r);
                let empty = get!(r.slabs) == 0;
                set!(r.state, if empty { POOL_FREE } else { POOL_LEFT });
                if empty { 0 } else { get!(r.live) }
            })
        });
        match live {
            Some(0) | None => Ok(()),
            Some(live) => Err(live),
        }
    }

    /// Calls `f(address, index)` for each live object of the cache; under `never` nothing is known of them.
    pub fn pool_objects(&self, pool: &Pool<P>, mut f: impl FnMut(usize, u32)) {
        let (id, width) = (get!(pool.record.id), self.cell_bytes());
        for unit in 0..self.arena.unit_count() {
            let hot = self.arena.hot(unit);
            let ours = get!(hot.kind) == KIND_SLAB
                && get!(hot.class) == CLASS_POOL
                && u32::from(get!(hot.flags)) == id;
            let cells = get!(hot.cells) as usize;
            if !ours || cells == 0 {
                continue;
            }
            for slot in 0..get!(hot.slots) as usize {
                match load(cells + slot * width, width) {
                    0 => {}
                    index => f(
                        get!(hot.start) as usize + slot * get!(hot.bytes) as usize,
                        index,
                    ),
                }
            }
        }
    }
}

fn push<P: Platform>(arena: &Arena<P>, inner: &mut Inner, first: u32) {
    let head = inner.partial;
    set!(arena.cold(first).next, head);
    set!(arena.cold(first).prev, 0);
    if head != 0 {
        set!(arena.cold(head).prev, first);
    }
    inner.partial = first;
}

fn unlink<P: Platform>(arena: &Arena<P>, inner: &mut Inner, first: u32) {
    let (next, prev) = (get!(arena.cold(first).next), get!(arena.cold(first).prev));
    if next != 0 {
        set!(arena.cold(next).prev, prev);
    }
    if prev != 0 {
        set!(arena.cold(prev).next, next);
    } else {
        inner.partial = next;
    }
    set!(arena.cold(first).next, 0);
    set!(arena.cold(first).prev, 0);
}
