//! Memory for the manager itself, out of the arena: a bump in runs of its own.

use super::{Arena, UNIT};
use crate::platform::Platform;
use crate::unit::set;
use core::sync::atomic::{AtomicU64, Ordering};
use memledger_abi::KIND_META;

/// What own memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaKind {
    /// Heads of threads' heaps.
    Heap,
    /// A thread's stack of free slots of one class.
    Stack,
    /// The stack that threads share of one class.
    Shared,
    /// A thread's table of walks.
    Walks,
    /// A named cache.
    Pool,
}

impl<P: Platform> Arena<P> {
    /// As [`Arena::meta`], counted under `kind`, too.
    pub fn meta_for(&self, kind: MetaKind, bytes: usize, nested: bool) -> *mut u8 {
        let p = self.meta(bytes, nested);
        if !p.is_null() {
            let [sum, pieces] = self.meta_sums(kind);
            sum.fetch_add(bytes.next_multiple_of(64) as u64, Ordering::Relaxed);
            pieces.fetch_add(1, Ordering::Relaxed);
        }
        p
    }

    /// Bytes and pieces of one kind.
    pub fn meta_sums(&self, kind: MetaKind) -> &[AtomicU64; 2] {
        &self.meta_kinds[kind as usize]
    }

    /// Memory for the manager itself: zeroed, never given back, not in any row. Null when out of memory.
    pub fn meta(&self, bytes: usize, nested: bool) -> *mut u8 {
        let bytes = bytes.next_multiple_of(64);
        let p = self.with(nested, |inner| {
            if inner.meta_next + bytes > inner.meta_end {
                let n = bytes.div_ceil(UNIT) as u32;
                let run = self.take_locked(inner, n, 1, true)?;
                for u in run.first..run.first + n {
                    self.hot(u).change(|h| {
                        set!(h.kind, KIND_META);
                        set!(h.units, n);
                        set!(h.back, u - run.first);
                    });
                }
                let at = self.address(run.first);
                if !run.clean {
                    // SAFETY: the run was just taken: committed, and nobody else's.
                    unsafe { core::ptr::write_bytes(at as *mut u8, 0, n as usize * UNIT) };
                }
                inner.meta_next = at;
                inner.meta_end = at + n as usize * UNIT;
            }
            let at = inner.meta_next;
            inner.meta_next += bytes;
            Some(at)
        });
        match p {
            Some(Some(at)) => {
                self.meta_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                at as *mut u8
            }
            _ => core::ptr::null_mut(),
        }
    }
}
