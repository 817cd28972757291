//! System calls without libc: `errno` stays as it is, and they work before libc does.

use core::arch::asm;

/// Makes system call `n`. Returns what the kernel returns: a negative error number, or the result.
///
/// # Safety
/// As the system call.
#[inline]
pub(super) unsafe fn syscall(n: i64, args: [usize; 6]) -> isize {
    let r: isize;
    // SAFETY: the kernel's calling convention: it clobbers rcx and r11 and returns in rax; the caller vouches for the call.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") n as isize => r,
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
    r
}

/// Maps anonymous private memory; `fixed` replaces what is mapped at `at`. 0 = refused.
///
/// # Safety
/// With `fixed`, the range must be the caller's.
pub(super) unsafe fn map(at: usize, bytes: usize, protection: i32, fixed: bool) -> usize {
    let flags = libc::MAP_PRIVATE
        | libc::MAP_ANONYMOUS
        | libc::MAP_NORESERVE
        | if fixed { libc::MAP_FIXED } else { 0 };
    // SAFETY: by the contract.
    let r = unsafe {
        syscall(
            libc::SYS_mmap,
            [
                at,
                bytes,
                protection as usize,
                flags as usize,
                usize::MAX,
                0,
            ],
        )
    };
    if r < 0 { 0 } else { r as usize }
}

/// Writes to standard error, ignoring failures.
pub(super) fn write_error(text: &[u8]) {
    // SAFETY: `text` is readable.
    unsafe {
        syscall(
            libc::SYS_write,
            [2, text.as_ptr() as usize, text.len(), 0, 0, 0],
        )
    };
}

/// Reads a small file from its start; the bytes that were read.
pub(super) fn read_file<'a>(path: &core::ffi::CStr, buffer: &'a mut [u8]) -> &'a [u8] {
    // SAFETY: `path` is NUL-terminated; the buffer is ours.
    unsafe {
        let fd = syscall(
            libc::SYS_open,
            [
                path.as_ptr() as usize,
                (libc::O_RDONLY | libc::O_CLOEXEC) as usize,
                0,
                0,
                0,
                0,
            ],
        );
        if fd < 0 {
            return &[];
        }
        let mut n = 0;
        while n < buffer.len() {
            let r = syscall(
                libc::SYS_read,
                [
                    fd as usize,
                    buffer.as_mut_ptr() as usize + n,
                    buffer.len() - n,
                    0,
                    0,
                    0,
                ],
            );
            if r <= 0 {
                break;
            }
            n += r as usize;
        }
        syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]);
        &buffer[..n]
    }
}
