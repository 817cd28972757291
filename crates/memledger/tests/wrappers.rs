//! Functions in two forms, and callers found at run time: whom the rows name.
#![deny(warnings)]

mod common;

use common::{now, row_at};
use memledger::{alloc_hooks, alloc_hooks_fn, alloc_hooks_macro, charge_caller};

#[global_allocator]
static A: memledger::Ledger = memledger::Ledger::new();

/// One page more each, so that sizes tell the objects apart.
const SMALL: usize = 40_960;
const LARGE: usize = 81_920;

mod pool {
    use super::*;

    /// The plain function.
    pub(crate) fn take_noprof(n: usize) -> Vec<u8> {
        vec![1; n]
    }
    alloc_hooks_macro! {
        /// A block, charged to the caller.
        pub(crate) macro take => crate::pool::take_noprof;
    }

    /// A block by each form of `take`: the first is charged to the line here, the second to whom this is charged to.
    #[alloc_hooks_fn(path = crate::pool)]
    #[must_use]
    pub(crate) fn pair<const N: usize, T>(size: [usize; N], _of: T) -> (Vec<u8>, Vec<u8>, u32)
    where
        T: Copy,
    {
        (take!(size[0]), take_noprof(size[1]), line!())
    }

    /// Charged in each poll.
    #[alloc_hooks_fn(path = crate::pool)]
    pub(crate) async fn later(n: usize) -> Vec<u8> {
        std::future::ready(()).await;
        take_noprof(n)
    }

    /// A free function without a macro; patterns and unsized captures pass.
    #[alloc_hooks_fn(caller)]
    pub(crate) fn copies<T: Clone, const N: usize>(
        (item, mut n): (T, usize),
        f: impl Fn(usize) -> usize,
    ) -> Vec<[T; N]> {
        n = f(n);
        vec![std::array::from_fn(|_| item.clone()); n]
    }

    /// # Safety
    /// `n` is not 0.
    #[alloc_hooks_fn(path = crate::pool)]
    pub(crate) unsafe fn unchecked(n: usize) -> Vec<u8> {
        // SAFETY: not 0, by the contract.
        vec![1; unsafe { std::num::NonZeroUsize::new_unchecked(n) }.get()]
    }
}

#[alloc_hooks_fn]
fn private(n: usize) -> Vec<u8> {
    vec![1; n]
}

struct Store<T> {
    items: Vec<T>,
}

impl<T: Clone> Store<T> {
    #[alloc_hooks_fn(method)]
    fn new(n: usize) -> Self {
        Store {
            items: Vec::with_capacity(n),
        }
    }

    #[alloc_hooks_fn]
    fn push_all(&mut self, items: &[T]) -> &mut T {
        self.items.reserve_exact(items.len());
        self.items.extend_from_slice(items);
        self.items.last_mut().expect("not empty")
    }

    #[alloc_hooks_fn]
    fn doubled(mut self) -> Self {
        self.items.reserve_exact(self.items.capacity() + 1);
        self
    }
}

#[test]
fn a_macro_charges_its_caller() {
    let (block, line) = (pool::take!(SMALL), line!());
    assert_eq!(now(file!(), line), (SMALL as u64, 1));
    drop(block);
    assert_eq!(now(file!(), line), (0, 0));
    let (block, line) = (private!(SMALL), line!());
    assert_eq!(now(file!(), line), (SMALL as u64, 1));
    drop(block);
    // SAFETY: not 0.
    let (block, line) = (unsafe { pool::unchecked!(SMALL) }, line!());
    assert_eq!(now(file!(), line), (SMALL as u64, 1));
    drop(block);
}

#[test]
fn inner_allocations_keep_their_tag_unless_noprof_is_called() {
    let ((a, b, kept), line) = (pool::pair!([SMALL, LARGE], 1_u8), line!());
    let report = memledger::allocinfo().unwrap();
    assert_eq!(row_at(&report, file!(), line), (LARGE as u64, 1));
    assert_eq!(row_at(&report, file!(), kept), (SMALL as u64, 1));
    drop((a, b));
    // The plain form below an outer hook: the outer hook is charged for what has no hook of its own.
    let line = line!() + 1;
    let (a, b, kept) = alloc_hooks!(pool::pair_noprof([SMALL, LARGE], "x"));
    assert_eq!(now(file!(), line), (LARGE as u64, 1));
    assert_eq!(now(file!(), kept), (SMALL as u64, 1));
    drop((a, b));
    assert_eq!(now(file!(), line), (0, 0));
    assert_eq!(now(file!(), kept), (0, 0));
}

