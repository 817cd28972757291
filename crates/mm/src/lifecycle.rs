//! What happens to heaps beside allocation: threads end, memory is given back on request, the process forks.

use crate::arena::MetaKind;
use crate::central::PutError;
use crate::class::CLASSES;
use crate::heap::{Heap, ThreadSlot, empty};
use crate::manager::Manager;
use crate::platform::{Misuse, Platform};
use alloc_tag::sites::Paths;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering;

impl<P: Platform> Manager<P> {
    /// This thread ends: its stacks go to central, its heaps to other threads.
    pub fn thread_exit(&self) {
        let thread = P::thread();
        self.guarded(false, || {
            // SAFETY: `thread` is this thread's slot; `busy` keeps signal handlers off its heap meanwhile.
            unsafe {
                (*thread).exiting = 1;
                let heaps = [
                    core::mem::replace(&mut (*thread).heap, empty()),
                    core::mem::replace(&mut (*thread).nested, null_mut()),
                ];
                for heap in heaps {
                    if !heap.is_null() && heap != empty() {
                        self.empty_heap(heap);
                        self.release_heap(heap);
                    }
                }
            }
        });
    }

    /// Gives this thread a table of the walks that it makes, for stacks of `depth` frames. Without memory, before its first
    /// allocation, and in a signal handler inside the manager it gets none.
    #[cfg_attr(all(test, shuttle), expect(dead_code, reason = "for `linux`"))]
    pub(crate) fn keep_paths(&self, depth: u32) {
        let thread = P::thread();
        // SAFETY: this thread's slot.
        let heap = unsafe {
            if (&raw const (*thread).busy).read_volatile() != 0 {
                return;
            }
            (*thread).heap
        };
        let Some(bytes) = Paths::bytes(depth).filter(|_| heap != empty() && !heap.is_null()) else {
            return;
        };
        self.guarded(false, || {
            if let Some(memory) = NonNull::new(self.arena.meta_for(MetaKind::Walks, bytes, false)) {
                // SAFETY: `meta` gives zeroed memory, aligned to 64, for ever; the heap is this thread's, `busy` is set.
                unsafe { (*heap).paths = Paths::begin(memory, depth).as_ptr() };
            }
        });
    }

    /// A heap that no thread has, an old one if there is; null when out of memory, or (`nested`) it would have to wait.
    pub(crate) fn acquire_heap(&self, nested: bool) -> *mut Heap {
        if nested {
            if !self.heaps_lock.acquire_nested() {
                return null_mut();
            }
        } else {
            self.heaps_lock.acquire();
        }
        // SAFETY: the list lock is held; heaps are never unmapped; a heap on the free list has no other user. New memory is
        // zeroed, which is a valid heap (all stacks without room).
        unsafe {
            let mut heap = self.heaps.free.load(Ordering::Relaxed);
            if !heap.is_null() {
                self.heaps.free.store((*heap).next_free, Ordering::Relaxed);
            } else {
                heap = self
                    .arena
                    .meta_for(MetaKind::Heap, size_of::<Heap>(), nested)
                    .cast();
                if !heap.is_null() {
                    (*heap).next = self.heaps.all.load(Ordering::Relaxed);
                    self.heaps.all.store(heap, Ordering::Relaxed);
                }
            }
            if !heap.is_null() {
                (*heap).in_use = 1;
            }
            self.heaps_lock.release();
            heap
        }
    }

    unsafe fn release_heap(&self, heap: *mut Heap) {
        self.heaps_lock.acquire();
        // SAFETY: the list lock is held, and `heap` is no longer used by its thread.
        unsafe {
            (*heap).in_use = 0;
            (*heap).next_free = self.heaps.free.load(Ordering::Relaxed);
        }
        self.heaps.free.store(heap, Ordering::Relaxed);
        self.heaps_lock.release();
    }

