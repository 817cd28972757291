//! The manager: what `malloc`, `free` and `realloc` do, for any [`Platform`].
//!
//! # The way of an allocation
//! Small: pop an entry from the stack of the class, store the index to its cell. An empty stack is filled with a batch from
//! central. Large: a run of units; the index stands in the hot record of its first unit.
//!
//! # Signal handlers
//! `busy` is set while a thread changes its heap. Whoever finds it set is a signal handler that interrupted the manager on this
//! thread; it uses the thread's second heap and waits for no lock that the interrupted code may hold, and if that
//! does not do, the bump region. What it cannot put back without waiting it leaves: a free slot is lost then, nothing more.
//!
//! # What an ending thread does
//! Its stacks go to central and its heap to the next thread. Frees and allocations that still come on that thread (destructors
//! that run later) take single slots from central.

use crate::arena::{Arena, MetaKind, UNIT};
use crate::bump::Bump;
use crate::central::{Central, PutError};
use crate::class::{
    CLASSES, batch_of_class, capacity_of_class, class_aligned, class_of, size_of_class,
};
use crate::heap::{Entry, Heap, HeapLists, ThreadSlot, empty};
use crate::lock::Lock;
use crate::platform::{Freed, Misuse, Platform};
use crate::pool::Pools;
use crate::slab::locate;
use crate::sync;
use crate::unit::{Unit, get};
use core::mem::size_of;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};
use memledger_abi::trace::{CACHE_EARLY, CACHE_LARGE};
use memledger_abi::{
    INDEX_EARLY, INDEX_UNTRACKED, KIND_BUMP, KIND_CONTINUED, KIND_LARGE, KIND_SLAB,
};

/// Whether the ledger is compiled in.
pub const PROFILING: bool = cfg!(feature = "profiling");

/// Largest request, in bytes: as glibc, `PTRDIFF_MAX`.
pub const MAX_REQUEST: usize = isize::MAX as usize;

/// The memory manager. One static of it serves a process.
pub struct Manager<P: Platform> {
    /// Address space and units.
    pub arena: Arena<P>,
    pub(crate) central: [Central<P>; CLASSES],
    pub(crate) bump: Bump,
    pub(crate) heaps_lock: Lock<P>,
    pub(crate) heaps: HeapLists,
    /// Named caches.
    pub pools: Pools<P>,
    state: sync::AtomicU32,
    init_lock: Lock<P>,
    cell_bytes: AtomicU32,
    /// Frees of pointers that were never given out; they are ignored.
    pub foreign_frees: AtomicU64,
}

/// Where an object is.
pub(crate) enum Object {
    /// In a slab: its hot record, its cell's address (0 = none).
    Small(&'static Unit, usize),
    /// Large: its first unit.
    Large(u32),
    /// In the bump region.
    Bump,
}

#[inline(always)]
fn cell_at(address: usize) -> &'static AtomicU32 {
    // SAFETY: callers pass the address of a cell of a slab: 4-aligned, in memory that stays mapped.
    unsafe { &*(address as *const AtomicU32) }
}

