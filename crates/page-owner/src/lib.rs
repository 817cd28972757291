//! Who took each run of pages, with stack, thread and time, and who gave it back last.
//!
//! Off, there is no memory and [`PageOwner::on`] is one load. On, there is a record of 64 bytes for each unit of the arena (64 KiB:
//! 4 bytes for a page, where the kernel needs 72), written when a run is taken or given back, which is rare. A record has one
//! writer at a time, the one who has the run; readers outside look at `seq` before and after.
//!
//! Stacks are nodes of the same trie that sites are, only deeper. Nothing here allocates, locks or makes system calls: the caller says
//! who and when.
#![no_std]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use memledger_abi::owner::{
    NODE_FAILURE, NODE_RECURSION, OWNER_GIVEN, OWNER_TAKEN, OwnerControl, OwnerRecord,
};

/// Who takes or gives back a run, and when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Who {
    /// Thread.
    pub pid: u32,
    /// Process.
    pub tgid: u32,
    /// Name of the thread, padded with NULs.
    pub comm: [u8; 16],
    /// Nanoseconds of the monotonic clock.
    pub ts: u64,
}

/// What became of reading a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// The node of the context trie that stands for it.
    Node(u32),
    /// There is none, or no room for it.
    Lost,
    /// A signal handler inside the allocator, which must not read it.
    Recursion,
}

/// What is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// First unit of the run.
    pub first: u32,
    /// Units of the run.
    pub units: u32,
    /// `memledger_abi::owner::MASK_*`.
    pub mask: u32,
    /// 0 = unmovable, 1 = movable.
    pub migrate: u8,
}

/// The page owner of a process.
#[derive(Debug)]
#[repr(C)]
pub struct PageOwner {
    /// As [`OwnerControl`].
    records: AtomicU64,
    stride: u32,
    reserved: u32,
    failures: AtomicU64,
    recursions: AtomicU64,
    taken: AtomicU64,
    /// Units that have a record.
    units: AtomicU32,
}

const _: () = assert!(core::mem::offset_of!(PageOwner, units) == size_of::<OwnerControl>());

impl PageOwner {
    /// One that is off.
    pub const fn new() -> Self {
        PageOwner {
            records: AtomicU64::new(0),
            stride: size_of::<OwnerRecord>() as u32,
            reserved: 0,
            failures: AtomicU64::new(0),
            recursions: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            units: AtomicU32::new(0),
        }
    }

    /// Whether it is on.
    #[inline(always)]
    pub fn on(&self) -> bool {
        self.records.load(Ordering::Acquire) != 0
    }

    /// Switches it on, for good.
    ///
    /// # Safety
    /// At `records` there are `units` zeroed records, readable and writable for ever.
    pub unsafe fn start(&self, records: usize, units: u32) {
        self.units.store(units, Ordering::Relaxed);
        self.records.store(records as u64, Ordering::Release);
    }

    /// Address of the [`OwnerControl`], for readers.
    pub fn address(&self) -> u64 {
        core::ptr::from_ref(self).expose_provenance() as u64
    }

    /// The number that stands for a stack. What is lost is counted.
    pub fn node(&self, stack: Stack) -> u32 {
        let (count, node) = match stack {
            Stack::Node(node) => return node,
            Stack::Lost => (&self.failures, NODE_FAILURE),
            Stack::Recursion => (&self.recursions, NODE_RECURSION),
        };
        count.fetch_add(1, Ordering::Relaxed);
        node
    }

    /// Notes that a run was taken. The caller has it.
    pub fn taken(&self, run: Taken, node: u32, who: &Who) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.change(run.first, |r| {
            r.node = node;
            (r.pid, r.tgid, r.comm, r.ts) = (who.pid, who.tgid, who.comm, who.ts);
            (r.mask, r.migrate, r.units) = (run.mask, run.migrate, run.units);
            r.state = OWNER_TAKEN;
        });
    }

    /// Notes that a run is given back. The caller still has it.
    pub fn given(&self, first: u32, node: u32, ts: u64) {
        self.change(first, |r| {
            (r.free_node, r.free_ts) = (node, ts);
            r.state = OWNER_GIVEN;
        });
    }

    fn change(&self, unit: u32, f: impl FnOnce(&mut OwnerRecord)) {
        if unit >= self.units.load(Ordering::Relaxed) {
            return;
        }
        let records = self.records.load(Ordering::Acquire) as usize as *mut UnsafeCell<OwnerRecord>;
        // SAFETY: `start` promised memory for `units` records, and `unit` is below. Nobody else in this process touches this
        // record: the caller has the run, and readers are other processes.
        unsafe {
            let record = (*records.add(unit as usize)).get();
            let seq = (&raw mut (*record).seq).cast::<AtomicU32>();
            let before = (*seq).load(Ordering::Relaxed);
            (*seq).store(before | 1, Ordering::Relaxed);
            fence(Ordering::Release);
            let mut copy = record.read();
            f(&mut copy);
            copy.seq = before | 1;
            record.write_volatile(copy);
            // After 2^32 changes it is 2 again, never 0.
            let after = (before | 1).wrapping_add(1).max(2);
            (*seq).store(after, Ordering::Release);
        }
    }
}

impl Default for PageOwner {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec;

    #[test]
    fn records_of_a_run() {
        let owner = PageOwner::new();
        assert!(!owner.on());
        // Off: nothing is written anywhere.
        owner.given(0, 1, 1);
        // SAFETY: records of zeros are valid.
        let zero: OwnerRecord = unsafe { core::mem::zeroed() };
        let table = vec![zero; 4].leak();
        // SAFETY: four records, leaked.
        unsafe { owner.start(table.as_mut_ptr().expose_provenance(), 4) };
        assert!(owner.on());
        let who = Who {
            pid: 12,
            tgid: 11,
            comm: *b"worker\0\0\0\0\0\0\0\0\0\0",
            ts: 77,
        };
        let run = Taken {
            first: 2,
            units: 2,
            mask: 0xcc0,
            migrate: 1,
        };
        owner.taken(run, 5, &who);
        owner.given(2, 6, 99);
        owner.given(4, 6, 99);
        let record = |i: usize| {
            let at = (&raw const table[i]).cast::<OwnerRecord>();
            // SAFETY: a record of the table.
            unsafe { at.read_volatile() }
        };
        let r = record(2);
        assert_eq!((r.seq, r.node, r.free_node), (4, 5, 6));
        assert_eq!((r.pid, r.tgid, r.ts, r.free_ts), (12, 11, 77, 99));
        assert_eq!(
            (r.units, r.state, r.migrate, r.mask),
            (2, OWNER_GIVEN, 1, 0xcc0)
        );
        assert_eq!(&r.comm[..7], b"worker\0");
        assert_eq!((record(1).seq, record(3).seq), (0, 0));
        assert_eq!(owner.node(Stack::Recursion), NODE_RECURSION);
        assert_eq!(owner.node(Stack::Lost), NODE_FAILURE);
        assert_eq!(owner.taken.load(Ordering::Relaxed), 1);
    }
}
