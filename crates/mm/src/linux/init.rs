//! Set-up: lazily, at the first allocation, plus what waits for the constructor.

use super::{MM, descriptor, sys};
use crate::linux::Linux;
use crate::lock::Lock;
use crate::manager::PROFILING;
use alloc_tag::{Mode, Settings};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use memledger_abi::MODE_NEVER;

static STATE: AtomicU32 = AtomicU32::new(0);
static LOCK: Lock<Linux> = Lock::new();
/// Frames of a site, where the depot waits for the constructor; else 0.
static LATE_DEPTH: AtomicU32 = AtomicU32::new(0);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Sets the runtime up, once; later calls only look. `false`: no memory.
pub fn init() -> bool {
    STATE.load(Ordering::Acquire) == 1 || init_slow()
}

#[cold]
fn init_slow() -> bool {
    LOCK.acquire();
    let mut ok = STATE.load(Ordering::Acquire) == 1;
    if !ok {
        let mut buffer = [0u8; 256];
        let settings = settings(&mut buffer);
        let never = settings.mode == Mode::Never || !PROFILING;
        ok = MM.init(!never);
        if ok {
            // In a static executable the first allocation is made while libc sets up what finds unwind tables; stacks have
            // to wait for the constructor there.
            if has_loader() {
                alloc_tag::sites::init(settings.depth);
            } else {
                LATE_DEPTH.store(settings.depth, Ordering::Relaxed);
            }
            make_key();
            let mode = if never { MODE_NEVER } else { 0 };
            if settings.page_owner && !never && !super::owner::start() {
                warn(&[b"MEMLEDGER: no memory for page_owner; it is off"]);
            }
            super::trace::configure(&settings);
            super::emergency::want(settings.report_failed);
            let on = settings.mode == Mode::On && !never;
            descriptor::fill(settings.depth, mode, on, settings.trace && !never);
            MM.arena.route_frees();
            STATE.store(1, Ordering::Release);
        }
    }
    LOCK.release();
    ok
}

/// Whether a dynamic loader started this process.
fn has_loader() -> bool {
    // SAFETY: no preconditions; reads the auxiliary vector.
    unsafe { libc::getauxval(libc::AT_BASE) != 0 }
}

/// The settings of the environment variable `MEMLEDGER`, unless the process runs with raised rights.
fn settings(buffer: &mut [u8; 256]) -> Settings {
    // SAFETY: no preconditions; reads the auxiliary vector.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return Settings::DEFAULT;
    }
    let value = environment(b"MEMLEDGER=", buffer);
    match Settings::parse(value) {
        Ok(s) => {
            if let Some(what) = s.unsupported() {
                warn(&[
                    b"MEMLEDGER: '",
                    what.as_bytes(),
                    b"' is not supported by this version; ignored",
                ]);
            }
            s
        }
        Err(e) => {
            warn(&[
                b"MEMLEDGER: not understood: '",
                e.word(),
                b"'; the default is used",
            ]);
            Settings::DEFAULT
        }
    }
}

fn warn(parts: &[&[u8]]) {
    sys::write_error(b"memledger: ");
    for p in parts {
        sys::write_error(p);
    }
    sys::write_error(b"\n");
}

/// The value of an environment variable (`key` ends in `=`), from libc's `environ`, or from the kernel while libc has not set it.
fn environment<'a>(key: &[u8], buffer: &'a mut [u8; 256]) -> &'a [u8] {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: `environ` is null or a null-terminated array of strings. No other thread changes it this early; later ones are
    // no worse than `getenv`.
    unsafe {
        let mut e = environ;
        if !e.is_null() {
            while !(*e).is_null() {
                let entry = CStr::from_ptr(*e).to_bytes();
                if let Some(value) = entry.strip_prefix(key) {
                    return copy(value, buffer);
                }
                e = e.add(1);
            }
            return &[];
        }
    }
    let mut all = [0u8; 4096];
    let read = sys::read_file(c"/proc/self/environ", &mut all);
    match read.split(|&b| b == 0).find_map(|e| e.strip_prefix(key)) {
        Some(value) => copy(value, buffer),
        None => &[],
    }
}

fn copy<'a>(value: &[u8], buffer: &'a mut [u8; 256]) -> &'a [u8] {
    let n = value.len().min(buffer.len());
    buffer[..n].copy_from_slice(&value[..n]);
    &buffer[..n]
}

/// A key whose destructor tells of the ends of threads. The first keys of a process need no memory.
fn make_key() {
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is ours; the destructor is a function of this library, which is never unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Ordering::Release);
    }
}

extern "C" fn thread_ends(_: *mut c_void) {
    MM.thread_exit();
    super::trace::thread_exit();
}

pub(super) fn watch_thread_exit() {
    let key = KEY.load(Ordering::Acquire);
    if key != u32::MAX {
        // SAFETY: a key of ours. Any value but null makes the destructor run.
        unsafe { libc::pthread_setspecific(key, (&raw const KEY).cast()) };
    }
}

extern "C" fn before_fork() {
    MM.fork_prepare();
}

extern "C" fn after_fork_parent() {
    MM.fork_done(false);
}

extern "C" fn after_fork_child() {
    MM.fork_done(true);
    alloc_tag::sites::after_fork();
    // SAFETY: a forked child has one thread, and `fork` was not called from inside a registration.
    unsafe { alloc_tag::runtime::after_fork() };
    descriptor::set_pid();
    super::trace::after_fork();
}

/// Runs with the constructors of the object that holds this runtime.
extern "C" fn constructor() {
    descriptor::fill_entry_points();
    init();
    let depth = LATE_DEPTH.load(Ordering::Relaxed);
    if depth != 0 && alloc_tag::sites::init(depth) {
        descriptor::fill_sites();
    }
    super::trace::find_cpu();
    // SAFETY: functions of this library, which is never unloaded.
    unsafe {
        libc::pthread_atfork(
            Some(before_fork),
            Some(after_fork_parent),
            Some(after_fork_child),
        )
    };
}

#[used]
#[unsafe(link_section = ".init_array.00100")]
static CONSTRUCTOR: extern "C" fn() = constructor;
