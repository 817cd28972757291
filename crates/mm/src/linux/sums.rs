//! Sums per index of this process, in memory that is mapped for them and no part of what they sum.

use super::{api, sys};
use core::mem::size_of;
use memledger_abi::{FIRST_TAG, INDEX_FOREIGN, SITE_BASE};

#[derive(Clone, Copy)]
struct Cell {
    bytes: u64,
    calls: u64,
}

/// Live (bytes, calls) of each index. Unmapped when dropped.
pub struct Sums {
    at: *mut Cell,
    tags: usize,
    len: usize,
}

/// Scans the ledger; `None` when no memory could be mapped. Allocates nothing.
pub fn sums() -> Option<Sums> {
    let tags = FIRST_TAG as usize + alloc_tag::runtime::tag_count() as usize;
    // Room for sites that are made meanwhile.
    let len = tags + alloc_tag::sites::depot().node_count() as usize + 4096;
    // SAFETY: a new mapping, zeroed, which is a valid array of cells.
    let at = unsafe {
        sys::map(
            0,
            len * size_of::<Cell>(),
            libc::PROT_READ | libc::PROT_WRITE,
            false,
        )
    };
    if at == 0 {
        return None;
    }
    let sums = Sums {
        at: at as *mut Cell,
        tags,
        len,
    };
    api::scan(|index, bytes| {
        let place = sums.place(index).unwrap_or(INDEX_FOREIGN as usize);
        // SAFETY: `place` is below `len`; nobody else has the mapping.
        unsafe {
            let cell = sums.at.add(place);
            (*cell).bytes += bytes;
            (*cell).calls += 1;
        }
    })?;
    Some(sums)
}

impl Sums {
    fn place(&self, index: u32) -> Option<usize> {
        if (index as usize) < self.tags {
            return Some(index as usize);
        }
        let site = index.checked_sub(SITE_BASE)? as usize;
        (site < self.len - self.tags).then_some(self.tags + site)
    }

    /// (index, bytes, calls) of every index with live memory, in rising order.
    pub fn rows(&self) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        (0..self.len).filter_map(|i| {
            // SAFETY: below `len`.
            let cell = unsafe { *self.at.add(i) };
            let index = if i < self.tags {
                i as u32
            } else {
                SITE_BASE + (i - self.tags) as u32
            };
            (cell.calls > 0).then_some((index, cell.bytes, cell.calls))
        })
    }
}

impl Drop for Sums {
    fn drop(&mut self) {
        // SAFETY: the mapping of `sums`, used no more.
        unsafe {
            sys::syscall(
                libc::SYS_munmap,
                [self.at as usize, self.len * size_of::<Cell>(), 0, 0, 0, 0],
            )
        };
    }
}
