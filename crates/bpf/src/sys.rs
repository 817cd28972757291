//! The system calls: bpf(2), and perf_event_open(2) to attach to a tracepoint.
//!
//! Each is wrapped so that a caller can pass nothing that makes the kernel read or write memory that is not a slice of the
//! right length, which is checked here against the sizes that the map was made with.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: i32 = 0;
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_NEXT: i32 = 4;
const PROG_LOAD: i32 = 5;
const INFO_BY_FD: i32 = 15;
const PROG_TRACEPOINT: u32 = 5;
const TYPE_TRACEPOINT: u32 = 2;
const SAMPLE_RAW: u64 = 1 << 10;
const FLAG_CLOEXEC: u64 = 8;
const IOC_ENABLE: u64 = 0x2400;
const IOC_SET_BPF: u64 = 0x4004_2408;
/// Bytes of the attribute that is passed to bpf(2): what the commands here need.
const ATTR: usize = 128;
/// Bytes of `struct bpf_prog_info` up to `recursion_misses`.
const PROG_INFO: usize = 232;
const RECURSION_MISSES: usize = 208;

/// The attribute: a union of structures, as words.
#[derive(Default)]
#[repr(C, align(8))]
struct Attr([u64; ATTR / 8]);

impl Attr {
    fn u32(mut self, offset: usize, value: u32) -> Self {
        self.0[offset / 8] |= u64::from(value) << (8 * (offset % 8));
        self
    }

    fn u64(mut self, offset: usize, value: u64) -> Self {
        self.0[offset / 8] = value;
        self
    }
}

/// bpf(2).
///
/// # Safety
/// Addresses in `attr` must be what the command says, for as many bytes as it says, until the call returns.
unsafe fn bpf(command: i32, attr: &mut Attr, size: usize) -> io::Result<i32> {
    debug_assert!(size <= ATTR);
    // SAFETY: the attribute is `size` bytes of initialised memory that is ours to write; the caller vouches for what it points to.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut attr.0, size) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(rc as i32)
}

/// A new descriptor as an owned one.
fn own(fd: i32) -> OwnedFd {
    // SAFETY: only called with a descriptor that the kernel has just made for us, so nobody else closes it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// What a map is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
}

/// A map.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key: usize,
    value: usize,
}

impl Map {
    /// Makes a map with keys and values of so many bytes. Its memory is taken at once.
    pub(crate) fn new(kind: MapKind, key: u32, value: u32, entries: u32) -> io::Result<Map> {
        let mut attr = Attr::default()
            .u32(0, kind as u32)
            .u32(4, key)
            .u32(8, value)
            .u32(12, entries);
        // SAFETY: this command has no addresses.
        let fd = unsafe { bpf(MAP_CREATE, &mut attr, 72) }?;
        Ok(Map {
            fd: own(fd),
            key: key as usize,
            value: value as usize,
        })
    }

    /// Number of the descriptor.
    pub(crate) fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    fn attr(&self) -> Attr {
        Attr::default().u32(0, self.raw().cast_unsigned())
    }

    /// The value of a key; false: there is none.
    pub(crate) fn get(&self, key: &[u64], value: &mut [u64]) -> io::Result<bool> {
        self.check(key, value);
        let mut attr = self.attr();
        attr = attr.u64(8, key.as_ptr() as u64);
        attr = attr.u64(16, value.as_mut_ptr() as u64);
        // SAFETY: key and value are live slices of at least the sizes of the map (checked); `value` is ours to write.
        found(unsafe { bpf(MAP_LOOKUP, &mut attr, 32) })
    }

    /// Sets the value of a key.
    pub(crate) fn set(&self, key: &[u64], value: &[u64]) -> io::Result<()> {
        self.check(key, value);
        let mut attr = self.attr();
        attr = attr.u64(8, key.as_ptr() as u64);
        attr = attr.u64(16, value.as_ptr() as u64);
        // SAFETY: key and value are live slices of at least the sizes of the map (checked), and only read.
        unsafe { bpf(MAP_UPDATE, &mut attr, 32) }.map(drop)
    }

