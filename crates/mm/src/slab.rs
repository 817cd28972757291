//! A slab: a run cut into slots of one class. Slots begin at the start of the run (so a slot whose size is a multiple of a
//! power of two is aligned to it); at the end of the run stand the bitmap of free slots and the cells:
//!
//! ```text
//! | slot 0 | slot 1 | ... | slot n-1 | left over | bitmap n/8 | colour | cells 4n |
//! ```
//! The cells share the slab's pages and go back to the system with them. *Colour*: the cells' place differs from slab to slab
//! by a multiple of 64 bytes, else the hot cells of all slabs would compete for the same lines of the L1 cache.

use crate::arena::{Arena, UNIT};
use crate::class::{size_of_class, units_of_class};
use crate::heap::Entry;
use crate::platform::Platform;
use crate::unit::{Unit, get, set};
use core::sync::atomic::{AtomicU64, Ordering};
use memledger_abi::{KIND_CONTINUED, KIND_SLAB};

/// Bytes kept for colours in each slab.
const COLOUR_ROOM: usize = 256;

/// How a slab of a class is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Slots.
    pub slots: u32,
    /// Bytes from the start of the run to the bitmap.
    pub bitmap: usize,
    /// Bytes from the start of the run to the cells, without the colour.
    pub cells: usize,
    /// Bytes by which the cells may be moved down.
    pub room: usize,
}

/// The shape of a slab of `class` whose cells have `cell` bytes (0 = none).
pub const fn shape(class: usize, cell: usize) -> Shape {
    let bytes = units_of_class(class) as usize * UNIT;
    cut(size_of_class(class), bytes, cell, usize::MAX)
}

/// The shape of a slab of `bytes` bytes with slots of `size`, `most` of them at the most, whose cells have `cell` bytes (0 = none).
pub const fn cut(size: usize, bytes: usize, cell: usize, most: usize) -> Shape {
    // The bitmap is whole words: 8 bytes more in the worst case. Classes of few slots cannot afford the colour's room.
    let room = if size <= 512 { COLOUR_ROOM } else { 0 };
    let mut slots = (bytes - room) * 8 / (size * 8 + cell * 8 + 1);
    if slots > most {
        slots = most;
    }
    loop {
        let words = slots.div_ceil(64);
        let used = slots * size + words * 8 + slots * cell;
        if used + 7 + room <= bytes {
            let cells = bytes - slots * cell;
            // What is left over colours, too.
            let spare = (bytes - used - 7) / 64 * 64;
            let spare = if spare > 1024 { 1024 } else { spare };
            let cells = cells / 8 * 8;
            return Shape {
                slots: slots as u32,
                bitmap: cells - spare - words * 8,
                cells,
                room: spare,
            };
        }
        slots -= 1;
    }
}

/// `floor(2^64 / size) + 1`: the high half of its product with an offset is the slot's number, and the low half is below it
/// exactly for offsets that are multiples of `size` (offset below 2^32, size below 2^16: the error is too small to matter).
pub const fn reciprocal(size: usize) -> u64 {
    (u64::MAX / size as u64) + 1
}

/// The slot that an offset is in, and whether it is the slot's first byte.
#[inline(always)]
pub fn locate(offset: usize, recip: u64) -> (usize, bool) {
    let product = offset as u128 * recip as u128;
    ((product >> 64) as usize, (product as u64) < recip)
}

/// How a slab is cut, and what its records say.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Bytes of a slot.
    pub size: usize,
    /// Units of the slab.
    pub units: u32,
    /// `UnitMeta::class`.
    pub class: u8,
    /// `UnitMeta::recip`.
    pub recip: u64,
    /// `UnitMeta::flags`.
    pub flags: u16,
    /// The shape that these give.
    pub shape: Shape,
}

/// Makes the run that begins at `first` a slab of `class`; all its slots are free.
pub fn create<P: Platform>(arena: &Arena<P>, first: u32, clean: bool, class: usize, cell: usize) {
    let cut = Cut {
        size: size_of_class(class),
        units: units_of_class(class),
        class: class as u8,
        recip: reciprocal(size_of_class(class)),
        flags: 0,
        shape: shape(class, cell),
    };
    create_cut(arena, first, clean, &cut, cell);
}

/// Makes the run that begins at `first` a slab as `cut` says; all its slots are free.
pub fn create_cut<P: Platform>(arena: &Arena<P>, first: u32, clean: bool, cut: &Cut, cell: usize) {
    let (shape, n) = (cut.shape, cut.units);
    let start = arena.address(first);
    let colour = if shape.room == 0 {
        0
    } else {
        (first as usize * 5 * 64) % (shape.room + 64)
    };
    let cells = if cell == 0 {
        0
    } else {
        start + shape.cells - colour
    };
    let bitmap = start + shape.bitmap;
    let words = (shape.slots as usize).div_ceil(64);
    if !clean && cell != 0 {
        // SAFETY: the run is committed and nobody else's; the range lies inside it by `shape`.
        unsafe { core::ptr::write_bytes(cells as *mut u8, 0, shape.slots as usize * cell) };
    }
    for w in 0..words {
        let left = shape.slots as usize - w * 64;
        let bits = if left >= 64 {
            u64::MAX
        } else {
            (1 << left) - 1
        };
        // SAFETY: as above; `bitmap` is a multiple of 8.
        unsafe { (bitmap as *mut u64).add(w).write(bits) };
    }
    let cold = arena.cold(first);
    set!(cold.bitmap, bitmap as u64);
    set!(cold.free_slots, shape.slots);
    set!(cold.hint, 0);
    set!(cold.next, 0);
    set!(cold.prev, 0);
    for u in first..first + n {
        arena.hot(u).change(|h: &Unit| {
            set!(h.start, start as u64);
            set!(h.recip, cut.recip);
            set!(h.cells, cells as u64);
            set!(h.bytes, cut.size as u64);
            set!(h.slots, shape.slots);
            set!(h.class, cut.class);
            set!(h.flags, cut.flags);
            set!(h.back, u - first);
            set!(h.units, n);
            set!(
                h.kind,
                if u == first {
                    KIND_SLAB
                } else {
                    KIND_CONTINUED
                }
            );
        });
    }
}

