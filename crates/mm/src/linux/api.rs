//! What the global allocator and the C functions are made of. `sp` is the address of the stack word that holds the return
//! address of the allocation function, `fp` the frame pointer register at its entry.

use super::{MM, descriptor, init, sys, tls};
use crate::ledger::CELLS_MAX;
use crate::manager::PROFILING;
use core::mem::size_of;
use core::sync::atomic::Ordering;
use memledger_abi::{INDEX_UNTRACKED, MODE_NEVER};

/// `errno` for "out of memory".
pub const ENOMEM: i32 = libc::ENOMEM;

/// The index that needs no look at the stack; 0 = the site is charged.
#[inline(always)]
fn tag() -> u32 {
    if !PROFILING || descriptor::switch().load(Ordering::Relaxed) == 0 {
        return INDEX_UNTRACKED;
    }
    alloc_tag::current()
}

/// Whom an allocation is charged to.
#[inline(always)]
fn index(sp: usize, fp: usize) -> u32 {
    match tag() {
        0 => site(sp, fp),
        tag => tag,
    }
}

#[inline(always)]
fn site(sp: usize, fp: usize) -> u32 {
    // SAFETY: `sp` and `fp` are of this call; the bounds are this thread's.
    unsafe { alloc_tag::sites::site(sp, fp, &*tls::bounds()) }
}

/// The common case of an allocation, compact enough to need no stack frame: a slot of `class` from this thread's stack. If there is
/// no tag, `no_tag` takes over, if there is no slot, `slow`: both allocate from scratch, and are called last.
///
/// # Safety
/// `class` is below `CLASSES`.
#[inline(always)]
pub unsafe fn allocate_fast(
    class: usize,
    no_tag: impl FnOnce() -> *mut u8,
    slow: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    match tag() {
        0 => no_tag(),
        tag => match MM.pop(class, tag) {
            Some(p) => p.as_ptr(),
            None => slow(),
        },
    }
}

/// The next best case: a slot of `class` from this thread's stack, charged to the site. Null: take the slow way.
///
/// # Safety
/// `class` is below `CLASSES`; `sp` and `fp` as the module says.
#[inline(always)]
pub unsafe fn allocate_for_site(class: usize, sp: usize, fp: usize) -> *mut u8 {
    MM.pop(class, site(sp, fp))
        .map_or(core::ptr::null_mut(), |p| p.as_ptr())
}

/// `size` bytes, aligned to 8, and to 16 if `size` is a multiple of 16. Null: out of memory.
///
/// # Safety
/// `sp` and `fp` as the module says.
#[inline(always)]
pub unsafe fn allocate(size: usize, sp: usize, fp: usize) -> *mut u8 {
    let p = MM.alloc(size, index(sp, fp));
    if p.is_null() {
        again(|i| MM.alloc(size, i), sp, fp)
    } else {
        p
    }
}

/// `size` bytes aligned to `align`, a power of two.
///
/// # Safety
/// As [`allocate`].
#[inline(always)]
pub unsafe fn allocate_aligned(size: usize, align: usize, sp: usize, fp: usize) -> *mut u8 {
    let p = MM.alloc_aligned(size, align, index(sp, fp));
    if p.is_null() {
        again(|i| MM.alloc_aligned(size, align, i), sp, fp)
    } else {
        p
    }
}

/// `size` zeroed bytes aligned to `align`.
///
/// # Safety
/// As [`allocate`].
#[inline(always)]
pub unsafe fn allocate_zeroed(size: usize, align: usize, sp: usize, fp: usize) -> *mut u8 {
    let p = MM.alloc_zeroed(size, align, index(sp, fp));
    if p.is_null() {
        again(|i| MM.alloc_zeroed(size, align, i), sp, fp)
    } else {
        p
    }
}

/// The first allocation of the process sets the runtime up; any other that failed has failed.
#[cold]
#[inline(never)]
fn again(f: impl Fn(u32) -> *mut u8, sp: usize, fp: usize) -> *mut u8 {
    if MM.ready() || !init() {
        return core::ptr::null_mut();
    }
    f(index(sp, fp))
}

/// Resizes; see [`crate::Manager::realloc`]. The result is charged to the caller, whether it moves or not.
///
/// # Safety
/// `p` is a live object of this allocator; `sp` and `fp` as the module says.
#[inline(always)]
pub unsafe fn reallocate(p: *mut u8, size: usize, align: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract.
    unsafe { MM.realloc(p as usize, size, align, index(sp, fp)) }
}

/// Frees `p`; null and pointers from elsewhere are ignored.
///
/// # Safety
/// `p` is not used afterwards.
#[inline(always)]
pub unsafe fn free(p: *mut u8) {
    // SAFETY: by the contract.
    unsafe { MM.free(p as usize) }
}

/// Bytes that may be used at `p`; 0 for what is no live object.
pub fn usable_size(p: *mut u8) -> usize {
    MM.usable_size(p as usize)
}

/// Gives unused memory back to the system. Returns whether there was any.
pub fn trim() -> bool {
    MM.trim()
}

/// Why the switch could not be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetError {
    /// The process was started with `MEMLEDGER=never`: there is no ledger.
    Never,
    /// The runtime could not be set up.
    NoMemory,
}

impl core::fmt::Display for SetError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            SetError::Never => {
                "the process was started with MEMLEDGER=never: there is no ledger to switch on"
            }
            SetError::NoMemory => "the runtime could not be set up: out of memory",
        })
    }
}

impl core::error::Error for SetError {}

/// Switches profiling. What is allocated while it is off is `untracked` for as long as it lives.
pub fn set_enabled(on: bool) -> Result<(), SetError> {
    if !init() {
        return Err(SetError::NoMemory);
    }
    if descriptor::descriptor().mode & MODE_NEVER != 0 {
        return Err(SetError::Never);
    }
    descriptor::switch().store(u32::from(on), Ordering::Relaxed);
    Ok(())
}

/// Whether profiling is on.
pub fn enabled() -> bool {
    descriptor::switch().load(Ordering::Relaxed) != 0
}

/// Calls `f(index, bytes)` for each live object. Returns the slabs that could not be read, or `None` when there was no memory for the
/// scan itself (32 KiB, mapped and unmapped again).
pub fn scan(f: impl FnMut(u32, u64)) -> Option<u64> {
    let bytes = size_of::<[u32; CELLS_MAX]>();
    // SAFETY: a new mapping, zeroed, of the right size; unmapped below, after its last use.
    unsafe {
        let at = sys::map(0, bytes, libc::PROT_READ | libc::PROT_WRITE, false);
        if at == 0 {
            return None;
        }
        let torn = MM.scan(&mut *(at as *mut [u32; CELLS_MAX]), f);
        sys::syscall(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]);
        Some(torn.slabs)
    }
}

/// Sums for `mallinfo2` and `malloc_stats`, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Address space in runs that are in use.
    pub used_runs: usize,
    /// Free memory that is kept for reuse.
    pub dirty: usize,
    /// Committed address space.
    pub committed: usize,
    /// Own metadata.
    pub meta: usize,
}

/// The sums.
pub fn totals() -> Totals {
    let (used_runs, dirty, committed) = MM.arena.usage();
    Totals {
        used_runs,
        dirty,
        committed,
        meta: MM.arena.meta_bytes.load(Ordering::Relaxed) as usize,
    }
}
