//! The C allocation functions and operator new, for unmodified programs: `LD_PRELOAD=libmemledger.so program`, or linked as a
//! static archive.
//!
//! Every function that allocates is *naked*: it passes on its arguments, the address of its return address and the caller's frame
//! pointer, and jumps; so the implementation sees the caller's stack as it was, and is not itself a frame on it.
//!
//! The whole family is covered, or two allocators would meet in one process. `errno` is as the manual says: `ENOMEM` where
//! memory lacks, `EINVAL` as returned by `posix_memalign`, else untouched (also by `free`).
//!
//! Nothing here allocates or unwinds. The Rust standard library is linked (cargo gives it to shared dependencies as soon as
//! another crate of the same build wants it), but in the release build (`panic = "abort"`) nothing of it runs, and the
//! unwinder that it names is stubbed out: programs need not load one, which is a good part of the start-up time.
#![no_std]

extern crate std;

pub mod cxx;
pub mod info;
pub mod malloc;

/// The unwinder's functions, for a build that never unwinds. Hidden and weak: a program's own win.
#[cfg(panic = "abort")]
macro_rules! no_unwinder {
    ($($name:literal)*) => {
        core::arch::global_asm!(
            ".pushsection .text.memledger_no_unwinder, \"ax\", @progbits",
            $(
                concat!(".weak ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ", @function"),
                concat!($name, ":"),
            )*
            // A backtrace of no frames.
            "mov eax, 5",
            "ret",
            ".popsection",
        );
    };
}

#[cfg(panic = "abort")]
no_unwinder! {
    "_Unwind_Backtrace" "_Unwind_DeleteException" "_Unwind_FindEnclosingFunction" "_Unwind_GetCFA" "_Unwind_GetDataRelBase"
    "_Unwind_GetIP" "_Unwind_GetIPInfo" "_Unwind_GetLanguageSpecificData" "_Unwind_GetRegionStart"
    "_Unwind_GetTextRelBase" "_Unwind_RaiseException" "_Unwind_Resume" "_Unwind_SetGR" "_Unwind_SetIP"
}

/// Defines naked functions: `name(words) => implementation`, where `words` is the number of integer arguments that come before
/// the stack pointer and the frame pointer in the implementation's arguments.
macro_rules! entries {
    ($($(#[$meta:meta])* $name:ident ($words:tt) => $implementation:path;)*) => {
        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// As the C or C++ function of this name.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    entries!(@sp $words),
                    entries!(@fp $words),
                    "jmp {f}",
                    f = sym $implementation,
                )
            }
        )*
    };
    (@sp 1) => { "mov rsi, rsp" };
    (@fp 1) => { "mov rdx, rbp" };
    (@sp 2) => { "mov rdx, rsp" };
    (@fp 2) => { "mov rcx, rbp" };
    (@sp 3) => { "mov rcx, rsp" };
    (@fp 3) => { "mov r8, rbp" };
}
pub(crate) use entries;
