//! The system: Linux on x86-64 with glibc.
//!
//! Theory: everything here may run inside `malloc`, in a signal handler, at any time. So system calls are made raw (no
//! `errno`), and the loader is asked through `_dl_find_object` (glibc 2.35), which takes no lock and needs no
//! registration. It and `__libc_stack_end` are taken as weak symbols: an older or another libc lacks them, and then
//! modules, or the main thread's bounds, are just not known.
//!
//! Readability of a page is asked by `rt_sigprocmask` with a senseless `how`: the kernel first copies the set (EFAULT
//! if it cannot), then refuses `how` (EINVAL). Sandboxes allow this call, and it changes nothing.

use crate::platform::{Object, Platform};
use core::arch::asm;
use core::ffi::{c_int, c_void};

const SYS_MMAP: usize = 9;
const SYS_MPROTECT: usize = 10;
const SYS_RT_SIGPROCMASK: usize = 14;
const SYS_MADVISE: usize = 28;
const SYS_GETPID: usize = 39;
const SYS_GETTID: usize = 186;
const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 1 | 2;
const MAP_PRIVATE: usize = 2;
const MAP_ANONYMOUS: usize = 0x20;
const MAP_NORESERVE: usize = 0x4000;
const MADV_DONTDUMP: usize = 16;
const MADV_DODUMP: usize = 17;
const EFAULT: isize = 14;
/// Bytes of the kernel's signal set.
const SIGSET: usize = 8;

/// The process that this code runs in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

/// `struct dl_find_object` of `<dlfcn.h>`.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    eh_frame: usize,
    reserved: [u64; 7],
}

/// The public head of `struct link_map` of `<link.h>`.
#[repr(C)]
struct LinkMap {
    addr: usize,
    name: usize,
}

type FindObject = unsafe extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int;

/// Address of a weak symbol, 0 if nobody defines it.
macro_rules! weak {
    ($name:literal) => {{
        let address: usize;
        // SAFETY: one load from the global offset table, which exists whether the symbol is defined or not.
        unsafe {
            asm!(
                concat!(".weak ", $name),
                concat!("mov {0}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        address
    }};
}

/// A system call; negative results are error numbers.
///
/// # Safety
/// As the call is.
#[inline]
unsafe fn syscall(number: usize, args: [usize; 6]) -> isize {
    let result;
    // SAFETY: the kernel's convention; rcx and r11 are clobbered.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

fn mmap(bytes: usize, protection: usize) -> *mut u8 {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at a place of the kernel's choice.
    let result = unsafe { syscall(SYS_MMAP, [0, bytes, protection, flags, usize::MAX, 0]) };
    if result < 0 {
        core::ptr::null_mut()
    } else {
        core::ptr::with_exposed_provenance_mut(result as usize)
    }
}

/// Whether core files are to hold a range of a reservation. Ignored where it is refused.
fn advise(start: *mut u8, bytes: usize, advice: usize) {
    // SAFETY: the range is in a reservation of ours; the advice changes neither its contents nor the right to it.
    unsafe { syscall(SYS_MADVISE, [start.addr(), bytes, advice, 0, 0, 0]) };
}

// SAFETY: raw system calls and lock-free look-ups only, as the module's header says.
unsafe impl Platform for Linux {
    fn reserve(&self, bytes: usize) -> *mut u8 {
        let start = mmap(bytes, PROT_NONE);
        if !start.is_null() {
            // gdb's gcore would write all of it.
            advise(start, bytes, MADV_DONTDUMP);
        }
        start
    }

    fn commit(&self, start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the range is in a reservation of ours; access is only ever added.
        let done = unsafe {
            syscall(
                SYS_MPROTECT,
                [start.addr(), bytes, PROT_READ_WRITE, 0, 0, 0],
            ) == 0
        };
        if done {
            advise(start, bytes, MADV_DODUMP);
        }
        done
    }

    fn map(&self, bytes: usize) -> *mut u8 {
        mmap(bytes, PROT_READ_WRITE)
    }

    fn find_object(&self, pc: usize) -> Option<Object> {
        let address = weak!("_dl_find_object");
        if address == 0 {
            return None;
        }
        // SAFETY: the address of glibc's function of this name, whose type this is.
        let find: FindObject = unsafe { core::mem::transmute(address) };
        let mut found = core::mem::MaybeUninit::<DlFindObject>::uninit();
        // SAFETY: any address may be asked for; 0 says that all of `found` was written.
        let found = unsafe {
            if find(
                core::ptr::with_exposed_provenance_mut(pc),
                found.as_mut_ptr(),
            ) != 0
            {
                return None;
            }
            found.assume_init()
        };
        let &LinkMap { addr, name } =
            // SAFETY: null or a link map, which lives as long as its object is mapped.
            unsafe { found.link_map.as_ref() }.unwrap_or(&LinkMap { addr: 0, name: 0 });
        Some(Object {
            start: found.map_start,
            end: found.map_end,
            bias: addr,
            name,
            identity: found.link_map.expose_provenance(),
            eh_frame_hdr: found.eh_frame,
        })
    }

    fn readable(&self, page: usize) -> bool {
        // SAFETY: the kernel reads the set, cannot make sense of `how`, and changes nothing.
        let result = unsafe { syscall(SYS_RT_SIGPROCMASK, [usize::MAX, page, 0, SIGSET, 0, 0]) };
        result != -EFAULT
    }

    fn stack_end(&self) -> usize {
        // SAFETY: these calls take no arguments and cannot fail.
        let main = unsafe { syscall(SYS_GETTID, [0; 6]) == syscall(SYS_GETPID, [0; 6]) };
        if !main {
            let thread: usize;
            // SAFETY: the ABI keeps the thread control block's own address in its first word.
            unsafe {
                asm!("mov {}, fs:0", out(reg) thread, options(pure, readonly, nostack, preserves_flags));
            }
            return thread;
        }
        let end: *const usize = core::ptr::with_exposed_provenance(weak!("__libc_stack_end"));
        if end.is_null() {
            return 0;
        }
        // SAFETY: the address of glibc's variable: the first stack pointer of the process, set before any code runs.
        unsafe { end.read() }.next_multiple_of(super::bounds::PAGE)
    }
}
