//! All forms of operator new and delete, by their mangled names.
//!
//! When memory lacks, the definition next in the search order (the C++ library's) is called: it tries again through our
//! `malloc`, calls the new handler and throws, or returns null, as the standard says.

use crate::{entries, malloc};
use core::ffi::{CStr, c_void};
use core::mem::transmute;
use core::ptr::null_mut;

entries! {
    /// `operator new(size_t)`.
    _Znwm(1) => new;
    /// `operator new[](size_t)`.
    _Znam(1) => new_array;
    /// `operator new(size_t, const nothrow_t&)`.
    _ZnwmRKSt9nothrow_t(2) => new_nothrow;
    /// `operator new[](size_t, const nothrow_t&)`.
    _ZnamRKSt9nothrow_t(2) => new_nothrow;
    /// `operator new(size_t, align_val_t)`.
    _ZnwmSt11align_val_t(2) => new_aligned;
    /// `operator new[](size_t, align_val_t)`.
    _ZnamSt11align_val_t(2) => new_aligned;
    /// `operator new(size_t, align_val_t, const nothrow_t&)`.
    _ZnwmSt11align_val_tRKSt9nothrow_t(3) => new_aligned_nothrow;
    /// `operator new[](size_t, align_val_t, const nothrow_t&)`.
    _ZnamSt11align_val_tRKSt9nothrow_t(3) => new_aligned_nothrow;
}

unsafe extern "C-unwind" fn new(size: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: passed on from the entry.
    let p = unsafe { malloc::malloc_at(size, sp, fp) };
    if p.is_null() {
        fail(c"_Znwm", size, 0, null_mut())
    } else {
        p
    }
}

unsafe extern "C-unwind" fn new_array(size: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: passed on from the entry.
    unsafe { new(size, sp, fp) }
}

unsafe extern "C-unwind" fn new_nothrow(
    size: usize,
    nothrow: *mut c_void,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    // SAFETY: passed on from the entry.
    let p = unsafe { malloc::malloc_at(size, sp, fp) };
    if p.is_null() {
        fail(c"_ZnwmRKSt9nothrow_t", size, nothrow as usize, null_mut())
    } else {
        p
    }
}

unsafe extern "C-unwind" fn new_aligned(
    size: usize,
    align: usize,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    // SAFETY: passed on from the entry; the type of `align` promises a power of two.
    let p = unsafe { aligned(size, align, sp, fp) };
    if p.is_null() {
        fail(c"_ZnwmSt11align_val_t", size, align, null_mut())
    } else {
        p
    }
}

unsafe extern "C-unwind" fn new_aligned_nothrow(
    size: usize,
    align: usize,
    nothrow: *mut c_void,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    // SAFETY: as in `new_aligned`.
    let p = unsafe { aligned(size, align, sp, fp) };
    if p.is_null() {
        fail(c"_ZnwmSt11align_val_tRKSt9nothrow_t", size, align, nothrow)
    } else {
        p
    }
}

unsafe fn aligned(size: usize, align: usize, sp: usize, fp: usize) -> *mut u8 {
    if !align.is_power_of_two()
        || size > mm::manager::MAX_REQUEST
        || align > mm::manager::MAX_REQUEST
    {
        return null_mut();
    }
    // SAFETY: by the contract of the callers.
    unsafe { malloc::aligned_at(align, size, sp, fp) }
}

/// Lets the C++ library fail in its way.
#[cold]
#[inline(never)]
fn fail(name: &CStr, size: usize, second: usize, third: *mut c_void) -> *mut u8 {
    type Next = unsafe extern "C-unwind" fn(usize, usize, *mut c_void) -> *mut u8;
    // SAFETY: the next definition of an operator new takes `size` and, by its name, up to two more integer arguments; in the C
    // calling convention of x86-64 more may be passed than are looked at.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        if !next.is_null() {
            return transmute::<*mut c_void, Next>(next)(size, second, third);
        }
        if name.to_bytes().ends_with(b"nothrow_t") {
            return null_mut();
        }
        libc::abort()
    }
}

macro_rules! deletes {
    ($($name:ident($($arg:ty),*);)*) => {
        $(
            /// A form of `operator delete`.
            ///
            /// # Safety
            /// As the C++ function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(p: *mut c_void $(, _: $arg)*) {
                // SAFETY: by the contract.
                unsafe { mm::linux::free(p.cast()) }
            }
        )*
    };
}

deletes! {
    _ZdlPv();
    _ZdaPv();
    _ZdlPvm(usize);
    _ZdaPvm(usize);
    _ZdlPvRKSt9nothrow_t(*const c_void);
    _ZdaPvRKSt9nothrow_t(*const c_void);
    _ZdlPvSt11align_val_t(usize);
    _ZdaPvSt11align_val_t(usize);
    _ZdlPvmSt11align_val_t(usize, usize);
    _ZdaPvmSt11align_val_t(usize, usize);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(usize, *const c_void);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(usize, *const c_void);
}
