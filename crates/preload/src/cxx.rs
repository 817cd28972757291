//! All forms of operator new and delete, by their mangled names.
//!
//! When memory lacks, the definition next in the search order (the C++ library's) is called: it tries again through our
//! `malloc`, calls the new handler and throws, or returns null, as the standard says. The entry itself jumps there, with
//! its own arguments, so that no Rust function is on the stack when the exception comes by.

use crate::malloc;
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;

/// `name(words) => implementation, failure`: `words` integer arguments are saved around the call of the implementation, which gets
/// them, the stack pointer and the frame pointer.
macro_rules! news {
    ($($(#[$meta:meta])* $name:ident ($words:tt) => $implementation:path, $failure:path;)*) => {
        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// As the C++ function of this name.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                news!(@body $words, $implementation, $failure)
            }
        )*
    };
    (@body 1, $implementation:path, $failure:path) => {
        core::arch::naked_asm!(
            "push rdi",
            "lea rsi, [rsp + 8]",
            "mov rdx, rbp",
            "call {f}",
            "pop rdi",
            "test rax, rax",
            "je {fail}",
            "ret",
            f = sym $implementation,
            fail = sym $failure,
        )
    };
    (@body 2, $implementation:path, $failure:path) => {
        core::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rsi",
            "lea rdx, [rsp + 24]",
            "mov rcx, rbp",
            "call {f}",
            "pop rsi",
            "pop rsi",
            "pop rdi",
            "test rax, rax",
            "je {fail}",
            "ret",
            f = sym $implementation,
            fail = sym $failure,
        )
    };
    (@body 3, $implementation:path, $failure:path) => {
        core::arch::naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "lea rcx, [rsp + 24]",
            "mov r8, rbp",
            "call {f}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "test rax, rax",
            "je {fail}",
            "ret",
            f = sym $implementation,
            fail = sym $failure,
        )
    };
}

news! {
    /// `operator new(size_t)`.
    _Znwm(1) => malloc::malloc_at, fail_new;
    /// `operator new[](size_t)`.
    _Znam(1) => malloc::malloc_at, fail_new;
    /// `operator new(size_t, const nothrow_t&)`.
    _ZnwmRKSt9nothrow_t(2) => new_nothrow, fail_nothrow;
    /// `operator new[](size_t, const nothrow_t&)`.
    _ZnamRKSt9nothrow_t(2) => new_nothrow, fail_nothrow;
    /// `operator new(size_t, align_val_t)`.
    _ZnwmSt11align_val_t(2) => new_aligned, fail_aligned;
    /// `operator new[](size_t, align_val_t)`.
    _ZnamSt11align_val_t(2) => new_aligned, fail_aligned;
    /// `operator new(size_t, align_val_t, const nothrow_t&)`.
    _ZnwmSt11align_val_tRKSt9nothrow_t(3) => new_aligned_nothrow, fail_aligned_nothrow;
    /// `operator new[](size_t, align_val_t, const nothrow_t&)`.
    _ZnamSt11align_val_tRKSt9nothrow_t(3) => new_aligned_nothrow, fail_aligned_nothrow;
}

unsafe extern "C" fn new_nothrow(size: usize, _nothrow: usize, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: passed on from the entry.
    unsafe { malloc::malloc_at(size, sp, fp) }
}

unsafe extern "C" fn new_aligned(size: usize, align: usize, sp: usize, fp: usize) -> *mut u8 {
    if !align.is_power_of_two()
        || size > mm::manager::MAX_REQUEST
        || align > mm::manager::MAX_REQUEST
    {
        return null_mut();
    }
    // SAFETY: passed on from the entry.
    unsafe { malloc::aligned_at(align, size, sp, fp) }
}

unsafe extern "C" fn new_aligned_nothrow(
    size: usize,
    align: usize,
    _nothrow: usize,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    // SAFETY: passed on from the entry.
    unsafe { new_aligned(size, align, sp, fp) }
}

/// `name, next`: saves the three argument registers, asks for the function that fails in the C++ library's way, and jumps to it.
macro_rules! failures {
    ($($name:ident, $next:ident, $mangled:literal;)*) => {
        $(
            #[cold]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "call {next}",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp rax",
                    next = sym $next,
                )
            }

            extern "C" fn $next() -> *mut c_void {
                next($mangled)
            }
        )*
    };
}

failures! {
    fail_new, next_new, c"_Znwm";
    fail_nothrow, next_nothrow, c"_ZnwmRKSt9nothrow_t";
    fail_aligned, next_aligned, c"_ZnwmSt11align_val_t";
    fail_aligned_nothrow, next_aligned_nothrow, c"_ZnwmSt11align_val_tRKSt9nothrow_t";
}

/// The next definition of an operator new; without a C++ library, what its absence comes to.
fn next(name: &CStr) -> *mut c_void {
    extern "C" fn null() -> *mut c_void {
        null_mut()
    }
    extern "C" fn abort() -> *mut c_void {
        // SAFETY: ends the process.
        unsafe { libc::abort() }
    }
    type Function = extern "C" fn() -> *mut c_void;
    let throw: *mut c_void;
    // SAFETY: one load from the global offset table; 0 if nobody defines std::__throw_bad_alloc().
    unsafe {
        core::arch::asm!(
            ".weak _ZSt17__throw_bad_allocv",
            "mov {}, qword ptr [rip + _ZSt17__throw_bad_allocv@GOTPCREL]",
            out(reg) throw,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    // SAFETY: a NUL-terminated name.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    let nothrow = name.to_bytes().ends_with(b"nothrow_t");
    if !nothrow && !throw.is_null() {
        // A static program: no next definition, but its C++ library can throw.
        return throw;
    }
    let last: Function = if nothrow { null } else { abort };
    last as *mut c_void
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
