//! Exact, always-on accounting of every byte a program allocates, as its global allocator.
//!
//! ```
//! #[global_allocator]
//! static A: memledger::Ledger = memledger::Ledger::new();
//!
//! fn main() {
//!     let cache: Vec<u8> = memledger::alloc_hooks!(vec![0; 100_000]);
//!     let report = memledger::allocinfo().unwrap();
//!     let row = report.rows.iter().find(|r| r.file == file!() && r.calls == 1 && r.bytes >= 100_000).unwrap();
//!     assert_eq!(row.bytes, 102_400); // whole pages
//!     drop(cache);
//! }
//! ```
//!
//! That is all an application needs. Every allocation is charged to the tag that is current ([`alloc_hooks!`]), else to its
//! site: the call stack cut to 4 frames (`MEMLEDGER=depth=N` in the environment changes it). Reports come from inside
//! ([`allocinfo`]) or from outside (`memledger allocinfo -p PID`), without stopping the program. Bytes are slot sizes, as in the
//! kernel's `/proc/allocinfo`.
//!
//! The switch: [`set_enabled`], `memledger ctl -p PID mem_profiling=0`, `MEMLEDGER=0|1|never` at the start.
//!
//! # Whom to charge
//! | you have | write |
//! | --- | --- |
//! | a line that allocates | `alloc_hooks!(EXPR)` |
//! | a function that allocates for its callers | `#[alloc_hooks_fn]` (feature `macros`) or [`alloc_hooks_macro!`]: `foo!` and `foo_noprof` |
//! | the same, and callers who cannot write macros | `#[track_caller]` and [`charge_caller`] |
//! | a value that allocates later | [`Tagged`], or `TaggedAlloc` (feature `allocator-api2`) in collections that take an allocator |
//! | a future, a task | [`AllocTagged::alloc_tagged`], [`alloc_hooks_future!`], [`SavedTag::spawn_with`] |
//! | a `tower` service | `AllocTagLayer` (feature `tower`) |
//! | many objects of one type, to be seen by name | [`KmemCache`] |
//! | work on another thread | [`inherit_tag`], [`spawn_inheriting`] |
//!
//! Of several the innermost wins; where its work is done, the outer one is current again.
//!
//! # What it costs
//! 4 bytes an object and 128 bytes for each 64 KiB of heap. See the benchmarks of the repository for the time.
//!
//! # Limits
//! Linux on x86-64 with glibc. `fork` is safe through libc's `fork`; what raw `clone` does to locks, no allocator can mend.

use core::arch::naked_asm;
use mm::linux::Request;
use std::alloc::{GlobalAlloc, Layout};

pub use alloc_tag::{
    AllocTagged, CodeTag, SavedTag, Tagged, TaggedFuture, TaggedMut, alloc_hooks,
    alloc_hooks_future, alloc_hooks_macro, alloc_hooks_tag, alloc_tag, alloc_tag_record,
    charge_caller, enter_caller, inherit_tag, lost_callers,
};
#[cfg(feature = "macros")]
pub use memledger_macros::alloc_hooks_fn;
pub use mm::linux::SetError;

#[cfg(feature = "allocator-api2")]
mod handle;
#[cfg(feature = "allocator-api2")]
pub use handle::TaggedAlloc;
#[cfg(feature = "hashbrown")]
pub use handle::TaggedHashMap;
#[cfg(feature = "tower")]
mod service;
#[cfg(feature = "tower")]
pub use service::{AllocTagLayer, AllocTagService};
mod pools;
pub use pools::{CacheBox, CacheError, CacheInfo, CacheLeak, KmemCache};
#[cfg(feature = "report")]
mod report;
#[cfg(feature = "report")]
pub use report::{Allocinfo, allocinfo, allocinfo_with, slabinfo};

// What the macros' expansions name.
#[doc(hidden)]
pub use alloc_tag::{__codetag, Guard, enter};

/// The global allocator that accounts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ledger(());

impl Ledger {
    /// The allocator. All values share the one ledger of the process.
    pub const fn new() -> Self {
        Ledger(())
    }
}

/// Starts a thread that begins with the current tag: `std::thread::spawn` of [`inherit_tag`]. The tag is the one of
/// the whole thread; a hook in it wins, as always. What starting the thread allocates is charged to the tag already.
///
/// ```
/// let user = memledger::alloc_hooks!({
///     memledger::spawn_inheriting(|| vec![0_u8; 10]) // charged to the `alloc_hooks!`
/// });
/// assert_eq!(user.join().unwrap().len(), 10);
/// ```
pub fn spawn_inheriting<R: Send + 'static>(
    f: impl FnOnce() -> R + Send + 'static,
) -> std::thread::JoinHandle<R> {
    std::thread::spawn(inherit_tag(f))
}

