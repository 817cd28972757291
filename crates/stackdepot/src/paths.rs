//! Whole walks that a thread has made before.
//!
//! Theory: where the rules of all frames count from rsp, the places of the return addresses are fixed distances from the
//! first one, and the return addresses decide the walk: if the words at these distances are the same, so is its end.
//! So one line of memory with the addresses, the distances and the node stands for a walk that else touches a node
//! and perhaps a table slot for each frame, and its loads do not wait for one another. A line is found by the first
//! return address and the stack pointer: the same code called the same way mostly runs at the same depth of the
//! stack. What is not found, is walked.
//!
//! A line holds for one *generation*: `modules_changed` begins a new one after it has marked what is gone. A table
//! belongs to one thread and its signal handlers; `turn` is odd while a line is written and counts the writings, so
//! that whoever was interrupted by a handler that wrote takes the line for no match.
//!
//! ```text
//! line:   generation u32 | node u32 | frames u32 | - u32 | frames x return address u64 | (frames - 1) x words from sp u16
//! table:  header of 64 bytes, then lines of the same size, a multiple of 64 bytes
//! ```

use crate::depot::View;
use crate::platform::Platform;
use crate::rule::{END, words_from_rsp};
use crate::trie::Memory;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};

/// Bytes of a table, header not included, at most.
const ROOM: usize = 16 << 10;
/// Most frames of a line.
const MOST: u32 = 24;
/// Bytes before the first line, and of a line before its return addresses.
const HEADER: usize = 64;
const FIXED: usize = 16;

/// A thread's table. Made of [`Paths::bytes`] zeroed bytes, aligned to 64, by [`Paths::begin`].
#[repr(C, align(64))]
pub struct Paths {
    turn: AtomicU32,
    /// Frames of a walk.
    depth: u32,
    /// Bytes of a line.
    line: u32,
    /// Of a hash, to the number of a line.
    shift: u32,
    /// Walks that were not kept because their lines were taken.
    passed: AtomicU32,
}

/// Start of a line.
#[repr(C)]
struct Line {
    generation: AtomicU32,
    node: AtomicU32,
    frames: AtomicU32,
    pad: u32,
}

const fn line_bytes(depth: u32) -> usize {
    (FIXED + depth as usize * 8 + (depth as usize - 1) * 2).next_multiple_of(64)
}

const fn lines(depth: u32) -> usize {
    let n = ROOM / line_bytes(depth);
    1 << n.ilog2()
}

impl Paths {
    /// Bytes of a table for walks of `depth` frames; `None`: such walks are not kept.
    pub const fn bytes(depth: u32) -> Option<usize> {
        if depth == 0 || depth > MOST {
            return None;
        }
        Some(HEADER + lines(depth) * line_bytes(depth))
    }

    /// Makes an empty table.
    ///
    /// # Safety
    /// At `memory` are [`Paths::bytes`]`(depth)` (which is some) zeroed bytes, aligned to 64, for this table alone and for ever.
    pub unsafe fn begin(memory: NonNull<u8>, depth: u32) -> NonNull<Paths> {
        let paths = memory.cast::<Paths>();
        // SAFETY: by the contract there is room for a header; zeroed lines are empty ones (generation 0 is never current).
        unsafe {
            paths.write(Paths {
                turn: AtomicU32::new(0),
                depth,
                line: line_bytes(depth) as u32,
                shift: 64 - lines(depth).ilog2(),
                passed: AtomicU32::new(0),
            });
        }
        paths
    }

