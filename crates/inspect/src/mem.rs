//! Memory of a process, read without its help and without stopping it.
//!
//! `process_vm_readv` copies many pieces in one call and needs only ptrace *rights*, not an attach. Where a seccomp filter
//! takes the call away, `/proc/PID/mem` does the same, one piece a call; and where `/proc` is that of another pid namespace, its
//! numbers are good for its own files only. This is the only module with unsafe code.

use crate::namespace;
use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Pieces a call may have (`IOV_MAX`).
const MAX_PIECES: usize = 1024;
/// Bytes a call may move; the kernel stops at 2 GiB less a page.
const MAX_BYTES: usize = 1 << 30;

/// One piece to read in a batch.
#[derive(Debug)]
pub struct Span<'a> {
    /// Address in the process.
    pub addr: u64,
    /// Where to; its length is the number of bytes.
    pub buf: &'a mut [u8],
    /// Set when all of `buf` was read.
    pub ok: bool,
}

impl<'a> Span<'a> {
    /// A piece not yet read.
    pub fn new(addr: u64, buf: &'a mut [u8]) -> Self {
        Span {
            addr,
            buf,
            ok: false,
        }
    }
}

/// Memory that can be read by address: a live process, or a core file.
pub trait Memory {
    /// Reads `buf.len()` bytes at `addr`, across borders of segments; an error if any byte of it cannot be read.
    fn read(&self, addr: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Reads many pieces; sets [`Span::ok`] of each that was read whole. Never fails as a whole.
    fn read_many(&self, spans: &mut [Span<'_>]) {
        for s in spans {
            s.ok = self.read(s.addr, s.buf).is_ok();
        }
    }
}

/// Memory of a live process.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
    /// System calls would take `pid` for another process.
    only_file: bool,
    file: OnceCell<Option<File>>,
}

impl ProcessMemory {
    /// Memory of the process that `/proc` shows as `pid`; nothing is opened or checked before the first read.
    pub fn new(pid: u32) -> Self {
        ProcessMemory {
            pid,
            only_file: namespace::proc_is_foreign(),
            file: OnceCell::new(),
        }
    }

    /// One that reads and writes by `/proc/PID/mem` only.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn by_file(pid: u32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/mem"))?;
        Ok(ProcessMemory {
            pid,
            only_file: true,
            file: OnceCell::from(Some(file)),
        })
    }

    /// Writes `data` at `addr`; the page must be writable in the process.
    ///
    /// # Errors
    /// Those of `process_vm_writev`; `EPERM` without ptrace rights.
    pub fn write(&self, addr: u64, data: &[u8]) -> io::Result<()> {
        let path = format!("/proc/{}/mem", self.pid);
        if self.only_file {
            let file = OpenOptions::new().write(true).open(path)?;
            return file.write_all_at(data, addr);
        }
        match write_remote(self.pid, addr, data) {
            Ok(n) if n == data.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(e) if refused(&e) => {
                let file = OpenOptions::new().write(true).open(path).map_err(|_| e)?;
                file.write_all_at(data, addr)
            }
            Err(e) => Err(e),
        }
    }

    /// The open `/proc/PID/mem`, if reading goes by it.
    ///
    /// # Errors
    /// When it must go by it, and the file cannot be opened.
    fn file(&self) -> io::Result<Option<&File>> {
        if self.only_file && self.file.get().is_none() {
            let file = self.open_file()?;
            return Ok(self.file.get_or_init(|| Some(file)).as_ref());
        }
        Ok(self.file.get().and_then(Option::as_ref))
    }

    fn open_file(&self) -> io::Result<File> {
        File::open(format!("/proc/{}/mem", self.pid))
    }

    /// Turns to `/proc/PID/mem` after the system call was refused; false if that is closed too.
    fn fall_back(&self) -> bool {
        self.file.get_or_init(|| self.open_file().ok()).is_some()
    }

