//! What the manager needs from the system it runs on.

use crate::heap::ThreadSlot;
use crate::sync::AtomicU32;

/// A system under the manager. All functions must work inside `malloc`: no allocation, `errno` untouched.
pub trait Platform: 'static {
    /// Bytes of a page.
    const PAGE: usize = 4096;

    /// Reserves `bytes` of address space without access rights; null when refused.
    fn reserve(bytes: usize) -> *mut u8;

    /// Upper bound of a sensible reservation, in bytes (an address space limit, say).
    fn reserve_limit() -> usize;

    /// Makes reserved memory readable and writable. `false` = refused (out of memory).
    fn commit(start: usize, bytes: usize) -> bool;

    /// Gives the content of committed pages back; they read as zero afterwards.
    fn purge(start: usize, bytes: usize);

    /// Brings committed pages in at once, as a hint: cheaper than a fault for each.
    fn populate(start: usize, bytes: usize);

    /// Like `purge` for pages that [`Platform::move_pages`] brought here: also undoes what the move did to the mapping. `false`:
    /// refused; the range may no longer be mapped and must not be used again.
    fn reset(start: usize, bytes: usize) -> bool;

    /// Moves the content of whole pages from one committed place to another without copying; the old place reads as zero
    /// afterwards.
    fn move_pages(from: usize, to: usize, bytes: usize) -> Moved;

    /// Sleeps while `*word == value` (may wake spuriously).
    fn wait(word: &AtomicU32, value: u32);

    /// Wakes one sleeper of `word`.
    fn wake(word: &AtomicU32);

    /// Milliseconds of a monotonic clock; coarse is fine.
    fn now_ms() -> u64;

    /// This thread's slot. The same address for as long as the thread lives.
    fn thread() -> *mut ThreadSlot;

    /// Asks that `Manager::thread_exit` be called when this thread ends.
    fn watch_thread_exit();

    /// Whether allocations and frees are traced now (sequentially consistent).
    fn tracing() -> bool {
        false
    }

    /// Called before `freed` is freed, while tracing.
    fn trace_free(freed: &Freed) {
        let _ = freed;
    }

    /// A run was taken for a slab or a large object. `nested`: by a signal handler inside the manager.
    #[inline(always)]
    fn run_taken(_run: RunTaken, _nested: bool) {}

    /// The run that begins at unit `first` is about to be given back.
    #[inline(always)]
    fn run_given(_first: u32, _nested: bool) {}

    /// Ends the process with a message about the pointer `p`, which was freed or resized wrongly.
    fn misuse(what: Misuse, p: usize) -> !;
}

/// An object that is about to be freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// Its address.
    pub p: usize,
    /// Whom it is charged to.
    pub index: u32,
    /// Its bytes, as accounted.
    pub bytes: usize,
    /// Its class; `CACHE_LARGE` or `CACHE_EARLY` of `memledger_abi::trace` if it has none.
    pub cache: u8,
    /// It only changes its size.
    pub resized: bool,
}

/// A run of units that was taken, for the page owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTaken {
    /// First unit.
    pub first: u32,
    /// Units.
    pub units: u32,
    /// A large object, not a slab.
    pub large: bool,
    /// It was asked for zeroed.
    pub zero: bool,
}

/// What became of [`Platform::move_pages`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// The pages are at the new place.
    Yes,
    /// Nothing has changed.
    No,
    /// The pages are where they were, but the new place is no longer mapped and must not be used again.
    Lost,
}

/// Ways in which a program can misuse its heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misuse {
    /// The slot is free already.
    DoubleFree,
    /// The pointer is inside an object, not at its start.
    Interior,
    /// The pointer is in the arena, where no object is.
    NoObject,
    /// The pointer was never given out by this allocator (only for `realloc`: `free` ignores and counts those).
    Foreign,
}

impl Misuse {
    /// What went wrong, in words.
    pub const fn text(self) -> &'static str {
        match self {
            Misuse::DoubleFree => "double free",
            Misuse::Interior => "invalid pointer (inside an object)",
            Misuse::NoObject => "invalid pointer (no object there)",
            Misuse::Foreign => "invalid pointer (not from this allocator)",
        }
    }
}
