//! The malloc family (malloc(3), posix_memalign(3), malloc_usable_size(3)).

use crate::entries;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use mm::class::{MAX_SMALL, class_of_16};
use mm::linux::{self, Request};
use mm::manager::MAX_REQUEST;

/// What `malloc` aligns to, in bytes.
const ALIGN: usize = 16;
const PAGE: usize = 4096;

entries! {
    /// malloc(3).
    malloc(1) => malloc_at;
    /// calloc(3).
    calloc(2) => calloc_at;
    /// realloc(3).
    realloc(2) => realloc_at;
    /// reallocarray(3).
    reallocarray(3) => reallocarray_at;
    /// posix_memalign(3).
    posix_memalign(3) => posix_memalign_at;
    /// aligned_alloc(3).
    aligned_alloc(2) => memalign_at;
    /// memalign(3).
    memalign(2) => memalign_at;
    /// valloc(3).
    valloc(1) => valloc_at;
    /// pvalloc(3).
    pvalloc(1) => pvalloc_at;
}

#[cold]
#[inline(never)]
fn out_of_memory() -> *mut u8 {
    // SAFETY: this thread's `errno`.
    unsafe { *libc::__errno_location() = linux::ENOMEM };
    null_mut()
}

/// Rounds a request up to what is 16-aligned in its class. At most `MAX_SMALL` (or larger requests, which are left).
#[inline(always)]
fn rounded(size: usize) -> usize {
    if size <= MAX_SMALL {
        (size + usize::from(size == 0) + ALIGN - 1) & !(ALIGN - 1)
    } else {
        size
    }
}

/// # Safety
/// `sp` is the address of the caller's return address, `fp` its frame pointer. So for all functions here.
#[inline(always)]
pub(crate) unsafe extern "C" fn malloc_at(size: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract; a class of the table.
    unsafe {
        match class_of_16(size) {
            Some(class) => linux::allocate_fast(
                class,
                || malloc_for_site(size, sp, fp),
                || malloc_slow(size, sp, fp),
                || malloc_traced(size, sp, fp),
            ),
            None => malloc_slow(size, sp, fp),
        }
    }
}

#[inline(never)]
unsafe extern "C" fn malloc_for_site(size: usize, sp: usize, fp: usize) -> *mut u8 {
    if let Some(class) = class_of_16(size) {
        // SAFETY: by the contract; a class of the table.
        let p = unsafe { linux::allocate_for_site(class, sp, fp) };
        if !p.is_null() {
            return p;
        }
    }
    // SAFETY: by the contract.
    unsafe { malloc_slow(size, sp, fp) }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn malloc_slow(size: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract.
    let p = unsafe { linux::allocate(Request::plain(size, rounded(size)), sp, fp) };
    if p.is_null() { out_of_memory() } else { p }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn malloc_traced(size: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract.
    let p = unsafe { linux::allocate_traced(size, rounded(size), 1, 0, sp, fp) };
    if p.is_null() { out_of_memory() } else { p }
}

unsafe extern "C" fn calloc_at(n: usize, size: usize, sp: usize, fp: usize) -> *mut u8 {
    let Some(bytes) = n.checked_mul(size) else {
        return out_of_memory();
    };
    // SAFETY: by the contract.
    let p =
        unsafe { linux::allocate_zeroed(Request::zeroed(bytes, rounded(bytes), ALIGN), sp, fp) };
    if p.is_null() { out_of_memory() } else { p }
}

unsafe extern "C" fn realloc_at(p: *mut u8, size: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract; `p` is null or what an allocation function returned.
    unsafe {
        if p.is_null() {
            return malloc_at(size, sp, fp);
        }
        if size == 0 {
            // glibc's rule: free, and return null.
            linux::free(p);
            return null_mut();
        }
        if size > MAX_REQUEST {
            return out_of_memory();
        }
        let q = linux::reallocate(p, Request::aligned(size, rounded(size), ALIGN), sp, fp);
        if q.is_null() {
            linux::allocation_failed(size);
            return out_of_memory();
        }
        q
    }
}

unsafe extern "C" fn reallocarray_at(
    p: *mut u8,
    n: usize,
    size: usize,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    let Some(bytes) = n.checked_mul(size) else {
        return out_of_memory();
    };
    // SAFETY: by the contract.
    unsafe { realloc_at(p, bytes, sp, fp) }
}

/// # Safety
/// As [`malloc_at`]; `align` is a power of two.
pub(crate) unsafe fn aligned_at(align: usize, size: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract.
    unsafe {
        linux::allocate_aligned(
            Request::aligned(size, rounded(size), align.max(ALIGN)),
            sp,
            fp,
        )
    }
}

unsafe extern "C" fn posix_memalign_at(
    out: *mut *mut u8,
    align: usize,
    size: usize,
    sp: usize,
    fp: usize,
) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut u8>()) {
        return libc::EINVAL;
    }
    if size > MAX_REQUEST || align > MAX_REQUEST {
        return libc::ENOMEM;
    }
    // SAFETY: by the contract; `out` is the caller's.
    unsafe {
        let p = aligned_at(align, size, sp, fp);
        if p.is_null() {
            return libc::ENOMEM;
        }
        *out = p;
    }
    0
}

/// `memalign` and `aligned_alloc`: as in glibc, an alignment that is no power of two is rounded up to one.
unsafe extern "C" fn memalign_at(align: usize, size: usize, sp: usize, fp: usize) -> *mut u8 {
    if size > MAX_REQUEST {
        return out_of_memory();
    }
    let Some(align) = align
        .checked_next_power_of_two()
        .filter(|&a| a <= MAX_REQUEST)
    else {
        // SAFETY: this thread's `errno`.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return null_mut();
    };
    // SAFETY: by the contract.
    let p = unsafe { aligned_at(align, size, sp, fp) };
    if p.is_null() { out_of_memory() } else { p }
}

unsafe extern "C" fn valloc_at(size: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: by the contract.
    unsafe { memalign_at(PAGE, size, sp, fp) }
}

unsafe extern "C" fn pvalloc_at(size: usize, sp: usize, fp: usize) -> *mut u8 {
    let Some(bytes) = size.max(1).checked_next_multiple_of(PAGE) else {
        return out_of_memory();
    };
    // SAFETY: by the contract.
    unsafe { memalign_at(PAGE, bytes, sp, fp) }
}

/// free(3).
///
/// # Safety
/// As free(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(p: *mut c_void) {
    // SAFETY: by the contract.
    unsafe { linux::free(p.cast()) }
}

/// cfree, as old programs call it.
///
/// # Safety
/// As free(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(p: *mut c_void) {
    // SAFETY: by the contract.
    unsafe { linux::free(p.cast()) }
}

/// free_sized of C23.
///
/// # Safety
/// As free(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(p: *mut c_void, _size: usize) {
    // SAFETY: by the contract.
    unsafe { linux::free(p.cast()) }
}

/// free_aligned_sized of C23.
///
/// # Safety
/// As free(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(p: *mut c_void, _align: usize, _size: usize) {
    // SAFETY: by the contract.
    unsafe { linux::free(p.cast()) }
}

/// malloc_usable_size(3); 0 for null and for what is no live object.
///
/// # Safety
/// As malloc_usable_size(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(p: *mut c_void) -> usize {
    linux::usable_size(p.cast())
}
