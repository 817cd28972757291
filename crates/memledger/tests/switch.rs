//! The switch, under load: no stale counts, no negative rows, and memory of the time without profiling is known as such.

use memledger::{Ledger, alloc_hooks, set_enabled};
use std::sync::atomic::{AtomicBool, Ordering};

#[global_allocator]
static A: Ledger = Ledger::new();

fn row(report: &memledger::Allocinfo, line: u32) -> (u64, u64) {
    let row = report
        .rows
        .iter()
        .find(|r| r.file == file!() && r.line == line)
        .expect("the tag's row");
    (row.bytes, row.calls)
}

fn untracked(report: &memledger::Allocinfo) -> (u64, u64) {
    let rows = report.rows.iter().filter(|r| r.func == "untracked");
    rows.fold((0, 0), |(b, c), r| (b + r.bytes, c + r.calls))
}

#[test]
fn what_is_freed_is_gone_and_what_came_while_off_is_untracked() {
    // Under load: the sums must be right afterwards all the same.
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for t in 0..4 {
            let stop = &stop;
            s.spawn(move || {
                let mut live = Vec::new();
                let mut i = t;
                while !stop.load(Ordering::Relaxed) {
                    i += 1;
                    live.push(vec![0u8; 1 + i % 3000]);
                    if live.len() > 100 {
                        live.swap_remove(i % 100);
                    }
                }
            });
        }
        for i in 0..1000 {
            set_enabled(i % 2 == 1).unwrap();
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(memledger::enabled());

    let before = untracked(&memledger::allocinfo().unwrap());
    let (tracked, line) = (alloc_hooks!(vec![0u8; 50_000]), line!());
    set_enabled(false).unwrap();
    let (silent, _) = (alloc_hooks!(vec![0u8; 60_000]), line!());
    // The report's own memory, allocated while off, must not count: take the sums of the scan, which come first.
    let off = memledger::allocinfo().unwrap();
    assert_eq!(
        row(&off, line),
        (53_248, 1),
        "the count does not freeze or vanish"
    );
    drop(tracked);
    let freed = memledger::allocinfo().unwrap();
    assert_eq!(row(&freed, line), (0, 0), "a free while off is seen");
    set_enabled(true).unwrap();
    drop((off, freed));
    let after = memledger::allocinfo().unwrap();
    let (bytes, _) = untracked(&after);
    assert!(
        bytes >= before.0 + 61_440,
        "untracked {bytes}, before {before:?}"
    );
    drop(silent);
    let last = memledger::allocinfo().unwrap();
    assert!(untracked(&last).0 + 61_440 <= bytes);
    assert_eq!(
        memledger::allocinfo()
            .unwrap()
            .rows
            .iter()
            .filter(|r| (r.bytes as i64) < 0)
            .count(),
        0
    );
}
