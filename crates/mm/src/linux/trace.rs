//! The tracer of this process, and the allocations that it sees.
//!
//! # How nothing is paid while it is off
//! Allocations test the switch anyway: any value but "profiling on, no tracing" and "off" leads here. Frees compare the pointer with the
//! end of the arena anyway: while tracing, that end is taken for 0, so that all frees take the slow way, which knows better
//! ([`crate::arena::Arena::route_frees`]). Whoever comes by finds out that the switch has changed: the next allocation closes the fast way
//! of frees, the next free opens it again.

use super::{MM, descriptor, init, sys, tls};
use crate::arena::UNIT;
use crate::class::{CLASSES, class_aligned, size_of_class};
use crate::heap::ThreadSlot;
use crate::manager::PROFILING;
use crate::platform::Freed;
use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use kmemtrace::{Fact, System, TraceSlot, Tracer};
use memledger_abi::INDEX_UNTRACKED;
use memledger_abi::trace::{
    CACHE_EARLY, CACHE_LARGE, EVENT_ALIGNED, EVENT_REALLOC, EVENT_ZERO, OP_ALLOC, OP_FREE,
    SWITCH_ON, SWITCH_TRACE, TYPE_KMALLOC, TYPE_PAGES,
};

pub(super) static TRACER: Tracer = Tracer::new();

static CLASS_BYTES: [u32; CLASSES] = {
    let mut bytes = [0; CLASSES];
    let mut i = 0;
    while i < CLASSES {
        bytes[i] = size_of_class(i) as u32;
        i += 1;
    }
    bytes
};

/// Distance from the thread pointer to libc's registered `struct rseq`; 0 = not known.
static RSEQ: AtomicI64 = AtomicI64::new(0);
static NO_CPU: AtomicU32 = AtomicU32::new(u32::MAX);

struct Linux;

impl System for Linux {
    fn map(bytes: usize) -> usize {
        // SAFETY: a new mapping.
        unsafe { sys::map(0, bytes, libc::PROT_READ | libc::PROT_WRITE, false) }
    }

    fn tid() -> u32 {
        // SAFETY: no arguments.
        unsafe { sys::syscall(libc::SYS_gettid, [0; 6]) as u32 }
    }

    fn cpu_at() -> *const i32 {
        const CPU_ID: i64 = 4;
        match RSEQ.load(Ordering::Relaxed) {
            0 => NO_CPU.as_ptr().cast(),
            offset => {
                let tp: *const u8;
                // SAFETY: the thread pointer stands at fs:0.
                unsafe {
                    core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) tp, options(pure, readonly, nostack));
                }
                tp.wrapping_byte_offset((offset + CPU_ID) as isize).cast()
            }
        }
    }

    fn clocks() -> (u64, u64) {
        let now = |clock| {
            let mut t = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: `t` is ours; the call cannot fail for these clocks, so `errno` is untouched.
            unsafe { libc::clock_gettime(clock, &mut t) };
            t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
        };
        (now(libc::CLOCK_MONOTONIC), now(libc::CLOCK_REALTIME))
    }
}

/// Finds where libc keeps the number of the CPU. Called by the constructor: it needs a working libc.
pub(super) fn find_cpu() {
    // SAFETY: NUL-terminated names; the symbols, if there, are a `ptrdiff_t` and an `unsigned int` (rseq.h of glibc 2.35).
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<i64>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        if !offset.is_null() && !size.is_null() && *size >= 8 {
            RSEQ.store(*offset, Ordering::Relaxed);
            TRACER.cpu_known::<Linux>(slot());
        }
    }
}

/// This thread's part of the tracer.
#[inline(always)]
fn slot() -> *mut TraceSlot {
    let thread: *mut ThreadSlot = tls::thread();
    // SAFETY: a field of this thread's slot; only its address is taken.
    unsafe { &raw mut (*thread).trace }
}

/// Sets what `MEMLEDGER` says of tracing. The set-up lock is held.
pub(super) fn configure(settings: &alloc_tag::Settings) {
    let wanted = settings.trace.then_some(kmemtrace::Settings {
        ring_bytes: settings.trace_size,
        stop: settings.trace_stop,
        tracers: settings.tracers,
    });
    TRACER.configure(&CLASS_BYTES, wanted);
}

pub(super) fn thread_exit() {
    // SAFETY: this thread's slot.
    unsafe { TRACER.thread_exit(slot()) };
}

pub(super) fn after_fork() {
    // SAFETY: this thread's slot; a forked child has one thread.
    unsafe { TRACER.after_fork::<Linux>(slot()) };
}

/// Whether allocations and frees are traced.
#[inline(always)]
pub fn tracing() -> bool {
    descriptor::switch().load(Ordering::SeqCst) & SWITCH_TRACE != 0
}

/// Switches tracing.
///
/// # Errors
/// As [`super::set_enabled`].
pub fn set_tracing(on: bool) -> Result<(), super::SetError> {
    if !init() {
        return Err(super::SetError::NoMemory);
    }
    if descriptor::descriptor().trace == 0 {
        return Err(super::SetError::Never);
    }
    if on {
        descriptor::switch().fetch_or(SWITCH_TRACE, Ordering::SeqCst);
    } else {
        descriptor::switch().fetch_and(!SWITCH_TRACE, Ordering::SeqCst);
    }
    MM.arena.route_frees();
    Ok(())
}

