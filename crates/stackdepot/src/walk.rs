//! The walk: unwinding, hashing and look-up in one.
//!
//! Theory: the trie's node for a frame holds the way out of that frame. So a walk is: read the return address, find
//! the child of the current node for it, apply the child's rule, which gives the place of the next return address.
//! Frames seen before cost a compare (inline child) or a probe, then a load or two of stack; only a new node asks the
//! loader and reads unwind tables. The rule of a node is read when a walk first has to leave it, so the outermost
//! node of a walk never needs one.

use crate::bounds::StackBounds;
use crate::cfi;
use crate::modules::read_mapped;
use crate::node::NodeCell;
use crate::paths::Paths;
use crate::platform::{Object, Platform};
use crate::rule::{Cursor, GUESS, KIND_GUESS, Step, step};
use crate::trie::{Frame, Memory, NO_NODE};
use crate::{Depot, View};
use core::sync::atomic::Ordering;

/// Not a node: the return address was refused, the walk ends before it.
const REFUSED: u32 = NO_NODE - 1;
/// Lowest return address that can be one.
const LOWEST: usize = 4096;
/// End of user addresses.
const HIGHEST: usize = 1 << 47;

/// What a walk came to: a node, or one of two reasons why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct Walk(u32);

impl Walk {
    /// The trie has no room for a new node.
    pub const FULL: Self = Self(NO_NODE);
    /// Not even the first return address could be used (or the depot is not initialised).
    pub const NONE: Self = Self(NO_NODE - 1);

    /// Number of the node of the outermost frame reached.
    #[inline]
    pub const fn node(self) -> Option<u32> {
        if self.0 < Self::NONE.0 {
            Some(self.0)
        } else {
            None
        }
    }

    /// The number itself; `u32::MAX` and `u32::MAX - 1` are [`Walk::FULL`] and [`Walk::NONE`].
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }
}

#[inline]
fn usable(ra: usize) -> bool {
    ra.wrapping_sub(LOWEST) < HIGHEST - LOWEST
}

impl<P: Platform> Depot<P> {
    /// Walks the stack outwards, `depth` frames at most (1 at least), and gives the node that stands for the frames
    /// seen. The walk ends early where no caller is known.
    ///
    /// `sp` is the address of the stack word that holds the first return address, `fp` is rbp as it was on entry.
    /// `bounds` belongs to this thread alone (and to its signal handlers).
    ///
    /// # Safety
    /// The word at `sp` is readable, `sp` points into the stack that this thread runs on, and `bounds` was only ever
    /// used by this thread.
    #[inline]
    pub unsafe fn walk(&self, sp: usize, fp: usize, depth: u32, bounds: &StackBounds) -> Walk {
        let view = self.view();
        if view.base.is_null() || sp & 7 != 0 || !usable(sp) {
            return Walk::NONE;
        }
        // SAFETY: as promised by the caller; aligned. Volatile: the stack belongs to other code.
        let read =
            |at: usize| unsafe { core::ptr::with_exposed_provenance::<usize>(at).read_volatile() };
        let mut cursor = Cursor { at: sp, fp };
        let mut ra = read(sp);
        if !usable(ra) {
            return Walk::NONE;
        }
        let last = if depth > 1 {
            bounds.last_word(&self.platform, sp)
        } else {
            sp
        };
        let mut node = view.node(0);
        let mut left = depth.max(1);
        loop {
            let child = match node.inline_child(ra as u64) {
                Some(child) => child,
                None => match self.other_child(&view, node, ra, left > 1) {
                    // The first frame is never refused, so `node` is not the root.
                    REFUSED => return Walk(view.number(node)),
                    NO_NODE => return Walk::FULL,
                    child => child,
                },
            };
            node = view.node(child);
            left -= 1;
            if left == 0 {
                return Walk(child);
            }
            let rule = node.rule.load(Ordering::Relaxed);
            // SAFETY: all words from `sp` up to `last` are readable, and `cursor` is between.
            let next = match unsafe { step(rule, cursor, last) } {
                Step::To(next) => next,
                Step::End => return Walk(child),
                // SAFETY: as above.
                Step::Unknown => match unsafe { self.first_step(child, cursor, last) } {
                    Cursor { at: 0, .. } => return Walk(child),
                    next => next,
                },
            };
            cursor = next;
            ra = read(cursor.at);
        }
    }

