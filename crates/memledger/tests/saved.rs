//! Saved tags: std's collections in `Tagged`, allocator-api2's with a handle, and other threads.

mod common;

use common::{now, pages};
use memledger::{
    SavedTag, Tagged, TaggedAlloc, alloc_hooks, alloc_tag_record, inherit_tag, spawn_inheriting,
};
use std::collections::{BTreeMap, HashMap};

#[global_allocator]
static A: memledger::Ledger = memledger::Ledger::new();

const BIG: usize = 40_960;

#[test]
fn std_collections_are_charged_to_where_they_were_made() {
    let (mut list, a) = (Tagged::new(alloc_tag_record!(), Vec::new()), line!());
    let (mut text, b) = (Tagged::here(String::new), line!());
    let (mut map, c) = (Tagged::new(alloc_tag_record!(), HashMap::new()), line!());
    let (mut tree, d) = (Tagged::here(BTreeMap::new), line!());
    list.with(|v| v.resize(BIG, 0_u8));
    text.lock().push_str(&"x".repeat(BIG));
    map.with(|m| (0..100).for_each(|i| drop(m.insert(i, vec![0_u8; 4096]))));
    for i in 0..100 {
        let mut tree = tree.lock();
        tree.insert(i, vec![0_u8; 4096]);
    }
    assert_eq!(now(file!(), a), (BIG as u64, 1));
    assert_eq!(now(file!(), b), (BIG as u64, 1));
    let (bytes, calls) = now(file!(), c);
    assert_eq!(
        (calls, bytes > 100 * 4096 && bytes < 110 * 4096),
        (101, true)
    );
    let (bytes, calls) = now(file!(), d);
    assert!(
        calls > 110 && bytes > 100 * 4096,
        "texts and nodes: {bytes} {calls}"
    );
    // Read without a guard; cloned on the same account.
    assert_eq!(
        (list.len(), text.len(), map.len(), tree.len()),
        (BIG, BIG, 100, 100)
    );
    let copy = list.clone();
    assert_eq!(
        (now(file!(), a), copy.tag()),
        ((2 * BIG as u64, 2), list.tag())
    );
    drop(copy);
    // What grows outside is charged as any other.
    let (mut bare, line) = (list.into_inner(), line!() + 1);
    alloc_hooks!(bare.reserve_exact(BIG));
    assert_eq!(
        (now(file!(), a), now(file!(), line)),
        ((0, 0), (2 * BIG as u64, 1))
    );
    // A hook inside wins.
    let (mut inside, e) = (Tagged::here(Vec::<Vec<u8>>::new), line!());
    let line = line!() + 1;
    inside.with(|v| v.push(alloc_hooks!(vec![0; BIG])));
    assert_eq!(
        (now(file!(), line), now(file!(), e).1),
        ((BIG as u64, 1), 1)
    );
    drop((text, map, tree, bare, inside));
    assert!([a, b, c, d, e].iter().all(|&l| now(file!(), l) == (0, 0)));
}

#[test]
fn collections_with_an_allocator_carry_the_tag() {
    use allocator_api2::{boxed::Box, vec::Vec};
    let (memory, line) = (TaggedAlloc::new(alloc_tag_record!()), line!());
    let mut list = Vec::new_in(memory);
    let boxed = Box::new_in([1_u8; BIG], memory);
    std::thread::scope(|s| s.spawn(|| list.resize(2 * BIG, 1_u8)).join().unwrap());
    assert_eq!(now(file!(), line), (3 * BIG as u64, 2));
    list.truncate(BIG);
    list.shrink_to_fit();
    assert_eq!(now(file!(), line), (2 * BIG as u64, 2));
    let copy = list.clone();
    assert_eq!(now(file!(), line), (3 * BIG as u64, 3));
    // Over another allocator.
    let (mut other, second) = (
        Vec::new_in(TaggedAlloc::new_in(SavedTag::NONE, memory)),
        line!(),
    );
    other.push([1_u8; BIG]);
    assert_eq!((now(file!(), line).1, now(file!(), second)), (4, (0, 0)));
    drop((list, boxed, copy, other));
    assert_eq!(now(file!(), line), (0, 0));
}

/// Blocks of `BIG` bytes on a line. What threads and pools hold for themselves is less than that, and goes when it likes.
fn blocks(line: u32) -> u64 {
    now(file!(), line).0 / pages(BIG as u64)
}

#[test]
fn threads_inherit_the_tag_when_asked() {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(2)
        .build()
        .unwrap();
    let line = line!() + 1;
    let (by_thread, by_pool, plain) = alloc_hooks!({
        let a = spawn_inheriting(|| vec![1_u8; BIG]).join().unwrap();
        let job = inherit_tag(|| vec![1_u8; BIG]);
        let b = pool.install(move || {
            // The worker itself is charged to nobody.
            assert_eq!(SavedTag::current(), SavedTag::NONE);
            job()
        });
        let plain = || (vec![1_u8; 4 * BIG], SavedTag::current());
        (a, b, std::thread::spawn(plain).join().unwrap())
    });
    assert_eq!((plain.1, blocks(line)), (SavedTag::NONE, 2));
    drop(plain);
    assert_eq!(blocks(line), 2);
    drop(by_thread);
    assert_eq!(blocks(line), 1);
    drop(by_pool);
    assert_eq!(blocks(line), 0);

    // No tag is carried as well as a tag.
    let bare = inherit_tag(SavedTag::current);
    let tag = alloc_tag_record!();
    assert_eq!(
        tag.charge(|| (bare(), SavedTag::current())),
        (SavedTag::NONE, tag)
    );
    // The tag of the thread itself is back after a panic.
    let job = tag.charge(|| inherit_tag(|| std::panic::resume_unwind(std::boxed::Box::new(1))));
    let caught: Result<(), _> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    assert!(caught.is_err() && SavedTag::current() == SavedTag::NONE);
}
