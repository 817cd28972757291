//! The example `cache_two_users`: the rows of its users, exactly.
#![cfg(feature = "hashbrown")]

mod common;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../examples/cache_two_users.rs"]
mod example;

use common::{now, row_at};
use example::Cache;

#[test]
fn each_user_has_what_its_cache_holds() {
    let (mut pages, first) = (Cache::new(), line!());
    let (mut users, second) = (Cache::default(), line!());
    // Filled in turns, by the same lines of the cache.
    for key in 0..1000 {
        if key % 10 == 0 {
            pages.put(key, &[1; 4000]);
        }
        users.put(key, &[2; 80]);
        users.put(key / 2, &[3; 33]);
    }
    let live = (pages.live(), users.live());
    assert_eq!((live.0.1, live.1.1), (101, 1001));
    let report = memledger::allocinfo().unwrap();
    let rows = [first, second].map(|line| row_at(&report, file!(), line));
    assert_eq!((rows[0], rows[1]), live);
    assert!(live.0.0 > 100 * 4000 && live.1.0 > 1000 * 33);
    // Nothing of it stands on a line of the cache itself.
    let inside = report
        .rows
        .iter()
        .filter(|r| r.file.ends_with("examples/cache_two_users.rs"));
    assert_eq!(inside.map(|r| r.bytes).sum::<u64>(), 0);
    // A hook around the use does not win over the tag of the cache.
    let (_, line) = (memledger::alloc_hooks!(pages.put(1, &[1; 4000])), line!());
    assert_eq!(now(file!(), line), (0, 0));
    assert_eq!(now(file!(), first), pages.live());
    drop(pages);
    assert_eq!(
        (now(file!(), first), now(file!(), second)),
        ((0, 0), live.1)
    );
}
