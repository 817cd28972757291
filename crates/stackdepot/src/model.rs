//! A loom model of insertion, inline children and growth.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p stackdepot --lib --release`.
//!
//! Bound: two threads, up to two insertions each, tables of 2 to 16 slots, at most 3 preemptions (see `check`). Node
//! numbers come from a plain counter, as the order in which they are handed out does not matter.

extern crate std;
use crate::node::NodeCell;
use crate::sync::{AtomicU32, AtomicU64};
use crate::table::Table;
use crate::trie::{Frame, Memory, NO_NODE, Trie};
use loom::sync::Arc;
use std::boxed::Box;
use std::vec::Vec;

struct Space {
    nodes: Vec<NodeCell>,
    next: std::sync::atomic::AtomicU32,
    tables: std::sync::Mutex<Vec<(Box<Table>, Vec<AtomicU64>)>>,
}

impl Memory for Space {
    fn node(&self, id: u32) -> &NodeCell {
        &self.nodes[id as usize]
    }
    fn new_node(&self) -> Option<u32> {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (id < self.nodes.len() as u32).then_some(id)
    }
    fn give_back(&self, _: u32) {}
    fn new_table(&self, bits: u32) -> *mut Table {
        let slots: Vec<_> = (0..1 << bits).map(|_| AtomicU64::new(0)).collect();
        let mut table = Box::new(Table::new(bits, slots.as_ptr()));
        let address = std::ptr::from_mut(&mut *table);
        self.tables.lock().unwrap().push((table, slots));
        address
    }
}

struct Model {
    trie: Trie,
    space: Space,
}
// SAFETY: loom runs one thread at a time, and checks the accesses to the atomics; the table addresses stay valid.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    fn new(bits: u32) -> Arc<Self> {
        let zero = || NodeCell {
            key: AtomicU64::new(0),
            parent: AtomicU32::new(0),
            rule: AtomicU32::new(0),
            child_ra: AtomicU64::new(0),
            child: AtomicU32::new(0),
            flags: AtomicU32::new(0),
        };
        let space = Space {
            nodes: (0..8).map(|_| zero()).collect(),
            next: 1.into(),
            tables: Default::default(),
        };
        let trie = Trie::new();
        assert!(trie.init(&space, bits));
        Arc::new(Self { trie, space })
    }

    /// As the walk does it: inline child, table, insertion. Checks that the node is what was asked for.
    fn child(&self, parent: u32, ra: u64) -> u32 {
        let id = self.space.node(parent).inline_child(ra);
        let id = id.or_else(|| self.trie.find(&self.space, parent, ra));
        let id = id.unwrap_or_else(|| {
            self.trie.insert(
                &self.space,
                Frame {
                    parent,
                    ra,
                    module: 1,
                },
            )
        });
        assert_ne!(id, NO_NODE);
        assert!(self.space.node(id).stands_for(parent, ra));
        id
    }

    /// Each key leads to a right node by the table, from now on.
    fn settled(&self, keys: &[(u32, u64)]) {
        for &(parent, ra) in keys {
            let id = self
                .trie
                .find(&self.space, parent, ra)
                .expect("an insertion was lost");
            assert!(self.space.node(id).stands_for(parent, ra));
            if let Some(inline) = self.space.node(parent).inline_child(ra) {
                assert!(self.space.node(inline).stands_for(parent, ra));
            }
        }
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 10_000;
    builder.check(model);
}

const A: u64 = 0x1000_1111;
const B: u64 = 0x2000_2222;
const C: u64 = 0x3000_3333;

#[test]
fn two_threads_make_the_same_child_once() {
    check(|| {
        let model = Model::new(3);
        let other = model.clone();
        let thread = loom::thread::spawn(move || other.child(0, A));
        let mine = model.child(0, A);
        assert_eq!(thread.join().unwrap(), mine);
        model.settled(&[(0, A)]);
    });
}

#[test]
fn the_inline_child_is_whole_when_seen() {
    check(|| {
        let model = Model::new(3);
        let other = model.clone();
        let thread = loom::thread::spawn(move || (other.child(0, A), other.child(0, B)));
        let mine = (model.child(0, B), model.child(0, A));
        let theirs = thread.join().unwrap();
        assert_eq!((theirs.1, theirs.0), mine);
        model.settled(&[(0, A), (0, B)]);
    });
}

/// A table of 4 slots, 2 of them taken: the next insertion grows it.
fn about_to_grow() -> (Arc<Model>, u32) {
    let model = Model::new(2);
    let first = model.child(0, A);
    model.child(first, A);
    (model, first)
}

#[test]
fn growth_loses_no_insertion() {
    check(|| {
        let (model, first) = about_to_grow();
        let other = model.clone();
        let thread = loom::thread::spawn(move || other.child(first, B));
        model.child(0, C);
        thread.join().unwrap();
        model.settled(&[(0, A), (first, A), (first, B), (0, C)]);
        assert_eq!(model.space.tables.lock().unwrap().len(), 2);
    });
}

#[test]
fn growth_under_the_same_key() {
    check(|| {
        let (model, first) = about_to_grow();
        let other = model.clone();
        let thread = loom::thread::spawn(move || other.child(0, B));
        let mine = model.child(0, B);
        assert_eq!(thread.join().unwrap(), mine);
        model.child(0, C);
        model.settled(&[(0, A), (first, A), (0, B), (0, C)]);
    });
}

#[test]
fn a_full_table_is_grown_by_whoever_needs_it() {
    check(|| {
        let model = Model::new(1);
        let first = model.child(0, A);
        let other = model.clone();
        let thread = loom::thread::spawn(move || other.child(first, B));
        model.child(0, C);
        thread.join().unwrap();
        model.settled(&[(0, A), (first, B), (0, C)]);
        let end = model.child(first, C);
        assert_eq!(model.child(first, C), end);
        model.settled(&[(0, A), (first, B), (0, C), (first, C)]);
    });
}

#[test]
fn a_full_table_and_the_same_key() {
    check(|| {
        let model = Model::new(1);
        model.child(0, A);
        let other = model.clone();
        let thread = loom::thread::spawn(move || other.child(0, B));
        model.child(0, B);
        model.child(0, C);
        thread.join().unwrap();
        model.settled(&[(0, A), (0, B), (0, C)]);
    });
}
