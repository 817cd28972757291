//! Workloads of one thread that do little but allocate and free.
//!
//! A workload is made once and then run for a number of operations; it says how many it really did. Sizes 8..=240 in steps of
//! 8 are those of the loop that the kernel's own figures of memory allocation profiling come from.

use crate::block::Block;
use crate::{Random, hooked, threads};
use std::hint::black_box;

/// Runs about so many operations, and says how many.
pub type Workload = Box<dyn FnMut(u64) -> u64>;

/// The workload of a name.
pub fn workload(name: &str) -> Option<Workload> {
    Some(match name {
        "pair" => Box::new(pair),
        "calls" => calls(),
        "batch" => batch(),
        "live100k" => live(100_000),
        "live5m" => live(5_000_000),
        "realloc" => Box::new(|ops| grow(ops, false)),
        "regrow" => Box::new(|ops| grow(ops, true)),
        "page" => Box::new(|ops| pages(ops, 4 << 10, 1 << 20)),
        "large" => Box::new(|ops| pages(ops, 2 << 20, 4 << 20)),
        "aligned" => aligned(),
        "calloc" => Box::new(calloc),
        _ => return threads::workload(name),
    })
}

/// Calls `f` below `depth` frames that stay on the stack, as there are in a real program.
#[inline(never)]
pub fn below_frames<R>(depth: u32, f: &mut dyn FnMut() -> R) -> R {
    let r = if depth == 0 {
        f()
    } else {
        below_frames(depth - 1, f)
    };
    black_box(());
    r
}

/// Allocate and free, one after the other, for each size: an operation is a pair.
#[inline(never)]
pub fn pair(ops: u64) -> u64 {
    let n = (ops / 30).max(1);
    for size in (8..=240).step_by(8) {
        for _ in 0..n {
            drop(hooked!(Block::new(black_box(size), 8)));
        }
    }
    n * 30
}

macro_rules! leaf {
    ($($name:ident)*) => { $(
        #[inline(never)]
        fn $name(size: usize, _path: usize) -> Block {
            let b = hooked!(Block::new(size, 8));
            black_box(());
            b
        }
    )* };
}
macro_rules! layer {
    ($($name:ident: $a:ident $b:ident;)*) => { $(
        #[inline(never)]
        fn $name(size: usize, path: usize) -> Block {
            let b = if path & 1 == 0 { $a(size, path >> 1) } else { $b(size, path >> 1) };
            black_box(());
            b
        }
    )* };
}
leaf!(leaf0 leaf1);
layer! {
    third0: leaf0 leaf1; third1: leaf1 leaf0;
    second0: third0 third1; second1: third1 third0;
    first0: second0 second1; first1: second1 second0;
}

/// As `pair`, but each allocation is at the end of its own chain of calls, one of 16: what looks at the stack cannot know it
/// from the time before.
fn calls() -> Workload {
    let mut random = Random::new(5);
    let paths: Vec<u8> = (0..1024).map(|_| random.below(16) as u8).collect();
    Box::new(move |ops| {
        for i in 0..ops as usize {
            let (path, size) = (usize::from(paths[i % 1024]), 8 + i % 30 * 8);
            let b = if path & 8 == 0 {
                first0(size, path)
            } else {
                first1(size, path)
            };
            drop(b);
        }
        ops
    })
}

/// 1000 blocks, then all of them freed: in order, backwards, and shuffled by turns.
fn batch() -> Workload {
    let mut random = Random::new(7);
    let sizes: Vec<usize> = (0..1000).map(|_| 8 + random.below(30) * 8).collect();
    let mut order: Vec<usize> = (0..1000).collect();
    for i in (1..1000).rev() {
        order.swap(i, random.below(i + 1));
    }
    let mut held: Vec<Option<Block>> = (0..1000).map(|_| None).collect();
    Box::new(move |ops| {
        let rounds = (ops / 1000).max(1);
        for round in 0..rounds {
            for (slot, &size) in held.iter_mut().zip(&sizes) {
                *slot = Some(hooked!(Block::new(size, 8)));
            }
            match round % 3 {
                0 => held.iter_mut().for_each(|slot| *slot = None),
                1 => held.iter_mut().rev().for_each(|slot| *slot = None),
                _ => order.iter().for_each(|&i| held[i] = None),
            }
        }
        rounds * 1000
    })
}

