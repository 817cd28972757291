//! The page owner of this process: who and when by system calls, and the stack.

use super::{MM, sys, tls};
use memledger_abi::owner::{OWNER_DEPTH, OwnerRecord};
use page_owner::{PageOwner, Stack, Taken, Who};

pub(super) static OWNER: PageOwner = PageOwner::new();

/// Switches it on; `false`: no memory. The table is reserved for all units, and grows as it is touched.
pub(super) fn start() -> bool {
    let units = MM.arena.reserved();
    // SAFETY: a new mapping.
    let at = unsafe {
        sys::map(
            0,
            units * size_of::<OwnerRecord>(),
            libc::PROT_READ | libc::PROT_WRITE,
            false,
        )
    };
    if at != 0 {
        // SAFETY: the mapping is zeroed, has room for so many records, and is never unmapped.
        unsafe { OWNER.start(at, units as u32) };
    }
    at != 0
}

/// A run was taken.
#[cold]
#[inline(never)]
pub(super) fn taken(run: Taken, nested: bool) {
    let node = OWNER.node(stack(nested));
    OWNER.taken(run, node, &who());
}

/// A run is given back.
#[cold]
#[inline(never)]
pub(super) fn given(first: u32, nested: bool) {
    let node = OWNER.node(stack(nested));
    OWNER.given(first, node, now());
}

/// The stack from the caller on.
#[unsafe(naked)]
extern "C" fn here_node() -> u64 {
    core::arch::naked_asm!("mov rdi, rsp", "mov rsi, rbp", "jmp {}", sym walk)
}

extern "C" fn walk(sp: usize, fp: usize) -> u64 {
    // SAFETY: `here_node` passes its stack pointer, where its return address stands; the bounds are this thread's.
    let walk = unsafe { alloc_tag::sites::depot().walk(sp, fp, OWNER_DEPTH, &*tls::bounds()) };
    match walk.node() {
        Some(node) => u64::from(node),
        None => u64::MAX,
    }
}

#[inline(always)]
fn stack(nested: bool) -> Stack {
    if nested {
        return Stack::Recursion;
    }
    u32::try_from(here_node()).map_or(Stack::Lost, Stack::Node)
}

fn now() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is ours. The call cannot fail for this clock, so `errno` is untouched.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn who() -> Who {
    let mut who = Who {
        ts: now(),
        ..Who::default()
    };
    let name = (&raw mut who.comm) as usize;
    // SAFETY: no arguments, or a buffer of 16 bytes, as PR_GET_NAME wants.
    unsafe {
        who.pid = sys::syscall(libc::SYS_gettid, [0; 6]) as u32;
        who.tgid = sys::syscall(libc::SYS_getpid, [0; 6]) as u32;
        sys::syscall(
            libc::SYS_prctl,
            [libc::PR_GET_NAME as usize, name, 0, 0, 0, 0],
        );
    }
    who
}
