//! What happens when object files go away.
//!
//! Theory: after `dlclose` an address may come to mean other code. The loader is asked for each recorded object; if
//! it is not there any more, its nodes are dead: no look-up finds them, no inline child leads to them, but old
//! handles can still be read. Nodes without a module (generated code) die when an object is mapped over them. Should
//! the same file come back to the same place, its record and, one by one, its nodes live again.
//!
//! No frame of an unloaded object can be on a stack, so no walk is under way through these nodes, but for one in
//! another thread that loads and runs new code at that address before this runs: it may see the old node once.

use crate::modules::{CAPACITY, LOADED, UNLOADED};
use crate::node::NodeCell;
use crate::platform::Platform;
use crate::trie::Memory;
use crate::{Depot, View};
use core::sync::atomic::Ordering;

impl<P: Platform> Depot<P> {
    /// To be called after each `dlclose` and `dlopen`. Costs a look-up for each module, and a pass over all nodes
    /// if one has gone.
    pub fn modules_changed(&self) {
        let view = self.view();
        if view.base.is_null() {
            return;
        }
        let mut gone = false;
        for number in 1..self.modules.len() {
            if self.modules.state(number) != LOADED {
                continue;
            }
            let start = self.modules.range(number).0;
            if !self
                .platform
                .find_object(start)
                .is_some_and(|object| self.modules.is(number, &object))
            {
                self.modules.end(number);
                gone = true;
            }
        }
        // With a full table of modules "no module" means nothing.
        let homeless = self.homeless.load(Ordering::Relaxed) && self.modules.len() < CAPACITY;
        if gone {
            self.rules.clear();
        }
        if gone || homeless {
            self.kill_nodes(&view, homeless);
        }
        self.next_generation();
    }

    /// What walks have been kept is no longer true. 0 is no generation, even after 2^32 of them.
    fn next_generation(&self) {
        if self.generation.fetch_add(1, Ordering::Release) == u32::MAX {
            self.generation.store(1, Ordering::Release);
        }
    }

    fn kill_nodes(&self, view: &View<P>, homeless: bool) {
        let all = 1..self.store.len();
        let mut any = false;
        for node in all.clone().map(|id| view.node(id)) {
            if !node.is_dead() && self.has_gone(node, homeless) {
                node.kill();
                any = true;
            }
        }
        if any {
            self.rules.clear();
            for node in (0..all.end).map(|id| view.node(id)) {
                if node.child_ra.load(Ordering::Acquire) > 1
                    && view.node(node.child.load(Ordering::Relaxed)).is_dead()
                {
                    node.hide_child();
                }
            }
        }
    }

    fn has_gone(&self, node: &NodeCell, homeless: bool) -> bool {
        match node.module() {
            0 => {
                homeless
                    && node.ra() != 0
                    && self.platform.find_object(node.ra() as usize - 1).is_some()
            }
            number => self.modules.state(number) == UNLOADED,
        }
    }
}
