//! Rules by return address.
//!
//! Theory: the same return address has a node under each of its parents, and reading unwind tables costs about a
//! microsecond; so rules found are kept in a small direct-mapped table. An entry is two words, `ra ^ rule` and `rule`:
//! if two threads tear an entry, the words do not fit together and the entry counts as empty.

use crate::platform::Platform;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const ENTRIES: usize = 2048;

struct Entry {
    check: AtomicU64,
    rule: AtomicU64,
}

pub(crate) struct Cache(AtomicPtr<Entry>);

impl Cache {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Maps the table; the answer is its size in bytes. `None`: no memory.
    pub(crate) fn init(&self, platform: &impl Platform) -> Option<usize> {
        let bytes = ENTRIES * size_of::<Entry>();
        let table = platform.map(bytes);
        self.0.store(table.cast(), Ordering::Release);
        (!table.is_null()).then_some(bytes)
    }

    fn entries(&self) -> &[Entry] {
        let table = self.0.load(Ordering::Acquire);
        if table.is_null() {
            return &[];
        }
        // SAFETY: ENTRIES zeroed entries, mapped by `init` and never unmapped.
        unsafe { core::slice::from_raw_parts(table, ENTRIES) }
    }

    fn entry(&self, ra: u64) -> Option<&Entry> {
        let hash = ra.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ENTRIES.ilog2());
        self.entries().get(hash as usize)
    }

    pub(crate) fn get(&self, ra: u64) -> Option<u32> {
        let entry = self.entry(ra)?;
        let rule = entry.rule.load(Ordering::Relaxed);
        (rule != 0 && entry.check.load(Ordering::Relaxed) ^ rule == ra).then_some(rule as u32)
    }

    pub(crate) fn put(&self, ra: u64, rule: u32) {
        if let Some(entry) = self.entry(ra) {
            let rule = u64::from(rule);
            entry.check.store(ra ^ rule, Ordering::Relaxed);
            entry.rule.store(rule, Ordering::Relaxed);
        }
    }

    /// Forgets all rules: code was unloaded, another may come to its place.
    pub(crate) fn clear(&self) {
        for entry in self.entries() {
            entry.rule.store(0, Ordering::Relaxed);
        }
    }
}
