//! Memory that is only ever added to, and one copy of each string in it.
//!
//! Memory comes in chunks from the client. Equal strings are found by a small direct-mapped cache of what was copied last:
//! the tags of a file follow each other, so nearly every repetition hits, at a fixed cost and with nothing to grow.

use core::mem::{align_of, size_of};
use core::ptr::NonNull;

/// Bytes asked from the client at a time.
const CHUNK: usize = 64 * 1024;
/// Slots of the cache.
const SLOTS: usize = 512;
/// Longest string kept, in bytes; longer ones are cut.
const LONGEST: usize = 4096;

pub(crate) struct Arena {
    memory: fn(usize) -> Option<NonNull<u8>>,
    next: *mut u8,
    left: usize,
    /// Bytes taken from the client.
    taken: usize,
    cache: [&'static [u8]; SLOTS],
}

// SAFETY: `next` points to memory that nobody else has.
unsafe impl Send for Arena {}

impl Arena {
    pub(crate) const fn new(memory: fn(usize) -> Option<NonNull<u8>>) -> Self {
        Arena {
            memory,
            next: core::ptr::null_mut(),
            left: 0,
            taken: 0,
            cache: [&[]; SLOTS],
        }
    }

    /// Bytes taken from the client so far.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Leaves the current chunk alone: it may be half-way through a change. What was copied stays.
    pub(crate) fn forget_chunk(&mut self) {
        self.next = core::ptr::null_mut();
        self.left = 0;
        self.cache = [&[]; SLOTS];
    }

    /// `bytes` (at most `CHUNK / 2`) aligned to `align` (at most 64).
    fn bytes(&mut self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let mut skip = self.next.align_offset(align);
        if self.next.is_null() || skip.saturating_add(bytes) > self.left {
            self.next = (self.memory)(CHUNK)?.as_ptr();
            self.taken += CHUNK;
            self.left = CHUNK;
            skip = 0;
        }
        // SAFETY: `skip + bytes <= left`, the bytes behind `next` that belong to the chunk.
        let (start, next) = unsafe { (self.next.add(skip), self.next.add(skip + bytes)) };
        self.next = next;
        self.left -= skip + bytes;
        NonNull::new(start)
    }

    /// Moves a value to the arena, for ever.
    pub(crate) fn put<T: Send>(&mut self, value: T) -> Option<&'static mut T> {
        const { assert!(size_of::<T>() <= CHUNK / 2 && align_of::<T>() <= 64) };
        let place = self.bytes(size_of::<T>(), align_of::<T>())?.cast::<T>();
        // SAFETY: fresh memory of the size and alignment of `T`, handed out once and never taken back.
        unsafe {
            place.write(value);
            Some(&mut *place.as_ptr())
        }
    }

    /// A copy of the bytes, shared with equal strings copied before. Cut to [`LONGEST`].
    pub(crate) fn intern(&mut self, string: &[u8]) -> Option<&'static [u8]> {
        let string = &string[..string.len().min(LONGEST)];
        if string.is_empty() {
            return Some(&[]);
        }
        let slot = hash(string) as usize % SLOTS;
        if self.cache[slot] == string {
            return Some(self.cache[slot]);
        }
        let place = self.bytes(string.len(), 1)?.as_ptr();
        // SAFETY: `place` has room for `string`, is not part of it, and is never written again.
        let copy = unsafe {
            place.copy_from_nonoverlapping(string.as_ptr(), string.len());
            core::slice::from_raw_parts(place, string.len())
        };
        self.cache[slot] = copy;
        Some(copy)
    }

    /// As [`Arena::intern`]; a string that is too long is cut between characters.
    pub(crate) fn intern_str(&mut self, string: &str) -> Option<&'static str> {
        let copy = self.intern(cut(string).as_bytes())?;
        // SAFETY: a copy of a `&str` that `intern` had no need to cut.
        Some(unsafe { core::str::from_utf8_unchecked(copy) })
    }
}

/// The part of a string that is kept.
pub(crate) fn cut(string: &str) -> &str {
    let mut end = string.len().min(LONGEST);
    while !string.is_char_boundary(end) {
        end -= 1;
    }
    &string[..end]
}

/// FNV-1a.
fn hash(string: &[u8]) -> u64 {
    string.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    fn memory(bytes: usize) -> Option<NonNull<u8>> {
        let layout = core::alloc::Layout::from_size_align(bytes, 64).ok()?;
        // SAFETY: the size is not 0.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
    }

    #[test]
    fn equal_strings_are_copied_once() {
        let mut arena = Arena::new(memory);
        let first = arena.intern(b"src/lib.rs").unwrap();
        let other = arena.intern(b"src/main.rs").unwrap();
        let again = arena.intern(b"src/lib.rs").unwrap();
        assert!(core::ptr::eq(first, again));
        assert_eq!((first, other), (&b"src/lib.rs"[..], &b"src/main.rs"[..]));
        assert_eq!(arena.taken(), CHUNK);
    }

    #[test]
    fn long_strings_are_cut_between_characters() {
        let mut arena = Arena::new(memory);
        let long = std::format!("x{}", "ä".repeat(LONGEST));
        let copy = arena.intern_str(&long).unwrap();
        assert_eq!(copy.len(), LONGEST - 1);
        assert!(long.starts_with(copy));
    }

    #[test]
    fn chunks_follow_each_other() {
        let mut arena = Arena::new(memory);
        let mut all = std::vec::Vec::new();
        for i in 0..2000_u32 {
            let text = std::format!("{i:0100}");
            all.push((arena.intern_str(&text).unwrap(), text));
            assert_eq!(*arena.put(u64::from(i)).unwrap(), u64::from(i));
        }
        assert!(all.iter().all(|(copy, text)| copy == text));
        assert!(arena.taken() >= 3 * CHUNK);
    }
}