    /// Reads one batch of at most [`MAX_PIECES`]; returns false if the call itself is refused.
    fn read_batch(&self, mut spans: &mut [Span<'_>]) -> bool {
        while !spans.is_empty() {
            let mut done = match read_remote(self.pid, spans) {
                Ok(n) => n,
                Err(e) if refused(&e) => return false,
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return true,
                Err(_) => 0,
            };
            let mut i = 0;
            while i < spans.len() && spans[i].buf.len() <= done {
                done -= spans[i].buf.len();
                spans[i].ok = true;
                i += 1;
            }
            // The piece at which the kernel stopped cannot be read whole; go on after it.
            let next = (i + 1).min(spans.len());
            spans = &mut spans[next..];
        }
        true
    }
}

impl Memory for ProcessMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> io::Result<()> {
        if let Some(file) = self.file()? {
            return read_file(file, addr, buf);
        }
        match read_remote(self.pid, &mut [Span::new(addr, buf)]) {
            Ok(n) if n == buf.len() => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
            Err(e) if refused(&e) && self.fall_back() => self.read(addr, buf),
            Err(e) => Err(e),
        }
    }

    fn read_many(&self, spans: &mut [Span<'_>]) {
        let mut rest = spans;
        while !rest.is_empty() {
            let Ok(file) = self.file() else { return };
            if let Some(file) = file {
                for s in rest {
                    s.ok = read_file(file, s.addr, s.buf).is_ok();
                }
                return;
            }
            let (mut n, mut bytes) = (0, 0);
            while n < rest.len()
                && n < MAX_PIECES
                && (n == 0 || bytes + rest[n].buf.len() <= MAX_BYTES)
            {
                bytes += rest[n].buf.len();
                n += 1;
            }
            if !self.read_batch(&mut rest[..n]) {
                if !self.fall_back() {
                    return;
                }
                continue;
            }
            rest = &mut rest[n..];
        }
    }
}

/// Was the system call refused as such (no rights, or no such call)?
fn refused(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EPERM | libc::ENOSYS | libc::EACCES)
    )
}

/// Reads by `/proc/PID/mem`; the end of file there means that the address space is gone.
fn read_file(file: &File, addr: u64, buf: &mut [u8]) -> io::Result<()> {
    if addr > i64::MAX as u64 {
        return Err(io::Error::from_raw_os_error(libc::EFAULT));
    }
    file.read_exact_at(buf, addr)
}

/// `process_vm_readv`; returns the bytes read, in order of the pieces.
fn read_remote(pid: u32, spans: &mut [Span<'_>]) -> io::Result<usize> {
    let n = spans.len().min(MAX_PIECES);
    let mut local = Vec::with_capacity(n);
    let mut remote = Vec::with_capacity(n);
    for s in &mut spans[..n] {
        local.push(libc::iovec {
            iov_base: s.buf.as_mut_ptr().cast(),
            iov_len: s.buf.len(),
        });
        remote.push(libc::iovec {
            iov_base: s.addr as usize as *mut _,
            iov_len: s.buf.len(),
        });
    }
    // SAFETY: each local iovec is the whole of a buffer that `spans` borrows mutably until after the call, and both vectors
    // have `n` entries. Remote addresses are only looked up by the kernel in the other address space, which answers EFAULT.
    let r = unsafe {
        libc::process_vm_readv(
            pid as libc::pid_t,
            local.as_ptr(),
            n as u64,
            remote.as_ptr(),
            n as u64,
            0,
        )
    };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(r as usize)
    }
}

/// `process_vm_writev`; returns the bytes written.
fn write_remote(pid: u32, addr: u64, data: &[u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    };
    let remote = libc::iovec {
        iov_base: addr as usize as *mut _,
        iov_len: data.len(),
    };
    // SAFETY: the local iovec is `data`, which the kernel only reads for this call. What the bytes mean at the remote address
    // is the caller's business; the writes of this crate go to the control word of a checked descriptor.
    let r = unsafe { libc::process_vm_writev(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
    if r < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(r as usize)
    }
}

/// Has the file an extended attribute of this name?
pub(crate) fn has_xattr(path: &std::path::Path, name: &std::ffi::CStr) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both strings are NUL-terminated and live through the call; with size 0 nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// The processor's time stamp counter, and `CLOCK_MONOTONIC` in nanoseconds at the same moment.
pub(crate) fn clock() -> (u64, u64) {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is ours and of the size that is written; every x86-64 processor has the counter, and reading it has no effect.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t);
        let tsc = core::arch::x86_64::_rdtsc();
        (
            tsc,
            t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned(),
        )
    }
}