    /// As [`Depot::walk`], by way of this thread's table of walks.
    ///
    /// # Safety
    /// As [`Depot::walk`]; `paths` is this thread's, too.
    #[inline]
    pub unsafe fn walk_known(
        &self,
        sp: usize,
        fp: usize,
        depth: u32,
        bounds: &StackBounds,
        paths: &Paths,
    ) -> Walk {
        let generation = self.generation.load(Ordering::Acquire);
        if generation != 0 && sp & 7 == 0 && usable(sp) && paths.depth() == depth {
            let last = bounds.last_word(&self.platform, sp);
            // SAFETY: by the contract; all words up to `last` are readable.
            if let Some(node) = unsafe { paths.find(generation, sp, last) } {
                return Walk(node);
            }
        }
        // SAFETY: by the contract.
        let walk = unsafe { self.walk(sp, fp, depth, bounds) };
        if let Some(node) = walk.node()
            && paths.depth() == depth
        {
            paths.keep(&self.view(), generation, sp, node);
        }
        walk
    }

    /// A child that is not the inline one, made if need be; [`REFUSED`] or [`NO_NODE`] if there is none.
    #[inline]
    fn other_child(&self, view: &View<'_, P>, parent: &NodeCell, ra: usize, leave: bool) -> u32 {
        if !usable(ra) {
            return REFUSED;
        }
        let parent = view.number(parent);
        match self.trie.find(view, parent, ra as u64) {
            Some(child) => child,
            None => self.add(parent, ra as u64, leave),
        }
    }

    /// The step from a node whose rule is not known yet. `at` = 0: end.
    ///
    /// # Safety
    /// As [`step`].
    #[cold]
    #[inline(never)]
    unsafe fn first_step(&self, node: u32, from: Cursor, last: usize) -> Cursor {
        let rule = self.resolve(node);
        // SAFETY: the caller's promise; rules come from `pack`.
        match unsafe { step(rule, from, last) } {
            Step::To(next) => next,
            Step::End | Step::Unknown => Cursor { at: 0, fp: 0 },
        }
    }

    /// Finds out a node's rule and keeps it.
    fn resolve(&self, node: u32) -> u32 {
        let view = self.view();
        let node = view.node(node);
        let ra = node.ra();
        let rule = match self.rules.get(ra) {
            Some(rule) => rule,
            None => {
                let object = self.platform.find_object(ra as usize - 1);
                let module = object.map_or(0, |object| self.modules.enter(&self.platform, &object));
                self.read_rule(ra, object.as_ref(), module)
            }
        };
        node.rule.store(rule, Ordering::Relaxed);
        rule
    }

    /// Reads the rule from the tables of the object that `ra` is in, recorded as `module`.
    fn read_rule(&self, ra: u64, object: Option<&Object>, module: u32) -> u32 {
        let rule = object.map_or(GUESS, |object| {
            let limit = self.modules.limit(module, object);
            // SAFETY: the loader says where the tables are, `limit` ends their segment, and an object that a frame of
            // this thread is in stays loaded while the frame lives.
            unsafe { cfi::rule_for(object, limit, ra as usize - 1) }
        });
        self.rules.put(ra, rule);
        rule
    }

    /// Makes the node for a frame not seen before. `leave`: its rule is needed at once.
    #[cold]
    #[inline(never)]
    fn add(&self, parent: u32, ra: u64, leave: bool) -> u32 {
        let view = self.view();
        let guessed =
            parent != 0 && view.node(parent).rule.load(Ordering::Relaxed) & 7 == KIND_GUESS;
        if guessed && !self.after_call(ra as usize) {
            return REFUSED;
        }
        let object = self.platform.find_object(ra as usize - 1);
        let module = object.map_or(0, |object| self.modules.enter(&self.platform, &object));
        let id = self.trie.insert(&view, Frame { parent, ra, module });
        if id == NO_NODE {
            return id;
        }
        if module == 0 {
            self.homeless.store(true, Ordering::Relaxed);
        }
        if leave {
            // While the loader's answer is at hand.
            let rule = self
                .rules
                .get(ra)
                .unwrap_or_else(|| self.read_rule(ra, object.as_ref(), module));
            view.node(id).rule.store(rule, Ordering::Relaxed);
        }
        id
    }

    /// Does a call instruction end at `ra`? A guess that does not meet one was wrong; without this check any word on
    /// the stack that looks like an address would become a node.
    fn after_call(&self, ra: usize) -> bool {
        let Some(code) = read_mapped::<7>(&self.platform, ra - 7) else {
            return false;
        };
        // call rel32, or call r/m64 (FF /2) in one of its lengths.
        let far = |(at, pair): (usize, &[u8])| {
            at <= 5 && matches!(pair, [0xff, modrm] if modrm >> 3 & 7 == 2)
        };
        code[2] == 0xe8 || code.windows(2).enumerate().any(far)
    }
}