    unsafe fn empty_heap(&self, heap: *mut Heap) {
        for class in 0..CLASSES {
            // SAFETY: the caller owns the heap; the stack's entries are valid.
            let result = unsafe {
                let stack = &mut (*heap).stacks[class];
                let n = stack.len();
                stack.top = stack.base;
                if n == 0 {
                    Ok(())
                } else {
                    self.central[class].put(&self.arena, class, stack.base, n, false)
                }
            };
            if let Err(PutError::DoubleFree(p)) = result {
                P::misuse(Misuse::DoubleFree, p);
            }
        }
    }

    /// Gives back what can be given back: this thread's stacks, the shared entries, empty slabs, dirty pages. Returns whether
    /// memory was returned to the system.
    pub fn trim(&self) -> bool {
        if !self.ready() {
            return false;
        }
        let thread = P::thread();
        // SAFETY: this thread's slot.
        if unsafe { (&raw const (*thread).busy).read_volatile() } != 0 {
            return false;
        }
        self.guarded(false, || {
            // SAFETY: as in `thread_exit`.
            unsafe {
                if (*thread).heap != empty() {
                    self.empty_heap((*thread).heap);
                }
            }
            for class in 0..CLASSES {
                if let Err(PutError::DoubleFree(p)) = self.central[class].trim(&self.arena, class) {
                    P::misuse(Misuse::DoubleFree, p);
                }
            }
            self.arena.purge_to(0, 0, false) > 0
        })
    }

    /// [`crate::arena::Arena::usage`]; zeros in a signal handler inside the manager.
    pub fn usage(&self) -> (usize, usize, usize) {
        // SAFETY: this thread's slot.
        if unsafe { (&raw const (*P::thread()).busy).read_volatile() } != 0 {
            return (0, 0, 0);
        }
        self.guarded(false, || self.arena.usage())
    }

    /// Before `fork`: takes all locks, so that the child gets them in a known state. What this thread allocates until
    /// [`Manager::fork_done`] takes the way of signal handlers. If `fork` is called by a handler that interrupted the manager, the
    /// locks that the interrupted code holds stay its own.
    pub fn fork_prepare(&self) {
        self.pools.fork_prepare();
        self.heaps_lock.fork_prepare();
        for c in &self.central {
            c.lock().fork_prepare();
        }
        self.arena.lock().fork_prepare();
        let thread = P::thread();
        // SAFETY: this thread's slot.
        unsafe {
            (*thread).busy_before_fork = (&raw const (*thread).busy).read_volatile();
            (&raw mut (*thread).busy).write_volatile(1);
        }
    }

    /// After `fork`, in the parent or in the child. The child drops what other threads' stacks held: those slots stay unused
    /// (their cells are 0), since the copy of another thread's stack and of what it had just popped need not agree.
    pub fn fork_done(&self, child: bool) {
        let thread = P::thread();
        if child {
            // SAFETY: the child has one thread, which holds all locks.
            unsafe { self.drop_other_heaps(thread) };
        }
        self.arena.lock().fork_done(child);
        for c in &self.central {
            c.lock().fork_done(child);
        }
        self.heaps_lock.fork_done(child);
        self.pools.fork_done(child);
        // SAFETY: this thread's slot.
        unsafe { (&raw mut (*thread).busy).write_volatile((*thread).busy_before_fork) };
    }

    unsafe fn drop_other_heaps(&self, thread: *mut ThreadSlot) {
        // SAFETY: by the contract nobody else is at the heaps, which are never unmapped.
        unsafe {
            let mut heap = self.heaps.all.load(Ordering::Relaxed);
            self.heaps.free.store(null_mut(), Ordering::Relaxed);
            while !heap.is_null() {
                if heap != (*thread).heap && heap != (*thread).nested {
                    for stack in &mut (*heap).stacks {
                        stack.top = stack.base;
                    }
                    (*heap).in_use = 0;
                    (*heap).next_free = self.heaps.free.load(Ordering::Relaxed);
                    self.heaps.free.store(heap, Ordering::Relaxed);
                }
                heap = (*heap).next;
            }
        }
    }
}
