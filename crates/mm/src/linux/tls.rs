//! The thread-local block, initial-exec:
//!
//! ```text
//! memledger_thread: ThreadSlot (64 bytes at most, heap = the empty heap) | StackBounds (zero)
//! ```
//! Hidden, so that a program that is linked with memledger and runs under the preloaded library keeps two.

use crate::heap::{EMPTY, ThreadSlot};
use core::arch::{asm, global_asm};
use core::mem::{align_of, offset_of, size_of};
use stackdepot::StackBounds;

const BOUNDS_AT: usize = 64;

const _: () = {
    assert!(size_of::<ThreadSlot>() <= BOUNDS_AT && offset_of!(ThreadSlot, heap) == 0);
    assert!(size_of::<StackBounds>() <= 64 && align_of::<StackBounds>() <= 64);
};

global_asm!(
    ".pushsection .tdata.memledger_thread, \"awT\", @progbits",
    ".globl memledger_thread",
    ".hidden memledger_thread",
    ".type memledger_thread, @object",
    ".size memledger_thread, 128",
    ".p2align 6",
    "memledger_thread:",
    ".quad {empty}",
    ".zero 120",
    ".popsection",
    empty = sym EMPTY,
);

/// This thread's slot.
#[inline(always)]
pub(super) fn thread() -> *mut ThreadSlot {
    let p: *mut ThreadSlot;
    // SAFETY: the thread pointer stands at fs:0; the distance of the block to it is a constant that the loader put in the GOT
    // (or the linker into the instruction).
    unsafe {
        asm!(
            "mov {p}, qword ptr fs:[0]",
            "add {p}, qword ptr [rip + memledger_thread@GOTTPOFF]",
            p = out(reg) p,
            options(pure, readonly, nostack),
        );
    }
    p
}

/// What is known of this thread's stack.
#[inline(always)]
pub(super) fn bounds() -> *mut StackBounds {
    thread().wrapping_byte_add(BOUNDS_AT).cast()
}