#[test]
fn nested_hooks_win_over_outer_ones() {
    let outer = line!() + 1;
    let (a, (b, inner), c) = alloc_hooks!((
        vec![1_u8; SMALL],
        (pool::take!(LARGE), line!()),
        vec![1_u8; SMALL],
    ));
    let report = memledger::allocinfo().unwrap();
    assert_eq!(row_at(&report, file!(), outer), (2 * SMALL as u64, 2));
    assert_eq!(row_at(&report, file!(), inner), (LARGE as u64, 1));
    drop((a, b, c));
}

#[track_caller]
fn library(n: usize) -> (Vec<u8>, Vec<u8>, u32) {
    charge_caller(|| {
        let mine = alloc_hooks!(vec![1; LARGE]);
        (vec![1; n], mine, line!() - 1)
    })
}

#[track_caller]
fn library_of_library(n: usize) -> (Vec<u8>, Vec<u8>, u32) {
    library(n)
}

#[test]
fn track_caller_charges_the_users_line_and_inner_hooks_win() {
    let ((a, b, inner), line) = (library_of_library(SMALL), line!());
    assert_eq!(now(file!(), line), (SMALL as u64, 1));
    assert_eq!(now(file!(), inner), (LARGE as u64, 1));
    // Inside a hook: the closure is the inner one.
    let outer = line!() + 1;
    let (c, line) = alloc_hooks!(
        // On a line of its own.
        (library(SMALL), line!())
    );
    assert_eq!(now(file!(), line), (SMALL as u64, 1));
    assert_eq!(now(file!(), outer), (0, 0));
    assert_eq!(now(file!(), inner), (2 * LARGE as u64, 2));
    drop((a, b, c));
    let report = memledger::allocinfo().unwrap();
    let row = report
        .rows
        .iter()
        .find(|r| r.file == file!() && r.line == line);
    let row = row.expect("a row without live memory");
    assert_eq!((row.bytes, row.func.as_str(), row.loaded), (0, "?", true));
}

#[test]
fn methods_charge_their_callers() {
    let (mut store, made) = (Store::<u8>::new(SMALL), line!());
    assert_eq!(now(file!(), made), (SMALL as u64, 1));
    *store.push_all(&[1; LARGE]) = 2;
    let grown = line!() - 1;
    assert_eq!(store.items.last(), Some(&2));
    // The block belongs to the line that sized it last.
    assert_eq!(
        (now(file!(), made), now(file!(), grown)),
        ((0, 0), (LARGE as u64, 1))
    );
    let (store, last) = (store.doubled(), line!());
    assert_eq!(now(file!(), grown), (0, 0));
    assert_eq!(now(file!(), last).1, 1);
    let (bare, line) = (Store::<u8>::new_noprof(SMALL), line!());
    // By the call stack: that line as well, but inlined or not, so at least not the macro's.
    assert!(now(file!(), line).0 <= SMALL as u64);
    drop((store, bare));

    let (blocks, line) = (pool::copies::<u64, 16>((1, 100), |n| 4 * n), line!());
    assert_eq!(now(file!(), line), (common::pages(400 * 128), 1));
    drop(blocks);
}

#[test]
fn an_async_function_is_charged_in_its_polls() {
    use std::future::Future;
    let (future, line) = (pool::later!(SMALL), line!());
    assert_eq!(now(file!(), line), (0, 0));
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(block) = future.as_mut().poll(&mut context) else {
        panic!("pending")
    };
    assert_eq!(now(file!(), line), (SMALL as u64, 1));
    drop(block);
}

#[test]
fn threads_that_meet_at_a_new_place_share_its_row() {
    // One place, new to all of them.
    #[track_caller]
    fn place() -> memledger::SavedTag {
        memledger::SavedTag::caller()
    }
    let barrier = std::sync::Barrier::new(8);
    let call = || {
        barrier.wait();
        (place(), line!())
    };
    let mut tags = Vec::new();
    std::thread::scope(|s| {
        let all: Vec<_> = (0..8).map(|_| s.spawn(call)).collect();
        tags.extend(all.into_iter().map(|t| t.join().unwrap()));
    });
    assert!(
        tags.iter().all(|t| *t == tags[0] && t.0.index() != 0),
        "{tags:?}"
    );
    let report = memledger::allocinfo().unwrap();
    let rows = report
        .rows
        .iter()
        .filter(|r| r.file == file!() && r.line == tags[0].1);
    assert_eq!(rows.count(), 1);
}