#[inline]
fn word(bitmap: usize, w: usize) -> &'static AtomicU64 {
    // SAFETY: `bitmap` is the address of a slab's bitmap, 8-aligned and inside memory that stays mapped; `w` is below its
    // number of words. Changed only under the class's lock.
    unsafe { &*(bitmap as *const AtomicU64).add(w) }
}

/// Moves up to `want` free slots of the slab to `out`, lowest address last, so that they are popped in rising order.
/// The class's lock is held. Returns how many.
///
/// # Safety
/// `out` has room for `want` entries; `first` is the first unit of a slab.
pub unsafe fn take_slots<P: Platform>(
    arena: &Arena<P>,
    first: u32,
    out: *mut Entry,
    want: usize,
    cell: usize,
) -> usize {
    let (hot, cold) = (arena.hot(first), arena.cold(first));
    let (start, cells, size) = (
        get!(hot.start) as usize,
        get!(hot.cells) as usize,
        get!(hot.bytes) as usize,
    );
    let words = (get!(hot.slots) as usize).div_ceil(64);
    let bitmap = get!(cold.bitmap) as usize;
    let n = want.min(get!(cold.free_slots) as usize);
    let mut got = 0;
    let mut w = get!(cold.hint) as usize;
    while got < n && w < words {
        let mut bits = get!(word(bitmap, w));
        while bits != 0 && got < n {
            let slot = w * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            let cell_at = if cells == 0 { 0 } else { cells + slot * cell };
            got += 1;
            // SAFETY: `n - got` is below `want`, for which the caller vouches.
            unsafe {
                out.add(n - got).write(Entry {
                    slot: start + slot * size,
                    cell: cell_at,
                })
            };
        }
        set!(word(bitmap, w), bits);
        if bits != 0 {
            break;
        }
        w += 1;
    }
    set!(cold.hint, w as u32);
    cold.free_slots.fetch_sub(got as u32, Ordering::Relaxed);
    debug_assert!(got == n);
    got
}

/// Puts one slot back. The class's lock is held. `None` if it is free already (double free), else the number of free slots.
pub fn put_slot<P: Platform>(arena: &Arena<P>, first: u32, slot_address: usize) -> Option<u32> {
    let hot = arena.hot(first);
    let (slot, _) = locate(slot_address - get!(hot.start) as usize, get!(hot.recip));
    put_slot_number(arena, first, slot)
}

/// As [`put_slot`], by the slot's number.
pub fn put_slot_number<P: Platform>(arena: &Arena<P>, first: u32, slot: usize) -> Option<u32> {
    let cold = arena.cold(first);
    let word = word(get!(cold.bitmap) as usize, slot / 64);
    let bit = 1u64 << (slot % 64);
    let old = get!(word);
    if old & bit != 0 {
        return None;
    }
    set!(word, old | bit);
    if (slot / 64) < get!(cold.hint) as usize {
        set!(cold.hint, (slot / 64) as u32);
    }
    let free = get!(cold.free_slots) + 1;
    set!(cold.free_slots, free);
    Some(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::CLASSES;

    #[test]
    fn shapes_do_not_overlap_and_waste_little() {
        for cell in [0, 2, 4] {
            for class in 0..CLASSES {
                let s = shape(class, cell);
                let (size, bytes) = (size_of_class(class), units_of_class(class) as usize * UNIT);
                let slots = s.slots as usize;
                assert!(slots >= 15, "class {class}");
                assert!(
                    slots * size <= s.bitmap,
                    "class {class}: slots reach the bitmap"
                );
                assert!(
                    s.bitmap + slots.div_ceil(64) * 8 <= s.cells - s.room,
                    "class {class}: bitmap reaches the cells"
                );
                assert!(s.cells + slots * cell <= bytes);
                assert!(s.bitmap.is_multiple_of(8) && s.cells.is_multiple_of(4));
                let overhead = bytes - slots * (size + cell);
                assert!(
                    overhead <= bytes / 32 + size,
                    "class {class} size {size}: {overhead} of {bytes}"
                );
            }
        }
    }

    #[test]
    fn locate_is_exact_for_every_offset() {
        for class in 0..CLASSES {
            let (size, slots) = (size_of_class(class), shape(class, 4).slots as usize);
            let r = reciprocal(size);
            for slot in 0..slots {
                assert_eq!(locate(slot * size, r), (slot, true));
                for inside in [1, 7, 8, size / 2, size - 1]
                    .into_iter()
                    .filter(|&i| i < size)
                {
                    assert_eq!(locate(slot * size + inside, r), (slot, false));
                }
            }
        }
    }
}