/// Switches profiling on or off. What is allocated while it is off is `untracked` for as long as it lives; what was allocated
/// before stays charged, and its frees are seen either way.
///
/// # Errors
/// [`SetError::Never`] if the process was started with `MEMLEDGER=never`.
pub fn set_enabled(on: bool) -> Result<(), SetError> {
    mm::linux::set_enabled(on)
}

/// Whether profiling is on.
pub fn enabled() -> bool {
    mm::linux::enabled()
}

/// Gives unused memory back to the system, as malloc_trim(3). Returns whether there was any.
pub fn trim() -> bool {
    mm::linux::trim()
}

/// Bytes of the slot at `p`, as accounted; 0 for what is no live object of this allocator.
pub fn usable_size(p: *const u8) -> usize {
    mm::linux::usable_size(p.cast_mut())
}

/// Live (bytes, calls) of the whole process, exact at a quiet point; bytes in slot sizes. Does not allocate.
pub fn total() -> (u64, u64) {
    let (mut bytes, mut calls) = (0, 0);
    mm::linux::scan(|_, b| {
        bytes += b;
        calls += 1;
    });
    (bytes, calls)
}

// SAFETY: the manager hands out memory of the size and alignment of the layout that nobody else has, and keeps it until it is
// freed; it never unwinds.
unsafe impl GlobalAlloc for Ledger {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the entry's contract is this function's.
        unsafe { entry_alloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn dealloc(&self, p: *mut u8, _layout: Layout) {
        // SAFETY: by the contract, `p` is live and not used afterwards.
        unsafe { mm::linux::free(p) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { entry_zeroed(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`; `p` is live.
        unsafe { entry_realloc(p, layout.align(), size) }
    }
}

// `GlobalAlloc::alloc` gets inlined into the function that allocates, where neither the stack pointer nor the return address
// says who calls. So it calls these naked functions, which see the stack as it is at the call.

#[unsafe(naked)]
unsafe extern "C" fn entry_alloc(size: usize, align: usize) -> *mut u8 {
    naked_asm!("mov rdx, rsp", "mov rcx, rbp", "jmp {}", sym alloc_at)
}

#[unsafe(naked)]
unsafe extern "C" fn entry_zeroed(size: usize, align: usize) -> *mut u8 {
    naked_asm!("mov rdx, rsp", "mov rcx, rbp", "jmp {}", sym zeroed_at)
}

#[unsafe(naked)]
unsafe extern "C" fn entry_realloc(p: *mut u8, align: usize, size: usize) -> *mut u8 {
    naked_asm!("mov rcx, rsp", "mov r8, rbp", "jmp {}", sym realloc_at)
}

unsafe extern "C" fn alloc_at(size: usize, align: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: `sp` and `fp` come from the entry; a class of small sizes.
    unsafe {
        if align <= 8 && size <= 1024 {
            let class = mm::class::class_of(size);
            mm::linux::allocate_fast(
                class,
                || alloc_for_site(size, sp, fp),
                || alloc_slow(size, align, sp, fp),
                || alloc_slow(size, align, sp, fp),
            )
        } else {
            alloc_slow(size, align, sp, fp)
        }
    }
}

#[inline(never)]
unsafe extern "C" fn alloc_for_site(size: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: as in `alloc_at`, which calls it for small sizes.
    unsafe {
        let p = mm::linux::allocate_for_site(mm::class::class_of(size), sp, fp);
        if p.is_null() {
            alloc_slow(size, 8, sp, fp)
        } else {
            p
        }
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn alloc_slow(size: usize, align: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: `sp` and `fp` come from the entry; `align` is a layout's.
    unsafe { mm::linux::allocate_aligned(Request::aligned(size, size, align), sp, fp) }
}

unsafe extern "C" fn zeroed_at(size: usize, align: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: as in `alloc_at`.
    unsafe { mm::linux::allocate_zeroed(Request::zeroed(size, size, align), sp, fp) }
}

unsafe extern "C" fn realloc_at(
    p: *mut u8,
    align: usize,
    size: usize,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    // SAFETY: as in `alloc_at`; `p` is a live object.
    unsafe { mm::linux::reallocate(p, Request::aligned(size, size, align), sp, fp) }
}
