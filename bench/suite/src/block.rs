//! Blocks of raw memory with an owner: the allocator's calls as the workloads need them, and nothing between.
//!
//! A `Vec` or a `Box` brings more than one call of the allocator into what is timed. Two words, so that it returns in registers.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error, realloc};
use std::hint::black_box;
use std::ptr::NonNull;

/// Owned memory of a size and an alignment. Dropping it frees it.
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    // size << 6 | log2(align)
    layout: usize,
}

// SAFETY: a block is owned memory without a tie to its thread.
unsafe impl Send for Block {}

impl Block {
    #[inline(always)]
    fn owned(start: *mut u8, layout: Layout) -> Self {
        let Some(start) = NonNull::new(black_box(start)) else {
            handle_alloc_error(layout)
        };
        let packed = layout.size() << 6 | layout.align().trailing_zeros() as usize;
        Block {
            start,
            layout: packed,
        }
    }

    #[inline(always)]
    fn layout(&self) -> Layout {
        // SAFETY: packed from a layout in `owned`; sizes of this suite are far below 2^58.
        unsafe { Layout::from_size_align_unchecked(self.layout >> 6, 1 << (self.layout & 63)) }
    }

    /// Allocates and writes the first byte.
    ///
    /// # Panics
    /// If the size is 0, the alignment no power of two, or memory is out.
    #[inline(always)]
    pub fn new(size: usize, align: usize) -> Self {
        let layout = checked(size, align);
        // SAFETY: the size is not 0.
        let block = Block::owned(unsafe { alloc(layout) }, layout);
        // SAFETY: the block has at least one byte.
        unsafe { block.start.write(1) };
        block
    }

    /// Allocates zeroed memory.
    ///
    /// # Panics
    /// As [`Block::new`].
    #[inline(always)]
    pub fn zeroed(size: usize, align: usize) -> Self {
        let layout = checked(size, align);
        // SAFETY: the size is not 0.
        Block::owned(unsafe { alloc_zeroed(layout) }, layout)
    }

    /// Changes the size by the allocator's realloc.
    ///
    /// # Panics
    /// As [`Block::new`].
    #[inline(always)]
    pub fn resize(&mut self, size: usize) {
        let (old, new) = (self.layout(), checked(size, 1 << (self.layout & 63)));
        // SAFETY: the block was allocated with `old`; the new size is not 0. The old pointer is forgotten just below.
        let start = unsafe { realloc(self.start.as_ptr(), old, size) };
        let grown = Block::owned(start, new);
        (self.start, self.layout) = (grown.start, grown.layout);
        std::mem::forget(grown);
    }

    /// Bytes that were asked for.
    #[inline]
    pub fn size(&self) -> usize {
        self.layout >> 6
    }

    /// The address.
    #[inline]
    pub fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// Writes a byte in each page.
    pub fn touch_pages(&mut self) {
        for at in (0..self.size()).step_by(4096) {
            // SAFETY: `at` is within the block, which is ours alone.
            unsafe { self.start.add(at).write_volatile(1) };
        }
    }

    /// The first byte. Set for blocks by `new`, zero by `zeroed`, kept by `resize`.
    pub fn first(&self) -> u8 {
        // SAFETY: both constructors leave the first byte initialised.
        unsafe { self.start.read() }
    }
}

#[inline(always)]
fn checked(size: usize, align: usize) -> Layout {
    assert!(size != 0);
    Layout::from_size_align(size, align).expect("a power of two, and not huge")
}

impl Drop for Block {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody else has it.
        unsafe { dealloc(self.start.as_ptr(), self.layout()) }
    }
}

/// Many blocks that need no memory but their own: each holds the one before in its first word, so that the list is not counted.
/// Sizes 8 to 65535, alignment 8.
#[derive(Debug, Default)]
pub struct Chain {
    // address | size << 48; 0 for none
    last: usize,
    /// Blocks.
    pub count: u64,
    /// Bytes asked for.
    pub bytes: u64,
}

impl Chain {
    /// Adds a block, whose memory is written.
    ///
    /// # Panics
    /// If its size or alignment is not one that a chain takes.
    pub fn push(&mut self, block: Block) {
        let (size, start) = (block.size(), block.start.as_ptr().expose_provenance());
        assert!((8..1 << 16).contains(&size) && block.layout & 63 == 3 && start >> 48 == 0);
        // SAFETY: 8 aligned bytes are there and ours.
        unsafe { block.start.cast::<usize>().write(self.last) };
        self.last = start | size << 48;
        self.count += 1;
        self.bytes += size as u64;
        std::mem::forget(block);
    }

    /// Takes the last block off.
    pub fn pop(&mut self) -> Option<Block> {
        let size = self.last >> 48;
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(
            self.last & ((1 << 48) - 1),
        ))?;
        let layout = size << 6 | 3;
        // SAFETY: `push` wrote the word there and exposed the address; the block it forgot is the one made anew here.
        self.last = unsafe { start.cast::<usize>().read() };
        self.count -= 1;
        self.bytes -= size as u64;
        Some(Block { start, layout })
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_size_and_alignment() {
        for align in [1, 8, 64, 4096] {
            let mut b = Block::new(100, align);
            assert_eq!((b.size(), b.address() % align, b.first()), (100, 0, 1));
            b.resize(100_000);
            assert_eq!((b.size(), b.address() % align, b.first()), (100_000, 0, 1));
            b.touch_pages();
            assert_eq!(Block::zeroed(5000, align).first(), 0);
        }
    }

    #[test]
    fn a_chain_gives_back_what_it_got() {
        let mut c = Chain::default();
        let at: Vec<usize> = (0..1000)
            .map(|i| {
                let b = Block::new(8 + i, 8);
                let at = b.address();
                c.push(b);
                at
            })
            .collect();
        assert_eq!((c.count, c.bytes), (1000, (0..1000).map(|i| 8 + i).sum()));
        for (i, at) in at.iter().enumerate().rev() {
            let b = c.pop().unwrap();
            assert_eq!((b.size(), b.address()), (8 + i, *at));
        }
        assert!(c.pop().is_none());
        assert_eq!((c.count, c.bytes), (0, 0));
    }
}
