//! What the global allocator and the C functions are made of. `sp` is the address of the stack word that holds the return
//! address of the allocation function, `fp` the frame pointer register at its entry.

use super::trace::{Request, allocate_traced, by_flags, reallocate_traced};
use super::{MM, descriptor, init, sys, tls};
use crate::ledger::CELLS_MAX;
use crate::manager::PROFILING;
use core::arch::asm;
use core::mem::{offset_of, size_of};
use core::sync::atomic::Ordering;
use memledger_abi::trace::SWITCH_ON;
use memledger_abi::{Descriptor, INDEX_UNTRACKED, MODE_NEVER};

/// `errno` for "out of memory".
pub const ENOMEM: i32 = libc::ENOMEM;

/// `INDEX_UNTRACKED`, so that the compiler does not load it ahead on the way where it is not wanted.
#[inline(always)]
fn untracked() -> u32 {
    let index;
    // SAFETY: loads a constant.
    unsafe {
        asm!("mov {0:e}, {1}", out(reg) index, const INDEX_UNTRACKED, options(nomem, nostack))
    };
    index
}

#[inline(always)]
fn not_on() -> Whom {
    // SAFETY: as in `whom`.
    unsafe {
        asm!(
            "cmp dword ptr [rip + {descriptor} + {at}], 0",
            "jne {traced}",
            descriptor = sym descriptor::DESCRIPTOR,
            at = const offset_of!(Descriptor, mem_profiling),
            traced = label { return Whom::Traced },
            options(readonly, nostack),
        );
    }
    Whom::Index(untracked())
}

/// Whom an allocation is charged to, as far as that needs no look at the stack.
pub(super) enum Whom {
    Index(u32),
    Site,
    /// Nobody yet: the allocation is traced.
    Traced,
}

#[inline(always)]
pub(super) fn whom() -> Whom {
    if !PROFILING {
        return Whom::Index(INDEX_UNTRACKED);
    }
    // One compare for three ways: written out, as the compiler makes two of it.
    // SAFETY: reads an aligned word of the descriptor, which lives in the object that this code is linked into.
    unsafe {
        asm!(
            "cmp dword ptr [rip + {descriptor} + {at}], {on}",
            "jne {other}",
            descriptor = sym descriptor::DESCRIPTOR,
            at = const offset_of!(Descriptor, mem_profiling),
            on = const SWITCH_ON,
            other = label { return not_on() },
            options(readonly, nostack),
        );
    }
    match alloc_tag::current() {
        0 => Whom::Site,
        tag => Whom::Index(tag),
    }
}

#[inline(always)]
pub(super) fn site(sp: usize, fp: usize) -> u32 {
    // SAFETY: `sp` and `fp` are of this call; the bounds and the heap, with its walks, are this thread's.
    unsafe {
        match (*(*tls::thread()).heap).paths.as_ref() {
            Some(paths) => alloc_tag::sites::known_site(sp, fp, &*tls::bounds(), paths),
            None => site_without_paths(sp, fp),
        }
    }
}

/// Makes the table of walks for the next time.
#[cold]
#[inline(never)]
fn site_without_paths(sp: usize, fp: usize) -> u32 {
    MM.keep_paths(alloc_tag::sites::depth());
    // SAFETY: as above.
    unsafe { alloc_tag::sites::site(sp, fp, &*tls::bounds()) }
}

