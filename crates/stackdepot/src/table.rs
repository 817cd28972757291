//! One open-addressing hash table: (parent, return address) -> node number.
//!
//! Theory: a slot is one word, `print << 32 | node`, where `print` is 32 bits of the key's hash; 0 is empty. A slot is
//! set once by CAS and never cleared, so a probe sequence only ever grows, and two threads that insert the same key
//! meet at the same first empty slot: a table never holds a key twice. The home of a key is the top of its print, so
//! a larger table is filled from a smaller one without looking at nodes. A print that matches is only a hint: the
//! caller compares the node. Probing is bounded.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Longest probe sequence, in slots.
const PROBES: u32 = 256;
/// log2 of the slots of the first table.
pub(crate) const FIRST_BITS: u32 = 12;
/// log2 of the slots of the largest table.
pub(crate) const LAST_BITS: u32 = 22;

/// Bytes in front of the slots in a mapped table.
#[cfg(not(loom))]
pub(crate) const HEADER: usize = 64;

/// Header of a table. The slots are elsewhere, or behind it.
pub(crate) struct Table {
    pub(crate) bits: u32,
    /// Slots - 1.
    mask: u32,
    /// Slots set, about: what decides when to grow.
    pub(crate) used: AtomicU32,
    /// First of `1 << bits` slots.
    pub(crate) slots: *const AtomicU64,
}

/// What came of a try to set a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The slot is set.
    Set,
    /// The key, or this very number, is there already, as this node.
    Found(u32),
    /// No empty slot near enough.
    NoRoom,
}

/// 32 hash bits of a key: the top of a sum of two products.
#[inline]
pub(crate) fn print(parent: u32, ra: u64) -> u32 {
    let sum = ra
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(u64::from(parent).wrapping_mul(0xd6e8_feb8_6659_fd93));
    (sum >> 32) as u32
}

impl Table {
    /// A table over `1 << bits` (2 to 2^[`LAST_BITS`]) zeroed slots.
    pub(crate) fn new(bits: u32, slots: *const AtomicU64) -> Self {
        Self {
            bits,
            mask: (1 << bits) - 1,
            used: AtomicU32::new(0),
            slots,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    pub(crate) fn slot(&self, index: u32) -> &AtomicU64 {
        // SAFETY: `slots` points at `1 << bits` words that live as long as the table, and the mask keeps within.
        unsafe { &*self.slots.add((index & self.mask) as usize) }
    }

    #[inline]
    fn home(&self, print: u32) -> u32 {
        print >> (32 - self.bits)
    }

    /// Node with this print for which `is` holds.
    #[inline]
    pub(crate) fn find(&self, print: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let home = self.home(print);
        for step in 0..PROBES {
            let word = self.slot(home + step).load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            if (word >> 32) as u32 == print && is(word as u32) {
                return Some(word as u32);
            }
        }
        None
    }

    /// Sets the first empty slot on the way to `node`, unless `node` or one for which `is` holds comes first.
    pub(crate) fn claim(&self, print: u32, node: u32, is: impl Fn(u32) -> bool) -> Claim {
        let home = self.home(print);
        let new = u64::from(print) << 32 | u64::from(node);
        for step in 0..PROBES {
            let slot = self.slot(home + step);
            let mut word = slot.load(Ordering::Acquire);
            if word == 0 {
                match slot.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => {
                        self.used.fetch_add(1, Ordering::Relaxed);
                        return Claim::Set;
                    }
                    Err(other) => word = other,
                }
            }
            if word == new || (word >> 32) as u32 == print && is(word as u32) {
                return Claim::Found(word as u32);
            }
        }
        Claim::NoRoom
    }
}
