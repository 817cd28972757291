//! What threads share of one class: a stack of entries that goes from thread to thread without touching slabs (so memory
//! that one thread allocates and another frees costs a copy of 16 bytes an object), and behind it the slabs with free slots.

use crate::arena::{Arena, MetaKind};
use crate::class::{batch_of_class, units_of_class};
use crate::heap::Entry;
use crate::lock::Lock;
use crate::platform::{Platform, RunTaken};
use crate::slab;
use crate::unit::{get, set};
use core::cell::UnsafeCell;
use core::ptr::null_mut;

/// How many batches the shared stack holds.
const SHARED_BATCHES: usize = 4;

struct Inner {
    shared: *mut Entry,
    shared_len: usize,
    shared_cap: usize,
    /// First slab with free slots, by unit; 0 = none.
    partial: u32,
    /// Slabs all of whose slots are free (they are in the list, too).
    empty: u32,
}

/// One class.
pub struct Central<P> {
    lock: Lock<P>,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched with `lock` held.
unsafe impl<P: Platform> Sync for Central<P> {}

/// Why slots could not be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutError {
    /// The lock is held by the code that a signal handler interrupted.
    WouldWait,
    /// This slot is in its slab already.
    DoubleFree(usize),
}

impl<P: Platform> Central<P> {
    /// A class without slabs.
    pub const fn new() -> Self {
        Central {
            lock: Lock::new(),
            inner: UnsafeCell::new(Inner {
                shared: null_mut(),
                shared_len: 0,
                shared_cap: 0,
                partial: 0,
                empty: 0,
            }),
        }
    }

    fn with<R>(&self, nested: bool, f: impl FnOnce(&mut Inner) -> R) -> Option<R> {
        if nested {
            if !self.lock.acquire_nested() {
                return None;
            }
        } else {
            self.lock.acquire();
        }
        // SAFETY: the lock is held, and `f` does not come here again.
        let r = f(unsafe { &mut *self.inner.get() });
        self.lock.release();
        Some(r)
    }

    /// Fills `out` with up to `want` free slots of `class`. 0: out of memory, or (`nested`) it would have to wait.
    ///
    /// # Safety
    /// `out` has room for `want` entries.
    pub unsafe fn take(
        &self,
        arena: &Arena<P>,
        class: usize,
        out: *mut Entry,
        want: usize,
        cell: usize,
        nested: bool,
    ) -> usize {
        self.with(nested, |inner| {
            let mut got = 0;
            let n = want.min(inner.shared_len);
            if n > 0 {
                inner.shared_len -= n;
                // SAFETY: the shared stack holds `shared_len + n` entries; `out` has room for `want >= n`.
                unsafe {
                    core::ptr::copy_nonoverlapping(inner.shared.add(inner.shared_len), out, n)
                };
                return n;
            }
            while got < want {
                let mut first = inner.partial;
                if first == 0 {
                    if got > 0 {
                        break;
                    }
                    let Some(run) = arena.take(units_of_class(class), 1, false, nested) else {
                        break;
                    };
                    P::run_taken(
                        RunTaken {
                            first: run.first,
                            units: units_of_class(class),
                            large: false,
                            zero: false,
                        },
                        nested,
                    );
                    arena.populate(run, units_of_class(class));
                    slab::create(arena, run.first, run.clean, class, cell);
                    first = run.first;
                    push(arena, inner, first);
                    inner.empty += 1;
                }
                let was_empty = get!(arena.cold(first).free_slots) == get!(arena.hot(first).slots);
                // SAFETY: `first` is a slab of the list; `out` has room for `want - got` more.
                got += unsafe { slab::take_slots(arena, first, out.add(got), want - got, cell) };
                if was_empty {
                    inner.empty -= 1;
                }
                if get!(arena.cold(first).free_slots) == 0 {
                    unlink(arena, inner, first);
                }
            }
            got
        })
        .unwrap_or(0)
    }

    /// Takes `n` entries back, whose cells are clear.
    ///
    /// # Safety
    /// `entries` holds `n` entries of this class.
    pub unsafe fn put(
        &self,
        arena: &Arena<P>,
        class: usize,
        entries: *const Entry,
        n: usize,
        nested: bool,
    ) -> Result<(), PutError> {
        self.with(nested, |inner| {
            if inner.shared.is_null() {
                let cap = SHARED_BATCHES * batch_of_class(class);
                let bytes = cap * size_of::<Entry>();
                inner.shared = arena.meta_for(MetaKind::Shared, bytes, nested).cast();
                inner.shared_cap = if inner.shared.is_null() { 0 } else { cap };
            }
            let fits = n.min(inner.shared_cap - inner.shared_len);
            if fits > 0 {
                // SAFETY: there is room for `fits` more; the caller vouches for `entries`.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        entries,
                        inner.shared.add(inner.shared_len),
                        fits,
                    )
                };
                inner.shared_len += fits;
            }
            for i in fits..n {
                // SAFETY: `i < n`.
                let e = unsafe { *entries.add(i) };
                put_one(arena, class, inner, e, nested)?;
            }
            Ok(())
        })
        .unwrap_or(Err(PutError::WouldWait))
    }

    /// Puts the shared entries into their slabs and gives all empty slabs back.
    pub fn trim(&self, arena: &Arena<P>, class: usize) -> Result<(), PutError> {
        self.with(false, |inner| {
            while inner.shared_len > 0 {
                inner.shared_len -= 1;
                // SAFETY: below the old length.
                let e = unsafe { *inner.shared.add(inner.shared_len) };
                put_one(arena, class, inner, e, false)?;
            }
            let mut u = inner.partial;
            while u != 0 {
                let next = get!(arena.cold(u).next);
                if get!(arena.cold(u).free_slots) == get!(arena.hot(u).slots) {
                    release_slab(arena, class, inner, u);
                }
                u = next;
            }
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// The lock, for `fork`.
    pub fn lock(&self) -> &Lock<P> {
        &self.lock
    }
}

fn put_one<P: Platform>(
    arena: &Arena<P>,
    class: usize,
    inner: &mut Inner,
    e: Entry,
    nested: bool,
) -> Result<(), PutError> {
    let Some(unit) = arena.unit_of(e.slot) else {
        return Ok(());
    };
    let first = unit - get!(arena.hot(unit).back);
    let Some(free) = slab::put_slot(arena, first, e.slot) else {
        return Err(PutError::DoubleFree(e.slot));
    };
    if free == 1 {
        push(arena, inner, first);
    }
    if free == get!(arena.hot(first).slots) {
        inner.empty += 1;
        // One empty slab stays, so that a program at the border does not make and destroy one again and again. A signal
        // handler keeps them all: giving back could have to wait.
        if inner.empty > 1 && !nested {
            release_slab(arena, class, inner, first);
        }
    }
    Ok(())
}

fn release_slab<P: Platform>(arena: &Arena<P>, class: usize, inner: &mut Inner, first: u32) {
    let n = units_of_class(class);
    unlink(arena, inner, first);
    inner.empty -= 1;
    P::run_given(first, false);
    arena.forget(first, n);
    arena.give(first, n, false);
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

impl<P: Platform> Default for Central<P> {
    fn default() -> Self {
        Self::new()
    }
}
