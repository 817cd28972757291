//! The C allocation functions and operator new, for unmodified programs: `LD_PRELOAD=libmemledger.so program`, or linked as a
//! static archive.
//!
//! Every function that allocates is *naked*: it passes on its arguments, the address of its return address and the caller's frame
//! pointer, and jumps; so the implementation sees the caller's stack as it was, and is not itself a frame on it.
//!
//! The whole family is covered, or two allocators would meet in one process. `errno` is as the manual says: `ENOMEM` where
//! memory lacks, `EINVAL` as returned by `posix_memalign`, else untouched (also by `free`).
//!
//! Nothing here allocates, and the release build (`panic = "abort"`) has no Rust standard library in it: no unwinder that
//! programs would have to load, fewer pages to map at every start. Builds that unwind (debug, tests) bring it along, since
//! only it can.
#![no_std]

#[cfg(panic = "unwind")]
extern crate std;

#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}

pub mod cxx;
pub mod info;
pub mod malloc;

// `core` comes compiled for unwinding and names these two, which nobody calls here. Hidden and weak: a program's own must win.
#[cfg(panic = "abort")]
core::arch::global_asm!(
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality:",
    "ud2",
    ".weak _Unwind_Resume",
    ".hidden _Unwind_Resume",
    ".type _Unwind_Resume, @function",
    "_Unwind_Resume:",
    "ud2",
);

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
