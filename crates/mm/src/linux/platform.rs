//! [`Platform`] by system calls.

use super::{init, misuse, owner, sys, tls, trace};
use crate::heap::ThreadSlot;
use crate::platform::{Freed, Misuse, Moved, Platform, RunTaken};
use core::sync::atomic::AtomicU32;
use memledger_abi::owner::{MASK_KERNEL, MASK_ZERO};

/// Linux on x86-64.
pub struct Linux;

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Whether core files are to hold a range. Ignored where it is refused.
fn advise(start: usize, bytes: usize, advice: i32) {
    // SAFETY: a range that the manager reserved; the advice changes neither its contents nor the right to it.
    unsafe { sys::syscall(libc::SYS_madvise, [start, bytes, advice as usize, 0, 0, 0]) };
}

impl Platform for Linux {
    fn reserve(bytes: usize) -> *mut u8 {
        // SAFETY: a new mapping.
        let start = unsafe { sys::map(0, bytes, libc::PROT_NONE, false) };
        if start != 0 {
            // gdb's gcore would write all of it, a terabyte of zeros.
            advise(start, bytes, libc::MADV_DONTDUMP);
        }
        start as *mut u8
    }

    fn reserve_limit() -> usize {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        let at = (&raw mut limit) as usize;
        // SAFETY: `limit` is ours and of the size that the kernel writes.
        let r = unsafe {
            sys::syscall(
                libc::SYS_prlimit64,
                [0, libc::RLIMIT_AS as usize, 0, at, 0, 0],
            )
        };
        if r < 0 || limit.rlim_cur == libc::RLIM_INFINITY {
            return usize::MAX;
        }
        // The rest is for stacks, libraries and the program's own mappings.
        (limit.rlim_cur as usize / 4).saturating_mul(3)
    }

    fn commit(start: usize, bytes: usize) -> bool {
        // SAFETY: the manager commits only what it reserved.
        let done =
            unsafe { sys::syscall(libc::SYS_mprotect, [start, bytes, RW as usize, 0, 0, 0]) == 0 };
        if done {
            advise(start, bytes, libc::MADV_DODUMP);
        }
        done
    }

    fn purge(start: usize, bytes: usize) {
        // SAFETY: the manager purges only pages that hold nothing.
        let r = unsafe {
            sys::syscall(
                libc::SYS_madvise,
                [start, bytes, libc::MADV_DONTNEED as usize, 0, 0, 0],
            )
        };
        if r < 0 {
            // Locked pages (mlockall) cannot be given back; the promise of zeros holds all the same.
            // SAFETY: as above.
            unsafe { core::ptr::write_bytes(start as *mut u8, 0, bytes) };
        }
    }

    fn populate(start: usize, bytes: usize) {
        const MADV_POPULATE_WRITE: usize = 23;
        // SAFETY: pages of the manager; their content stays. Kernels before 5.14 refuse: then faults do it.
        unsafe {
            sys::syscall(
                libc::SYS_madvise,
                [start, bytes, MADV_POPULATE_WRITE, 0, 0, 0],
            )
        };
    }

    fn reset(start: usize, bytes: usize) -> bool {
        // SAFETY: the manager resets only a run of its own that holds nothing.
        unsafe { sys::map(start, bytes, RW, true) == start }
    }

    fn move_pages(from: usize, to: usize, bytes: usize) -> Moved {
        const MREMAP_DONTUNMAP: i32 = 4;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | MREMAP_DONTUNMAP;
        // SAFETY: both ranges are the manager's; with DONTUNMAP the old range stays mapped (and empty), so that nobody
        // else's mapping can get in between.
        let r = unsafe {
            sys::syscall(
                libc::SYS_mremap,
                [from, bytes, bytes, flags as usize, to, 0],
            )
        };
        if r == to as isize {
            return Moved::Yes;
        }
        // A refused call may have unmapped the new place already (kernels before 6.17 refuse sources of several mappings
        // only then; and there is the limit of mappings).
        // SAFETY: the range is the manager's and holds nothing.
        if unsafe { sys::map(to, bytes, RW, true) } == to {
            Moved::No
        } else {
            Moved::Lost
        }
    }

    fn wait(word: &AtomicU32, value: u32) {
        let op = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
        // SAFETY: `word` is a live futex word.
        unsafe {
            sys::syscall(
                libc::SYS_futex,
                [word.as_ptr() as usize, op, value as usize, 0, 0, 0],
            )
        };
    }

    fn wake(word: &AtomicU32) {
        let op = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
        // SAFETY: as above.
        unsafe { sys::syscall(libc::SYS_futex, [word.as_ptr() as usize, op, 1, 0, 0, 0]) };
    }

    fn now_ms() -> u64 {
        let mut t = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `t` is ours. The call cannot fail for this clock, so `errno` is untouched.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut t) };
        t.tv_sec as u64 * 1000 + t.tv_nsec as u64 / 1_000_000
    }

    #[inline(always)]
    fn thread() -> *mut ThreadSlot {
        tls::thread()
    }

    fn watch_thread_exit() {
        init::watch_thread_exit();
    }

    fn tracing() -> bool {
        trace::tracing()
    }

    #[inline]
    fn trace_free(freed: &Freed) {
        trace::freed(freed);
    }

    #[inline(always)]
    fn run_taken(run: RunTaken, nested: bool) {
        if owner::OWNER.on() {
            let taken = page_owner::Taken {
                first: run.first,
                units: run.units,
                mask: if run.zero { MASK_ZERO } else { MASK_KERNEL },
                migrate: u8::from(run.large),
            };
            owner::taken(taken, nested);
        }
    }

    #[inline(always)]
    fn run_given(first: u32, nested: bool) {
        if owner::OWNER.on() {
            owner::given(first, nested);
        }
    }

    fn misuse(what: Misuse, p: usize) -> ! {
        misuse::abort(what, p)
    }
}