/// The class of a slab's unit, by one load that widens it; the compiler makes two instructions of an atomic one.
#[inline(always)]
fn class_of_unit(hot: &Unit) -> usize {
    let class: usize;
    // SAFETY: reads one byte of the record, as an atomic load would.
    unsafe {
        core::arch::asm!(
            "movzx {0:e}, byte ptr [{1} + {2}]",
            lateout(reg) class,
            in(reg) hot,
            const core::mem::offset_of!(Unit, class),
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    class
}

impl<P: Platform> Manager<P> {
    /// A manager without memory; it sets itself up at the first allocation.
    pub const fn new() -> Self {
        Manager {
            arena: Arena::new(),
            central: [const { Central::new() }; CLASSES],
            bump: Bump::new(),
            heaps_lock: Lock::new(),
            heaps: HeapLists {
                all: AtomicPtr::new(null_mut()),
                free: AtomicPtr::new(null_mut()),
            },
            pools: Pools::new(),
            state: sync::AtomicU32::new(0),
            init_lock: Lock::new(),
            cell_bytes: AtomicU32::new(4),
            foreign_frees: AtomicU64::new(0),
        }
    }

    /// Sets the manager up; `ledger` says whether there are cells (`false`: mode `never`). The first call decides; it must come
    /// before the first allocation. `false`: no memory. Waits if another thread is at it.
    pub fn init(&self, ledger: bool) -> bool {
        if self.state.load(Ordering::Acquire) == 1 {
            return true;
        }
        self.init_lock.acquire();
        let ok = self.state.load(Ordering::Acquire) == 1 || {
            self.cell_bytes
                .store(if ledger && PROFILING { 4 } else { 0 }, Ordering::Relaxed);
            self.arena.init()
        };
        if ok && self.state.load(Ordering::Relaxed) == 0 {
            self.bump.publish(&self.arena);
            self.state.store(1, Ordering::Release);
        }
        self.init_lock.release();
        ok
    }

    /// Whether [`Manager::init`] has been done.
    pub fn ready(&self) -> bool {
        self.state.load(Ordering::Acquire) == 1
    }

    /// Bytes of a cell: 4, or 0 under `never`.
    pub fn cell_bytes(&self) -> usize {
        self.cell_bytes.load(Ordering::Relaxed) as usize
    }

    /// Takes a slot from this thread's stack of `class` and charges it to `index` (not 0): the common case, for callers that
    /// have another way for the rest. `None`: the stack is empty, or this is a signal handler inside the manager.
    #[inline(always)]
    pub fn pop(&self, class: usize, index: u32) -> Option<NonNull<u8>> {
        let thread = P::thread();
        // SAFETY: 1. `thread` is this thread's slot, which no other thread touches; signal handlers on this thread leave
        // `heap` alone while `busy` is set; 2. `heap` is a heap of this thread or the empty one, whose stacks are all
        // empty, so that nothing is written to it; 3. entries between base and top are valid; 4. `class` is below CLASSES.
        unsafe {
            if (&raw const (*thread).busy).read_volatile() != 0 {
                return None;
            }
            (&raw mut (*thread).busy).write_volatile(1);
            compiler_fence(Ordering::SeqCst);
            let stack = (&raw mut (*(*thread).heap).stacks)
                .cast::<crate::heap::Stack>()
                .add(class);
            sync::point();
            let top = (*stack).top;
            let some = top != (*stack).base;
            let mut e = Entry { slot: 0, cell: 0 };
            if some {
                e = *top.sub(1);
                sync::point();
                (*stack).top = top.sub(1);
            }
            compiler_fence(Ordering::SeqCst);
            (&raw mut (*thread).busy).write_volatile(0);
            if some {
                // An entry's slot is an address of the arena: not null.
                return Some(NonNull::new_unchecked(Self::charge(e, index)));
            }
        }
        None
    }

    /// A slot of `class` charged to `index` (not 0); null when out of memory.
    #[inline(always)]
    pub fn alloc_class(&self, class: usize, index: u32) -> *mut u8 {
        match self.pop(class, index) {
            Some(p) => p.as_ptr(),
            None => self.alloc_slow(class, index),
        }
    }

    /// What [`Manager::pop`] could not do.
    #[cold]
    #[inline(never)]
    extern "C" fn alloc_slow(&self, class: usize, index: u32) -> *mut u8 {
        let thread = P::thread();
        // SAFETY: as in `pop`.
        unsafe {
            if (&raw const (*thread).busy).read_volatile() != 0 {
                return self.alloc_nested(thread, class, index);
            }
            self.guarded(false, || self.refill(thread, class, index))
        }
    }

    /// Runs `f` with `busy` set, unless this is a signal handler that found it set.
    pub(crate) fn guarded<R>(&self, nested: bool, f: impl FnOnce() -> R) -> R {
        if nested {
            return f();
        }
        let thread = P::thread();
        // SAFETY: this thread's slot.
        unsafe { (&raw mut (*thread).busy).write_volatile(1) };
        compiler_fence(Ordering::SeqCst);
        let r = f();
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { (&raw mut (*thread).busy).write_volatile(0) };
        r
    }

    #[inline(always)]
    fn charge(e: Entry, index: u32) -> *mut u8 {
        if PROFILING && e.cell != 0 {
            cell_at(e.cell).store(index, Ordering::Relaxed);
        }
        e.slot as *mut u8
    }

    /// `size` bytes aligned to 8 (to 16, if `size` is a multiple of 16), charged to `index`.
    #[inline(always)]
    pub fn alloc(&self, size: usize, index: u32) -> *mut u8 {
        if size <= crate::class::MAX_SMALL {
            return self.alloc_class(class_of(size), index);
        }
        self.alloc_large(size, 1, false, index)
    }

    /// `size` bytes aligned to `align` (a power of two).
    pub fn alloc_aligned(&self, size: usize, align: usize, index: u32) -> *mut u8 {
        if align <= UNIT / 2
            && let Some(class) = class_aligned(size, align)
        {
            return self.alloc_class(class, index);
        }
        self.alloc_large(size.max(1), align, false, index)
    }

    /// `size` zeroed bytes, aligned as [`Manager::alloc_aligned`] says.
    pub fn alloc_zeroed(&self, size: usize, align: usize, index: u32) -> *mut u8 {
        let class = if align <= UNIT / 2 {
            class_aligned(size, align)
        } else {
            None
        };
        let Some(class) = class else {
            return self.alloc_large(size.max(1), align, true, index);
        };
        let p = self.alloc_class(class, index);
        if !p.is_null() {
            // SAFETY: the slot was just handed out and holds at least `size` bytes.
            unsafe { p.write_bytes(0, size) };
        }
        p
    }

    /// Frees `p`. Null is ignored; so are pointers from elsewhere (counted). Anything else that is not a live object ends the
    /// process by [`Platform::misuse`].
    ///
    /// # Safety
    /// `p` is not used afterwards.
    #[inline(always)]
    pub unsafe fn free(&self, p: usize) {
        let Some(u) = self.arena.unit_to_free(p) else {
            return self.free_slow(p);
        };
        self.free_in(u, p);
    }

    /// Frees `p`, in unit `u`.
    #[inline(always)]
    pub(crate) fn free_in(&self, u: u32, p: usize) {
        let hot = self.arena.hot(u);
        let recip = get!(hot.recip);
        let (slot, exact) = locate(p.wrapping_sub(get!(hot.start) as usize), recip);
        if !exact || slot >= get!(hot.slots) as usize {
            return self.free_other(u, p);
        }
        let cells = if PROFILING {
            get!(hot.cells) as usize
        } else {
            0
        };
        let mut cell = 0;
        if cells != 0 {
            cell = cells + slot * 4;
            if get!(cell_at(cell)) == 0 {
                P::misuse(Misuse::DoubleFree, p);
            }
            cell_at(cell).store(0, Ordering::Relaxed);
        }
        self.push(class_of_unit(hot), Entry { slot: p, cell });
    }

    #[inline(always)]
    fn push(&self, class: usize, e: Entry) {
        let thread = P::thread();
        // SAFETY: as in `pop`; the empty heap's stacks have no room, so that nothing is written to it. `class` is below
        // CLASSES, since it comes from a hot record that `slab::create` wrote.
        unsafe {
            if (&raw const (*thread).busy).read_volatile() == 0 {
                (&raw mut (*thread).busy).write_volatile(1);
                compiler_fence(Ordering::SeqCst);
                let stack = (&raw mut (*(*thread).heap).stacks)
                    .cast::<crate::heap::Stack>()
                    .add(class);
                let top = (*stack).top;
                let room = top != (*stack).end;
                if room {
                    *top = e;
                    sync::point();
                    (*stack).top = top.add(1);
                }
                compiler_fence(Ordering::SeqCst);
                (&raw mut (*thread).busy).write_volatile(0);
                if room {
                    return;
                }
            }
        }
        self.push_slow(class, e);
    }

    /// What [`Manager::push`] could not do.
    #[cold]
    #[inline(never)]
    extern "C" fn push_slow(&self, class: usize, e: Entry) {
        let thread = P::thread();
        // SAFETY: as in `pop`.
        unsafe {
            if (&raw const (*thread).busy).read_volatile() != 0 {
                return self.push_nested(thread, class, e);
            }
            self.guarded(false, || self.flush_push(thread, class, e));
        }
    }

    /// Resizes `p`, an object or null, to `size` bytes aligned to `align`; charges the result to `index`. Null: out of memory, `p`
    /// is as it was.
    ///
    /// # Safety
    /// If the result is not null, `p` is not used afterwards.
    pub unsafe fn realloc(&self, p: usize, size: usize, align: usize, index: u32) -> *mut u8 {
        let old = match self.object(p) {
            Some(Object::Small(hot, cell)) => {
                let old = get!(hot.bytes) as usize;
                // Keep the slot unless less than half of it would be used.
                if size <= old && size > old / 2 && p.is_multiple_of(align) {
                    if cell != 0 {
                        cell_at(cell).store(index, Ordering::Relaxed);
                    }
                    return p as *mut u8;
                }
                old
            }
            Some(Object::Large(first)) => {
                let old = get!(self.arena.hot(first).bytes) as usize;
                if size > crate::class::MAX_SMALL
                    && p.is_multiple_of(align)
                    && self.resize_large(first, size, index)
                {
                    return p as *mut u8;
                }
                if let Some(q) = self.move_large(first, size, align, index) {
                    return q;
                }
                old
            }
            Some(Object::Bump) => self.bump.size(p),
            None => P::misuse(
                if self.arena.unit_of(p).is_some() {
                    Misuse::NoObject
                } else {
                    Misuse::Foreign
                },
                p,
            ),
        };
        let q = self.alloc_aligned(size, align, index);
        if !q.is_null() {
            // SAFETY: both objects are live, do not overlap, and have at least this many bytes.
            unsafe {
                core::ptr::copy_nonoverlapping(p as *const u8, q, old.min(size));
            }
            // Found above, so it has a unit. A resize is traced by whoever asked for it.
            if let Some(u) = self.arena.unit_of(p) {
                self.free_in(u, p);
            }
        }
        q
    }

    /// Bytes that may be used at `p`, a live object; 0 for anything else.
    #[inline(always)]
    pub fn usable_size(&self, p: usize) -> usize {
        if let Some(u) = self.arena.unit_of(p) {
            let hot = self.arena.hot(u);
            // As in `free_in`: exact only in a slab.
            let (slot, exact) = locate(p.wrapping_sub(get!(hot.start) as usize), get!(hot.recip));
            if exact && slot < get!(hot.slots) as usize {
                let cells = get!(hot.cells) as usize;
                if cells == 0 || get!(cell_at(cells + slot * 4)) != 0 {
                    return get!(hot.bytes) as usize;
                }
                return 0;
            }
        }
        self.usable_size_slow(p)
    }

    /// As [`Manager::usable_size`], for what is in no slab.
    #[cold]
    #[inline(never)]
    extern "C" fn usable_size_slow(&self, p: usize) -> usize {
        match self.object(p) {
            Some(Object::Small(hot, _)) => get!(hot.bytes) as usize,
            Some(Object::Large(first)) => get!(self.arena.hot(first).bytes) as usize,
            Some(Object::Bump) => self.bump.size(p),
            None => 0,
        }
    }

    /// The live object that begins at `p`.
    #[inline(always)]
    pub(crate) fn object(&self, p: usize) -> Option<Object> {
        let u = self.arena.unit_of(p)?;
        let hot = self.arena.hot(u);
        match get!(hot.kind) {
            KIND_LARGE if get!(hot.start) as usize == p && get!(hot.index) != 0 => {
                Some(Object::Large(u))
            }
            KIND_SLAB | KIND_CONTINUED if get!(hot.recip) != 0 => {
                let (slot, exact) = locate(p - get!(hot.start) as usize, get!(hot.recip));
                if !exact || slot >= get!(hot.slots) as usize {
                    return None;
                }
                let cells = get!(hot.cells) as usize;
                let cell = if cells == 0 { 0 } else { cells + slot * 4 };
                (cell == 0 || get!(cell_at(cell)) != 0).then_some(Object::Small(hot, cell))
            }
            KIND_BUMP | KIND_CONTINUED => {
                (self.bump.plausible(&self.arena, p) && self.bump.live(p)).then_some(Object::Bump)
            }
            _ => None,
        }
    }

    /// As [`Manager::free`], for pointers from elsewhere, and for all while frees are traced.
    #[cold]
    #[inline(never)]
    extern "C" fn free_slow(&self, p: usize) {
        match self.arena.unit_of(p) {
            Some(u) => {
                if !P::tracing() {
                    self.arena.route_frees();
                } else if self.trace_small(u, p) {
                    return;
                } else if let Some(freed) = self.about(p) {
                    P::trace_free(&freed);
                }
                self.free_in(u, p);
            }
            None if p != 0 => {
                self.foreign_frees.fetch_add(1, Ordering::Relaxed);
            }
            None => (),
        }
    }

    /// Traces and frees `p`, in unit `u`, if it is a live slot of a slab with cells: as [`Manager::free_in`], with the event between.
    #[inline(always)]
    fn trace_small(&self, u: u32, p: usize) -> bool {
        let hot = self.arena.hot(u);
        let (slot, exact) = locate(p.wrapping_sub(get!(hot.start) as usize), get!(hot.recip));
        let cells = get!(hot.cells) as usize;
        if !exact || slot >= get!(hot.slots) as usize || cells == 0 {
            return false;
        }
        let cell = cells + slot * 4;
        let (index, class) = (get!(cell_at(cell)), class_of_unit(hot));
        if index == 0 {
            return false;
        }
        P::trace_free(&Freed {
            p,
            index,
            bytes: get!(hot.bytes) as usize,
            cache: class as u8,
            resized: false,
        });
        cell_at(cell).store(0, Ordering::Relaxed);
        self.push(class, Entry { slot: p, cell });
        true
    }

    /// What is known of `p`, if it is a live object.
    #[cold]
    #[inline(never)]
    pub(crate) fn about(&self, p: usize) -> Option<Freed> {
        let mut freed = Freed {
            p,
            index: INDEX_UNTRACKED,
            bytes: 0,
            cache: CACHE_LARGE as u8,
            resized: false,
        };
        match self.object(p)? {
            Object::Small(hot, cell) => {
                freed.bytes = get!(hot.bytes) as usize;
                freed.cache = get!(hot.class);
                if cell != 0 {
                    freed.index = get!(cell_at(cell));
                }
            }
            Object::Large(first) => {
                let hot = self.arena.hot(first);
                freed.bytes = get!(hot.bytes) as usize;
                freed.index = get!(hot.index);
            }
            Object::Bump => {
                freed.bytes = self.bump.size(p);
                freed.cache = CACHE_EARLY as u8;
                freed.index = INDEX_EARLY;
            }
        }
        Some(freed)
    }

    #[cold]
    #[inline(never)]
    extern "C" fn free_other(&self, u: u32, p: usize) {
        let hot = self.arena.hot(u);
        match get!(hot.kind) {
            KIND_LARGE if get!(hot.start) as usize == p => self.free_large(u, p),
            KIND_BUMP | KIND_CONTINUED if get!(hot.recip) == 0 => {
                if !self.bump.plausible(&self.arena, p) || !self.bump.free(p) {
                    P::misuse(Misuse::DoubleFree, p);
                }
            }
            KIND_SLAB | KIND_CONTINUED | KIND_LARGE => P::misuse(Misuse::Interior, p),
            _ => P::misuse(Misuse::NoObject, p),
        }
    }

    /// Gets a stack entry from central for an empty stack. `busy` is set.
    unsafe fn refill(&self, thread: *mut ThreadSlot, class: usize, index: u32) -> *mut u8 {
        // SAFETY: `thread` is this thread's slot and `busy` is set: nobody else touches its heap.
        let heap = unsafe { self.heap_of(thread, false) };
        // SAFETY: as above.
        match unsafe { self.take(heap, class, false) } {
            Some(e) => Self::charge(e, index),
            None => null_mut(),
        }
    }

    /// One entry of `class`, by way of the heap's stack if there is a heap.
    unsafe fn take(&self, heap: *mut Heap, class: usize, nested: bool) -> Option<Entry> {
        let (cell, arena) = (self.cell_bytes(), &self.arena);
        if !self.ready() {
            return None;
        }
        // SAFETY: `heap` is null or belongs to the caller; a stack's room is `capacity_of_class`, its batch half of that.
        unsafe {
            if !heap.is_null() {
                let stack = &mut (*heap).stacks[class];
                if stack.is_empty() && self.give_room(stack, class, nested) {
                    let n = self.central[class].take(
                        arena,
                        class,
                        stack.base,
                        batch_of_class(class),
                        cell,
                        nested,
                    );
                    stack.top = stack.base.add(n);
                }
                if !stack.is_empty() {
                    stack.top = stack.top.sub(1);
                    return Some(*stack.top);
                }
            }
            let mut one = Entry { slot: 0, cell: 0 };
            (self.central[class].take(arena, class, &mut one, 1, cell, nested) == 1).then_some(one)
        }
    }

    fn give_room(&self, stack: &mut crate::heap::Stack, class: usize, nested: bool) -> bool {
        if stack.base.is_null() {
            let capacity = capacity_of_class(class);
            let room: *mut Entry = self
                .arena
                .meta_for(MetaKind::Stack, capacity * size_of::<Entry>(), nested)
                .cast();
            if room.is_null() {
                return false;
            }
            stack.base = room;
            stack.top = room;
            // SAFETY: the room was made for `capacity` entries.
            stack.end = unsafe { room.add(capacity) };
        }
        true
    }

    /// Makes room in a full stack (the oldest entries go to central) and pushes. `busy` is set.
    unsafe fn flush_push(&self, thread: *mut ThreadSlot, class: usize, e: Entry) {
        // SAFETY: as in `refill`.
        unsafe {
            let heap = self.heap_of(thread, false);
            self.put(heap, class, e, false);
        }
    }

    unsafe fn put(&self, heap: *mut Heap, class: usize, e: Entry, nested: bool) {
        // SAFETY: as in `take`; `n` entries are moved down inside the stack's room.
        let result = unsafe {
            if heap.is_null() || !self.give_room(&mut (*heap).stacks[class], class, nested) {
                self.central[class].put(&self.arena, class, &e, 1, nested)
            } else {
                let stack = &mut (*heap).stacks[class];
                let mut result = Ok(());
                if stack.top == stack.end {
                    let n = batch_of_class(class);
                    result = self.central[class].put(&self.arena, class, stack.base, n, nested);
                    if result != Err(PutError::WouldWait) {
                        core::ptr::copy(stack.base.add(n), stack.base, stack.len() - n);
                        stack.top = stack.top.sub(n);
                    }
                }
                if stack.top != stack.end {
                    stack.top.write(e);
                    stack.top = stack.top.add(1);
                }
                result
            }
        };
        if let Err(PutError::DoubleFree(p)) = result {
            P::misuse(Misuse::DoubleFree, p);
        }
    }

    /// This thread's heap; null for an ending thread, or when out of memory. `busy` (or `nested_busy`) is set.
    unsafe fn heap_of(&self, thread: *mut ThreadSlot, nested: bool) -> *mut Heap {
        // SAFETY: `thread` is this thread's slot.
        unsafe {
            let at = if nested {
                &raw mut (*thread).nested
            } else {
                &raw mut (*thread).heap
            };
            if !(*at).is_null() && *at != empty() {
                return *at;
            }
            if (*thread).exiting != 0 || !self.ready() {
                return null_mut();
            }
            let heap = self.acquire_heap(nested);
            if !heap.is_null() {
                *at = heap;
                if !nested {
                    P::watch_thread_exit();
                }
            }
            heap
        }
    }

    /// A signal handler allocates while its thread is inside the manager.
    unsafe fn alloc_nested(&self, thread: *mut ThreadSlot, class: usize, index: u32) -> *mut u8 {
        // SAFETY: `nested` belongs to the first handler that sets `nested_busy`.
        unsafe {
            if (*thread).nested_busy == 0 && self.ready() {
                (&raw mut (*thread).nested_busy).write_volatile(1);
                compiler_fence(Ordering::SeqCst);
                let heap = self.heap_of(thread, true);
                let e = self.take(heap, class, true);
                compiler_fence(Ordering::SeqCst);
                (&raw mut (*thread).nested_busy).write_volatile(0);
                if let Some(e) = e {
                    return Self::charge(e, index);
                }
            }
        }
        self.alloc_bump(size_of_class(class), 16, index)
    }

    /// Memory of the bump region; null before [`Manager::init`] or when it is used up.
    pub fn alloc_bump(&self, size: usize, align: usize, index: u32) -> *mut u8 {
        if self.ready() {
            self.bump.alloc(&self.arena, size, align, index)
        } else {
            null_mut()
        }
    }

    unsafe fn push_nested(&self, thread: *mut ThreadSlot, class: usize, e: Entry) {
        // SAFETY: as in `alloc_nested`. A handler inside a handler inside the manager loses the slot.
        unsafe {
            if (*thread).nested_busy == 0 {
                (&raw mut (*thread).nested_busy).write_volatile(1);
                compiler_fence(Ordering::SeqCst);
                let heap = self.heap_of(thread, true);
                self.put(heap, class, e, true);
                compiler_fence(Ordering::SeqCst);
                (&raw mut (*thread).nested_busy).write_volatile(0);
            }
        }
    }
}

impl<P: Platform> Default for Manager<P> {
    fn default() -> Self {
        Self::new()
    }
}
