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

/// Bytes of the slot of a vector's buffer.
fn usable<T>(v: &[T]) -> u64 {
    memledger::usable_size(v.as_ptr().cast()) as u64
}

/// Switches so often under 8 threads that allocate and free; in turn by the function and by the way of a reader outside.
/// Returns what the threads still hold.
fn storm(switches: usize) -> Vec<Vec<Vec<u8>>> {
    static STOP: AtomicBool = AtomicBool::new(false);
    STOP.store(false, Ordering::Relaxed);
    let threads: Vec<_> = (0..8)
        .map(|t| std::thread::spawn(move || load(&STOP, t)))
        .collect();
    for i in 0..switches {
        let on = i % 2 == 1;
        if i / 2 % 2 == 0 {
            set_enabled(on).unwrap();
        } else {
            memledger_inspect::control::set(std::process::id(), on).unwrap();
        }
        std::thread::yield_now();
    }
    STOP.store(true, Ordering::Relaxed);
    // Joined, not scoped: their thread-local memory must be gone too.
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

fn load(stop: &AtomicBool, mut i: usize) -> Vec<Vec<u8>> {
    let mut live = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        i += 1;
        live.push(vec![0u8; 1 + i % 3000]);
        if live.len() > 100 {
            live.swap_remove(i % 100);
        }
    }
    live
}

#[test]
fn what_is_freed_is_gone_and_what_came_while_off_is_untracked() {
    // What the first time allocates for good (symbols of the standard library, lazy statics) is not the storm's.
    drop(storm(20));
    let (bytes, calls) = memledger::total();
    let live = storm(1000);
    let now = memledger::total();
    let (mut held, mut objects) = (usable(&live), 1);
    for thread in &live {
        held += usable(thread) + thread.iter().map(|v| usable(v)).sum::<u64>();
        objects += 1 + thread.len() as u64;
    }
    assert_eq!(
        (now.0 - bytes, now.1 - calls),
        (held, objects),
        "the account is what the slots say"
    );
    let report = memledger::allocinfo().unwrap();
    assert_eq!((report.bytes, report.calls), now, "and so is the report");
    drop((report, live));
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