    /// Frames of the walks that it keeps.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    #[inline(always)]
    fn line(&self, sp: usize, ra: u64) -> &Line {
        let hash = (ra ^ (sp as u64) << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        // SAFETY: the hash is below the number of lines, which follow the header.
        unsafe {
            &*core::ptr::from_ref(self)
                .byte_add(HEADER + hash as usize * self.line as usize)
                .cast()
        }
    }

    /// The node of a walk from `sp` made before.
    ///
    /// # Safety
    /// All words from `sp` to `last` are readable; `sp` is 8-aligned.
    #[inline(always)]
    pub(crate) unsafe fn find(&self, generation: u32, sp: usize, last: usize) -> Option<u32> {
        let turn = self.turn.load(Relaxed);
        compiler_fence(SeqCst);
        // SAFETY: by the contract. Volatile: the stack belongs to other code.
        let read =
            |at: usize| unsafe { core::ptr::with_exposed_provenance::<u64>(at).read_volatile() };
        let ra = read(sp);
        let line = self.line(sp, ra);
        // SAFETY: a line has room for `depth` return addresses and as many distances after its fixed part.
        let ras = unsafe { core::ptr::from_ref(line).add(1).cast::<u64>() };
        // SAFETY: as above.
        let words = unsafe { ras.add(self.depth as usize).cast::<u16>() };
        // SAFETY: inside the line; a handler may write it meanwhile, which `turn` tells.
        let same =
            unsafe { ras.read_volatile() } == ra && line.generation.load(Relaxed) == generation;
        if !same {
            return None;
        }
        for i in 1..line.frames.load(Relaxed) as usize {
            // SAFETY: `frames` is `depth` at most; as above.
            let (expected, words) =
                unsafe { (ras.add(i).read_volatile(), words.add(i - 1).read_volatile()) };
            let at = sp + usize::from(words) * 8;
            if at > last || read(at) != expected {
                return None;
            }
        }
        let node = line.node.load(Relaxed);
        compiler_fence(SeqCst);
        (self.turn.load(Relaxed) == turn).then_some(node)
    }

    /// Whether the line for a walk from `sp` shall stay as it is: where more walks are made than there are lines, most lines
    /// would be written for nothing, so only one walk of eight replaces another.
    #[inline(always)]
    fn taken(&self, generation: u32, sp: usize) -> bool {
        // SAFETY: the caller's walk has read that word.
        let ra = unsafe { core::ptr::with_exposed_provenance::<u64>(sp).read_volatile() };
        if self.line(sp, ra).generation.load(Relaxed) != generation {
            return false;
        }
        let passed = self.passed.load(Relaxed).wrapping_add(1);
        self.passed.store(passed, Relaxed);
        passed & 7 != 0
    }

    /// Keeps a walk from `sp` that came to `node`, if its places are fixed.
    ///
    /// `sp` is the start of a walk that was just made, so it is readable.
    #[inline]
    pub(crate) fn keep<P: Platform>(
        &self,
        view: &View<'_, P>,
        generation: u32,
        sp: usize,
        node: u32,
    ) {
        if self.taken(generation, sp) {
            return;
        }
        let mut frames = [(0, 0); MOST as usize];
        let Some(frames) = fixed_places(view, self.depth, node, &mut frames) else {
            return;
        };
        let turn = self.turn.load(Relaxed);
        if turn & 1 != 0 {
            return;
        }
        self.turn.store(turn | 1, Relaxed);
        compiler_fence(SeqCst);
        let line = self.line(sp, frames[0].0);
        line.generation.store(0, Relaxed);
        line.node.store(node, Relaxed);
        line.frames.store(frames.len() as u32, Relaxed);
        // SAFETY: a line has room for `depth` return addresses and as many distances; the table is this thread's, and `turn`
        // keeps its handlers from writing.
        unsafe {
            let ras = core::ptr::from_ref(line).add(1).cast::<u64>().cast_mut();
            let words = ras.add(self.depth as usize).cast::<u16>();
            for (i, &(ra, place)) in frames.iter().enumerate() {
                ras.add(i).write_volatile(ra);
                if i > 0 {
                    words.add(i - 1).write_volatile(place);
                }
            }
        }
        compiler_fence(SeqCst);
        line.generation.store(generation, Relaxed);
        self.turn.store((turn | 1).wrapping_add(1), Relaxed);
    }
}

/// The frames of a node, innermost first, as return address and distance of its place from the first one, in words. `None`:
/// the distances are not fixed or too large, or a walk of `depth` frames may go on from here.
fn fixed_places<'f, P: Platform>(
    view: &View<'_, P>,
    depth: u32,
    node: u32,
    frames: &'f mut [(u64, u16); MOST as usize],
) -> Option<&'f [(u64, u16)]> {
    let last = view.node(node);
    let count = last.depth();
    if count == 0 || count > depth || count < depth && last.rule.load(Relaxed) != END {
        return None;
    }
    let frames = frames.get_mut(..count as usize)?;
    // From the outermost frame inwards: what each rule steps over; the last rule leads nowhere.
    let (mut id, mut outermost) = (node, true);
    for frame in frames.iter_mut().rev() {
        let node = view.node(id);
        let step = if outermost {
            0
        } else {
            words_from_rsp(node.rule.load(Relaxed))?
        };
        *frame = (node.ra(), step);
        (id, outermost) = (node.parent.load(Relaxed), false);
    }
    let mut place = 0u16;
    for frame in frames.iter_mut() {
        let step = core::mem::replace(&mut frame.1, place);
        place = place.checked_add(step)?;
    }
    Some(frames)
}
