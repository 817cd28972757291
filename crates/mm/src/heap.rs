//! A thread's heap: for each class a stack of free slots, last in first out. An entry carries the slot's address and its
//! cell's, so that an allocation computes neither.

use crate::class::CLASSES;
use alloc_tag::sites::Paths;
use core::mem::size_of;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

/// A free slot.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its address.
    pub slot: usize,
    /// Address of its cell; 0 = there are none (mode `never`).
    pub cell: usize,
}

/// Entries from `base` (oldest) to `top` (next to pop is the one below); room up to `end`. All null until first used.
#[repr(C)]
pub struct Stack {
    /// Behind the newest entry.
    pub top: *mut Entry,
    /// The oldest entry.
    pub base: *mut Entry,
    /// End of the room.
    pub end: *mut Entry,
}

impl Stack {
    const EMPTY: Stack = Stack {
        top: null_mut(),
        base: null_mut(),
        end: null_mut(),
    };

    /// Entries held.
    pub fn len(&self) -> usize {
        (self.top as usize - self.base as usize) / size_of::<Entry>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.top == self.base
    }
}

/// The stacks of a thread. Lives in metadata for ever; when its thread ends another takes it over.
#[repr(C)]
pub struct Heap {
    /// One for each class.
    pub stacks: [Stack; CLASSES],
    /// Next of all heaps ever made.
    pub next: *mut Heap,
    /// Next of the heaps without a thread.
    pub next_free: *mut Heap,
    /// Walks that this thread has made; null = none are kept (yet).
    pub paths: *mut Paths,
    /// 1 = in use by a thread.
    pub in_use: u32,
}

/// A heap without room: every push and pop on it takes the slow way. Threads begin with it.
pub struct EmptyHeap(pub Heap);

// SAFETY: never written: its stacks have no room, and the slow paths recognise its address.
unsafe impl Sync for EmptyHeap {}

/// What threads begin with.
pub static EMPTY: EmptyHeap = EmptyHeap(Heap {
    stacks: [const { Stack::EMPTY }; CLASSES],
    next: null_mut(),
    next_free: null_mut(),
    paths: null_mut(),
    in_use: 0,
});

/// Address of [`EMPTY`]; must not be written through.
pub fn empty() -> *mut Heap {
    (&raw const EMPTY.0).cast_mut()
}

/// What a thread keeps, in thread-local memory. Const-initialisable, no destructor.
#[repr(C)]
pub struct ThreadSlot {
    /// Its heap, or [`EMPTY`].
    pub heap: *mut Heap,
    /// 1 while the thread is inside the manager: whoever comes then is a signal handler.
    pub busy: u32,
    /// 1 once the thread is ending: it no longer gets a heap.
    pub exiting: u32,
    /// Second heap, for signal handlers that interrupt the manager.
    pub nested: *mut Heap,
    /// 1 while the second heap is in use.
    pub nested_busy: u32,
    /// Locks that this thread holds or waits for, those of an interrupted manager included.
    pub locks: u32,
    /// `busy`, as `fork` found it.
    pub busy_before_fork: u32,
    /// The tracer's.
    pub trace: kmemtrace::TraceSlot,
}

/// All heaps ever made, and those without a thread.
pub struct HeapLists {
    /// All.
    pub all: AtomicPtr<Heap>,
    /// Without a thread.
    pub free: AtomicPtr<Heap>,
}