/// The common case of an allocation, compact enough to need no stack frame: a slot of `class` from this thread's stack. If there is
/// no tag, `no_tag` takes over, if there is no slot, `slow`, and `traced` if allocations are traced: all allocate from scratch, and
/// are called last.
///
/// # Safety
/// `class` is below `CLASSES`.
#[inline(always)]
pub unsafe fn allocate_fast(
    class: usize,
    no_tag: impl FnOnce() -> *mut u8,
    slow: impl FnOnce() -> *mut u8,
    traced: impl FnOnce() -> *mut u8,
) -> *mut u8 {
    let index = match whom() {
        Whom::Site => return no_tag(),
        Whom::Traced => return traced(),
        Whom::Index(index) => index,
    };
    match MM.pop(class, index) {
        Some(p) => p.as_ptr(),
        None => slow(),
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

/// `request` with the alignment that its class has: 8 bytes, and 16 if the size is a multiple of 16. Null: out of memory.
///
/// # Safety
/// `sp` and `fp` as the module says.
#[inline(always)]
pub unsafe fn allocate(request: Request, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract.
    unsafe { made(request, |r, i| MM.alloc(r.size, i), sp, fp) }
}

/// `request`, aligned as it says, a power of two.
///
/// # Safety
/// As [`allocate`].
#[inline(always)]
pub unsafe fn allocate_aligned(request: Request, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract.
    unsafe { made(request, |r, i| MM.alloc_aligned(r.size, r.align, i), sp, fp) }
}

/// `request` in zeroed memory.
///
/// # Safety
/// As [`allocate`].
#[inline(always)]
pub unsafe fn allocate_zeroed(request: Request, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract.
    unsafe { made(request, |r, i| MM.alloc_zeroed(r.size, r.align, i), sp, fp) }
}

/// Allocates by `f`, which gets the index.
///
/// # Safety
/// As [`allocate`].
#[inline(always)]
unsafe fn made(r: Request, f: impl Fn(&Request, u32) -> *mut u8, sp: usize, fp: usize) -> *mut u8 {
    let index = match whom() {
        Whom::Index(index) => index,
        Whom::Site => site(sp, fp),
        Whom::Traced => {
            // SAFETY: by the contract.
            return unsafe { allocate_traced(r.requested, r.size, r.align, r.flags, sp, fp) };
        }
    };
    let p = f(&r, index);
    if p.is_null() {
        // SAFETY: by the contract.
        unsafe { again(r.requested, r.size, r.align, r.flags, sp, fp) }
    } else {
        p
    }
}

/// The first allocation of the process sets the runtime up; any other that failed has failed.
#[cold]
#[inline(never)]
unsafe extern "C" fn again(
    requested: usize,
    size: usize,
    align: usize,
    flags: u8,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    if MM.ready() {
        super::allocation_failed(requested);
        return core::ptr::null_mut();
    }
    if !init() {
        return core::ptr::null_mut();
    }
    let index = match whom() {
        Whom::Index(index) => index,
        Whom::Site => site(sp, fp),
        // SAFETY: by the contract.
        Whom::Traced => return unsafe { allocate_traced(requested, size, align, flags, sp, fp) },
    };
    by_flags(size, align, flags, index)
}

/// Resizes to `request`; see [`crate::Manager::realloc`]. The result is charged to the caller, whether it moves or not.
///
/// # Safety
/// `p` is a live object of this allocator; `sp` and `fp` as the module says.
#[inline(always)]
pub unsafe fn reallocate(p: *mut u8, request: Request, sp: usize, fp: usize) -> *mut u8 {
    let index = match whom() {
        Whom::Index(index) => index,
        Whom::Site => site(sp, fp),
        // SAFETY: by the contract.
        Whom::Traced => unsafe {
            return reallocate_traced(p, request.requested, request.size, request.align, sp, fp);
        },
    };
    // SAFETY: by the contract.
    unsafe { MM.realloc(p as usize, request.size, request.align, index) }
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
    if on {
        descriptor::switch().fetch_or(SWITCH_ON, Ordering::Relaxed);
    } else {
        descriptor::switch().fetch_and(!SWITCH_ON, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether profiling is on.
pub fn enabled() -> bool {
    descriptor::switch().load(Ordering::Relaxed) & SWITCH_ON != 0
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
    let (used_runs, dirty, committed) = MM.usage();
    Totals {
        used_runs,
        dirty,
        committed,
        meta: MM.arena.meta_bytes.load(Ordering::Relaxed) as usize,
    }
}