    /// The key after `key` (the first, if `None` or if it is gone); false: there is none.
    pub(crate) fn next(&self, key: Option<&[u64]>, next: &mut [u64]) -> io::Result<bool> {
        let mut attr = self.attr();
        if let Some(key) = key {
            assert!(size_of_val(key) >= self.key);
            attr = attr.u64(8, key.as_ptr() as u64);
        }
        assert!(size_of_val(next) >= self.key);
        attr = attr.u64(16, next.as_mut_ptr() as u64);
        // SAFETY: both keys are live slices of at least the size of a key (checked), `next` ours to write; 0 means none.
        found(unsafe { bpf(MAP_NEXT, &mut attr, 24) })
    }

    fn check(&self, key: &[u64], value: &[u64]) {
        assert!(size_of_val(key) >= self.key && size_of_val(value) >= self.value);
    }
}

fn found(result: io::Result<i32>) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Loads a program for tracepoints. If the verifier refuses it, the error has its last words.
pub(crate) fn load(code: &[u64]) -> io::Result<OwnedFd> {
    let attr = |log: Option<&mut Vec<u8>>| {
        let attr = Attr::default()
            .u32(0, PROG_TRACEPOINT)
            .u32(4, code.len() as u32)
            .u64(8, code.as_ptr() as u64)
            .u64(16, c"MIT".as_ptr() as u64);
        match log {
            Some(log) => attr
                .u32(24, 1)
                .u32(28, log.len() as u32)
                .u64(32, log.as_mut_ptr() as u64),
            None => attr,
        }
    };
    // SAFETY: `code` is a live slice of as many instructions as is said, the licence a static C string; no log.
    let error = match unsafe { bpf(PROG_LOAD, &mut attr(None), 72) } {
        Ok(fd) => return Ok(own(fd)),
        Err(error) => error,
    };
    let mut log = vec![0; 256 << 10];
    // SAFETY: as above, and `log` is ours to write for as many bytes as is said.
    if let Ok(fd) = unsafe { bpf(PROG_LOAD, &mut attr(Some(&mut log)), 72) } {
        return Ok(own(fd));
    }
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<_> = text.trim_end_matches('\0').lines().rev().take(4).collect();
    let last = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
    Err(io::Error::new(
        error.kind(),
        format!("the kernel does not take the BPF program: {error} {last}"),
    ))
}

/// How often a program was not run because another one ran on the same processor; `None`: the kernel does not tell.
pub(crate) fn misses(program: &OwnedFd) -> Option<u64> {
    let mut info = [0u64; PROG_INFO / 8];
    let mut attr = Attr::default()
        .u32(0, program.as_raw_fd().cast_unsigned())
        .u32(4, PROG_INFO as u32)
        .u64(8, info.as_mut_ptr() as u64);
    // SAFETY: `info` is ours to write for as many bytes as is said; it is all zero, so the kernel follows no address in it.
    unsafe { bpf(INFO_BY_FD, &mut attr, 16) }.ok()?;
    let told = (attr.0[0] >> 32) as usize;
    (told >= RECURSION_MISSES + 8).then(|| info[RECURSION_MISSES / 8])
}

/// Runs the program at each event of a tracepoint, on all processors, until the result is dropped.
pub(crate) fn attach(program: &OwnedFd, tracepoint: u32) -> io::Result<OwnedFd> {
    let mut attr = [0u64; 14];
    attr[0] = u64::from(TYPE_TRACEPOINT) | (size_of_val(&attr) as u64) << 32;
    attr[1] = u64::from(tracepoint);
    attr[2] = 1;
    attr[3] = SAMPLE_RAW;
    // SAFETY: the attribute is initialised and has the size that it says; the other arguments are numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw mut attr,
            -1,
            0,
            -1,
            FLAG_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let event = own(fd as i32);
    for (request, value) in [(IOC_SET_BPF, program.as_raw_fd()), (IOC_ENABLE, 0)] {
        // SAFETY: both requests take a number, no address; the descriptor is open.
        let rc = unsafe { libc::ioctl(event.as_raw_fd(), request, value) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(event)
}

/// Whether this process may make maps and load programs for tracepoints: loads one that does nothing.
///
/// # Errors
/// What the kernel says: EPERM (needs CAP_BPF and CAP_PERFMON, or the kernel is locked down), ENOSYS (it has no BPF).
pub fn permitted() -> io::Result<()> {
    Map::new(MapKind::Array, 4, 8, 1)?;
    let mut asm = crate::asm::Asm::new();
    asm.set(crate::asm::R0, 0);
    asm.exit();
    load(&asm.finish().unwrap_or_default()).map(drop)
}
