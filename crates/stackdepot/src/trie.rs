//! Look-up and insertion of nodes, and growth of the table, without a lock.
//!
//! Theory: the trie is an array of nodes and a table that finds the child of a node by return address. A node is
//! filled before a slot names it (release by CAS, acquire by probe), so who finds it sees it whole.
//!
//! Growth: one thread takes a flag (others go on without), maps a table twice the size, publishes it as `next`, copies
//! slot by slot, makes it `current` and clears `next`. An insertion may race with the copy: the copier may have
//! passed the slot. So after setting a slot an inserter fences and looks: if there is a `next`, it inserts there
//! too; if `current` is another table, it begins again there. The copier publishes `next`, fences, then reads slots:
//! of the two fences one comes first, so either the copier sees the slot or the inserter sees `next` (or the end of
//! the growth). What remains: between its two steps the inserter can be overtaken, and a third thread may then make
//! the same node again in the new table. That is a duplicate; readers merge equal stacks.
//!
//! The flag only saves work. If the thread that has it does not run (preempted, or interrupted by the very signal
//! handler that inserts) until the old table is full, others do the growth with it or without: setting a slot twice
//! to the same node is one setting, and each step of the exchange is a CAS from a table that is used only once. Old
//! tables stay mapped, as somebody may still read them; all of them together are no larger than the last.

use crate::node::NodeCell;
use crate::sync::{AtomicBool, AtomicPtr, Ordering, fence};
use crate::table::{Claim, LAST_BITS, Table, print};

/// Number that no node has: the trie is full.
pub(crate) const NO_NODE: u32 = u32::MAX;

/// Where nodes and tables come from.
pub(crate) trait Memory {
    /// Node `id`, which was handed out before.
    fn node(&self, id: u32) -> &NodeCell;
    /// A zeroed node that nobody else has.
    fn new_node(&self) -> Option<u32>;
    /// Takes back a node that nobody has seen.
    fn give_back(&self, id: u32);
    /// An empty table of `1 << bits` slots that is never freed; null if there is no memory.
    fn new_table(&self, bits: u32) -> *mut Table;
}

/// A frame to insert.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) parent: u32,
    pub(crate) ra: u64,
    /// Module record of `ra`, 0 = none.
    pub(crate) module: u32,
}

pub(crate) struct Trie {
    current: AtomicPtr<Table>,
    next: AtomicPtr<Table>,
    growing: AtomicBool,
}

macro_rules! new_trie {
    () => {
        Trie {
            current: AtomicPtr::new(core::ptr::null_mut()),
            next: AtomicPtr::new(core::ptr::null_mut()),
            growing: AtomicBool::new(false),
        }
    };
}

