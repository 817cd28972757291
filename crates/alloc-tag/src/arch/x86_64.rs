//! The current-tag slot on x86-64: TLS by the thread pointer `fs`.
//!
//! The slot is defined in assembly because stable Rust has no way to ask for the initial-exec TLS model, and the general
//! one calls `__tls_get_addr`, which may allocate. Weak and hidden: one in each object file, never another's, and no
//! clash if two versions of this crate meet in one link. Only runtimes refer to it; elsewhere the linker drops it.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss.memledger_current_tag, \"awT\", @nobits",
    ".weak memledger_current_tag",
    ".hidden memledger_current_tag",
    ".type memledger_current_tag, @object",
    ".size memledger_current_tag, 8",
    ".p2align 3",
    "memledger_current_tag:",
    ".zero 8",
    ".popsection",
);

/// Distance from the thread pointer to the slot of this object file, in bytes. Not 0: that is the thread control block.
pub(crate) fn own_slot() -> i64 {
    let offset: i64;
    // SAFETY: loads a constant that the dynamic linker put in the GOT (or that the linker put in the instruction).
    unsafe {
        asm!(
            "mov {}, qword ptr [rip + memledger_current_tag@GOTTPOFF]",
            out(reg) offset,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    offset
}

/// The index in the calling thread's slot.
///
/// # Safety
/// `offset` must be the distance of a slot: 8 bytes of static TLS.
#[inline(always)]
pub(crate) unsafe fn load(offset: i64) -> u32 {
    let index: u32;
    // SAFETY: the 4 bytes at `fs:[offset]` are the calling thread's slot, by the contract.
    unsafe {
        asm!(
            "mov {:e}, dword ptr fs:[{}]",
            out(reg) index,
            in(reg) offset,
            options(readonly, nostack, preserves_flags)
        );
    }
    index
}

/// Stores an index to the calling thread's slot.
///
/// # Safety
/// As [`load`].
#[inline(always)]
pub(crate) unsafe fn store(offset: i64, index: u32) {
    // SAFETY: as in `load`; nothing else lives in these 4 bytes.
    unsafe {
        asm!(
            "mov dword ptr fs:[{}], {:e}",
            in(reg) offset,
            in(reg) index,
            options(nostack, preserves_flags)
        );
    }
}