/// Writes an event and keeps frees on the slow way.
#[inline(always)]
pub(super) fn record(fact: &Fact) {
    // SAFETY: this thread's slot.
    unsafe { TRACER.record::<Linux>(slot(), fact) };
}

#[inline(always)]
pub(super) fn freed(f: &Freed) {
    let kind = if usize::from(f.cache) == CACHE_LARGE {
        TYPE_PAGES
    } else {
        TYPE_KMALLOC
    };
    record(&Fact {
        op: OP_FREE,
        kind,
        flags: if f.resized { EVENT_REALLOC } else { 0 },
        cache: f.cache,
        index: f.index,
        ptr: f.p,
        requested: f.bytes,
        given: f.bytes,
    });
}

/// What an allocation asks for.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Bytes, as the program said.
    pub requested: usize,
    /// Bytes, as the class is chosen by.
    pub size: usize,
    /// Alignment, a power of two.
    pub align: usize,
    /// `EVENT_ZERO`, `EVENT_ALIGNED`.
    pub flags: u8,
}

impl Request {
    /// An allocation like `malloc(requested)`, rounded to `size`.
    pub const fn plain(requested: usize, size: usize) -> Self {
        Request {
            requested,
            size,
            align: 1,
            flags: 0,
        }
    }

    /// Zeroed memory.
    pub const fn zeroed(requested: usize, size: usize, align: usize) -> Self {
        Request {
            requested,
            size,
            align,
            flags: EVENT_ZERO,
        }
    }

    /// Aligned memory.
    pub const fn aligned(requested: usize, size: usize, align: usize) -> Self {
        Request {
            requested,
            size,
            align,
            flags: if align > 16 { EVENT_ALIGNED } else { 0 },
        }
    }
}

/// Indexes of a traced allocation: the one in the event, and the one in the ledger.
#[inline(always)]
pub(super) fn indexes(sp: usize, fp: usize) -> (u32, u32) {
    let index = match alloc_tag::current() {
        0 => super::api::site(sp, fp),
        tag => tag,
    };
    let on = PROFILING && descriptor::switch().load(Ordering::Relaxed) & SWITCH_ON != 0;
    (index, if on { index } else { INDEX_UNTRACKED })
}

/// Allocates in the way that `flags` and `align` say (1: that of the class).
#[inline(always)]
pub(super) fn by_flags(size: usize, align: usize, flags: u8, index: u32) -> *mut u8 {
    if flags & EVENT_ZERO != 0 {
        MM.alloc_zeroed(size, align, index)
    } else if align > 1 {
        MM.alloc_aligned(size, align, index)
    } else {
        MM.alloc(size, index)
    }
}

/// An allocation while tracing, as in [`Request`]: it is made and recorded. Null: out of memory.
///
/// # Safety
/// `sp` is the address of the stack word that holds the return address of the allocation function, `fp` the frame pointer register at
/// its entry.
#[cold]
#[inline(never)]
pub unsafe extern "C" fn allocate_traced(
    requested: usize,
    size: usize,
    align: usize,
    flags: u8,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    let (index, charged) = indexes(sp, fp);
    if MM.arena.frees_are_fast() {
        MM.arena.route_frees();
    }
    let p = by_flags(size, align, flags, charged);
    if !p.is_null() {
        let class = match align {
            1 if size <= crate::class::MAX_SMALL => Some(crate::class::class_of(size)),
            1 => None,
            _ if align <= UNIT / 2 => class_aligned(size, align),
            _ => None,
        };
        made(p, index, requested, class, flags);
    }
    p
}

/// Records an allocation of `class`; `None` = whole pages.
#[inline(always)]
fn made(p: *mut u8, index: u32, requested: usize, class: Option<usize>, flags: u8) {
    let (cache, kind, given) = match class {
        Some(class) => (class, TYPE_KMALLOC, CLASS_BYTES[class] as usize),
        None => (
            CACHE_LARGE,
            TYPE_PAGES,
            requested.max(1).next_multiple_of(4096),
        ),
    };
    record(&Fact {
        op: OP_ALLOC,
        kind,
        flags,
        cache: cache as u8,
        index,
        ptr: p as usize,
        requested,
        given,
    });
}

/// A change of size while tracing: a free and an allocation. The free is recorded first, while nobody else can have the memory; if
/// there is no memory, the object is recorded anew as it was.
///
/// # Safety
/// As [`super::reallocate`]; `sp` and `fp` as for [`allocate_traced`].
#[cold]
#[inline(never)]
pub(super) unsafe extern "C" fn reallocate_traced(
    p: *mut u8,
    requested: usize,
    size: usize,
    align: usize,
    sp: usize,
    fp: usize,
) -> *mut u8 {
    let (index, charged) = indexes(sp, fp);
    if MM.arena.frees_are_fast() {
        MM.arena.route_frees();
    }
    let old = MM.about(p as usize);
    if let Some(old) = old {
        freed(&Freed {
            resized: true,
            ..old
        });
    }
    // SAFETY: by the contract.
    let q = unsafe { MM.realloc(p as usize, size, align, charged) };
    let (at, index, requested) = match (q.is_null(), old) {
        (false, _) => (q, index, requested),
        (true, Some(old)) => (p, old.index, old.bytes),
        (true, None) => return q,
    };
    if let Some(now) = MM.about(at as usize) {
        let class = (usize::from(now.cache) < CLASSES).then_some(usize::from(now.cache));
        debug_assert!(class.is_some() || usize::from(now.cache) >= CACHE_EARLY);
        made(at, index, requested, class, EVENT_REALLOC);
    }
    q
}