/// Sizes as programs have them: most are small, a few of some kilobytes. 8..=4096.
#[inline]
pub fn mixed_size(random: &mut Random) -> usize {
    let r = random.next();
    match r & 15 {
        0..8 => 8 + (r >> 8) as usize % 57,
        8..13 => 64 + (r >> 8) as usize % 193,
        13..15 => 256 + (r >> 8) as usize % 769,
        _ => 1024 + (r >> 8) as usize % 3073,
    }
}

/// A live set of `n` blocks of mixed sizes; an operation frees one at random and puts another in its place.
fn live(n: usize) -> Workload {
    let mut random = Random::new(11);
    let small = n > 1_000_000; // 5 million mixed blocks would take more memory than a small machine has
    let size = move |r: &mut Random| {
        if small {
            8 + r.below(233)
        } else {
            mixed_size(r)
        }
    };
    let mut set: Vec<Block> = (0..n)
        .map(|_| hooked!(Block::new(size(&mut random), 8)))
        .collect();
    Box::new(move |ops| {
        for _ in 0..ops {
            let at = random.below(n);
            let size = size(&mut random);
            // The old block goes when the new one is there, as when a value is replaced.
            set[at] = hooked!(Block::new(size, 8));
        }
        ops
    })
}

/// Grows a block from 16 bytes by half its size to 64 KiB. An operation is a realloc. `among`: each time a small block is put
/// behind it and stays until the end, so that it cannot simply get longer, as it can where it is the last one.
fn grow(ops: u64, among: bool) -> u64 {
    let mut done = 0;
    let mut neighbours: Vec<Block> = Vec::with_capacity(32);
    while done < ops {
        let mut block = hooked!(Block::new(16, 8));
        let mut size = 16;
        while size < 64 << 10 {
            size += size / 2;
            hooked!(block.resize(size));
            if among {
                neighbours.push(hooked!(Block::new(48, 8)));
            }
            done += 1;
        }
        neighbours.clear();
        drop(black_box(block));
    }
    done
}

/// Pairs of blocks of whole pages, sizes from `least` to `most` by doubling, with the last four held. The first byte is written.
fn pages(ops: u64, least: usize, most: usize) -> u64 {
    let steps = (most / least).trailing_zeros() as u64 + 1;
    let n = (ops / steps).max(1);
    let mut held: [Option<Block>; 4] = [const { None }; 4];
    for k in 0..n {
        for step in 0..steps {
            held[(k * steps + step) as usize % 4] = Some(hooked!(Block::new(least << step, 8)));
        }
    }
    n * steps
}

/// Alignments of 16 to 4096, sizes of 8 to 2000, 64 of them held.
fn aligned() -> Workload {
    let mut random = Random::new(13);
    let kinds: Vec<(usize, usize)> = (0..1024)
        .map(|_| (8 + random.below(1993), 16 << random.below(9)))
        .collect();
    let mut held: Vec<Option<Block>> = (0..64).map(|_| None).collect();
    Box::new(move |ops| {
        for i in 0..ops as usize {
            let (size, align) = kinds[i % 1024];
            held[i * 7 % 64] = Some(hooked!(Block::new(size, align)));
        }
        ops
    })
}

/// Zeroed blocks of 8 to 4096 bytes, by turns.
fn calloc(ops: u64) -> u64 {
    for i in 0..ops as usize {
        let size = 8 << (i % 10);
        let b = hooked!(Block::zeroed(black_box(size), 8));
        debug_assert_eq!(b.first(), 0);
        drop(black_box(b));
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_does_about_what_it_is_asked() {
        for name in [
            "pair", "calls", "batch", "live100k", "realloc", "regrow", "page", "large", "aligned",
            "calloc", "pair2", "prodcons", "larson", "xmalloc", "threads",
        ] {
            let mut w = workload(name).unwrap_or_else(|| panic!("{name} is known"));
            let done = below_frames(20, &mut || w(6000));
            assert!((3000..=12_000).contains(&done), "{name}: {done}");
        }
        assert!(workload("nothing").is_none());
    }

    #[test]
    fn sizes_are_in_range() {
        let mut r = Random::new(1);
        let sizes: Vec<usize> = (0..10_000).map(|_| mixed_size(&mut r)).collect();
        assert_eq!(
            (sizes.iter().min(), sizes.iter().max().map(|m| *m > 3000)),
            (Some(&8), Some(true))
        );
        assert!(sizes.iter().all(|s| (8..=4096).contains(s)));
    }
}