impl Trie {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        new_trie!()
    }
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        new_trie!()
    }

    /// Makes the first table. False: no memory.
    pub(crate) fn init(&self, memory: &impl Memory, bits: u32) -> bool {
        let table = memory.new_table(bits);
        self.current.store(table, Ordering::Release);
        !table.is_null()
    }

    #[inline]
    fn table(&self) -> &Table {
        // SAFETY: set by `init`, which precedes every other call, and only ever replaced by another table; tables are
        // never freed.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// The living child of `parent` for `ra`, by the table.
    #[inline]
    pub(crate) fn find(&self, memory: &impl Memory, parent: u32, ra: u64) -> Option<u32> {
        self.table().find(print(parent, ra), |id| {
            let node = memory.node(id);
            node.stands_for(parent, ra) && !node.is_dead()
        })
    }

    /// Finds, revives or makes the child; [`NO_NODE`] if there is no room.
    pub(crate) fn insert(&self, memory: &impl Memory, frame: Frame) -> u32 {
        let Frame { parent, ra, module } = frame;
        let print = print(parent, ra);
        let known = self.table().find(print, |id| {
            let node = memory.node(id);
            node.stands_for(parent, ra)
                && (!node.is_dead() || module != 0 && node.module() == module)
        });
        if let Some(id) = known {
            let node = memory.node(id);
            if node.is_dead() {
                node.revive();
                memory.node(parent).show_child(ra, id);
            }
            return id;
        }
        let Some(id) = memory.new_node() else {
            return NO_NODE;
        };
        memory
            .node(id)
            .fill(parent, ra, module, memory.node(parent).depth() + 1);
        let id = self.publish(memory, print, frame, id);
        if id != NO_NODE {
            memory.node(parent).offer_child(ra, id);
        }
        id
    }

    /// Enters a filled node into the table; the answer is another node if somebody was faster.
    fn publish(&self, memory: &impl Memory, print: u32, frame: Frame, id: u32) -> u32 {
        let same = |other: u32| {
            let node = memory.node(other);
            node.stands_for(frame.parent, frame.ra) && !node.is_dead()
        };
        let mut seen = false;
        // Each round but the first means that the table grew meanwhile; there are few sizes.
        for _ in 0..=LAST_BITS {
            let table = self.table();
            let other = match table.claim(print, id, same) {
                Claim::Set => {
                    seen = true;
                    id
                }
                Claim::Found(other) => other,
                Claim::NoRoom if self.replace(memory, table) => continue,
                Claim::NoRoom if seen => id,
                Claim::NoRoom => NO_NODE,
            };
            if other != id {
                if !seen {
                    memory.give_back(id);
                }
                return other;
            }
            fence(Ordering::SeqCst);
            let next = self.next.load(Ordering::Acquire);
            if !next.is_null() {
                // SAFETY: a published table; tables are never freed.
                unsafe { &*next }.claim(print, id, |_| false);
            }
            if core::ptr::eq(table, self.table()) {
                if table.used.load(Ordering::Relaxed) > table.len() / 2 {
                    self.grow(memory, table);
                }
                return id;
            }
        }
        id
    }

    /// Doubles the table unless somebody else is at it.
    fn grow(&self, memory: &impl Memory, full: &Table) {
        if full.bits < LAST_BITS && !self.growing.swap(true, Ordering::Acquire) {
            self.replace(memory, full);
            self.growing.store(false, Ordering::Release);
        }
    }

    /// Replaces `old` by a larger table, alone or together with others. True: another table than `old` is current.
    fn replace(&self, memory: &impl Memory, old: &Table) -> bool {
        let moved = || !core::ptr::eq(old, self.table());
        let bits = old.bits + 1;
        if moved() || bits > LAST_BITS {
            return moved();
        }
        let mut new = self.next.load(Ordering::Acquire);
        // SAFETY: a published table; tables are never freed.
        if !new.is_null() && unsafe { (*new).bits } < bits {
            // Left over from the growth to `old`, which is over.
            let _ = self.next.compare_exchange(
                new,
                core::ptr::null_mut(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            new = core::ptr::null_mut();
        }
        if new.is_null() {
            new = memory.new_table(bits);
            if new.is_null() {
                return moved();
            }
            let none = core::ptr::null_mut();
            if let Err(other) =
                self.next
                    .compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire)
            {
                new = other;
            }
        }
        // SAFETY: as above.
        let target = unsafe { &*new };
        if target.bits != bits {
            return moved();
        }
        fence(Ordering::SeqCst);
        for index in 0..old.len() {
            let word = old.slot(index).load(Ordering::Acquire);
            if word != 0 {
                target.claim((word >> 32) as u32, word as u32, |_| false);
            }
        }
        let from = core::ptr::from_ref(old).cast_mut();
        let _ = self
            .current
            .compare_exchange(from, new, Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.next.compare_exchange(
            new,
            core::ptr::null_mut(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        moved()
    }

    /// In a forked child: a growth that another thread was at goes on nowhere.
    #[cfg(not(loom))]
    pub(crate) fn after_fork(&self) {
        self.next.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.growing.store(false, Ordering::Release);
    }
}
