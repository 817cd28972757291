//! Memory for the manager itself, out of the arena: a bump in runs of its own.

use super::{Arena, UNIT};
use crate::platform::Platform;
use crate::unit::set;
use core::sync::atomic::Ordering;
use memledger_abi::KIND_META;

impl<P: Platform> Arena<P> {
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
