//! Rows of memledger's own memory: right figures by purpose, and in no sum.

use memledger::{Allocinfo, Ledger, allocinfo, total};
use std::sync::{Arc, Barrier};

#[global_allocator]
static ALLOC: Ledger = Ledger::new();

/// Bytes and pieces for one purpose.
fn of(report: &Allocinfo, purpose: &str) -> (u64, u64) {
    let row = report.metadata.iter().find(|r| r.func == purpose);
    row.map_or((0, 0), |r| (r.bytes, r.calls))
}

#[test]
fn own_memory_has_rows_beside_the_account() {
    // The first report leaves slabs of its own behind.
    allocinfo().unwrap();
    let before = allocinfo().unwrap();
    // A million objects have a million cells, in slabs of their class.
    let class = mm::class::class_of(48);
    let shape = mm::slab::shape(class, 4);
    let mut objects: Vec<Box<[u64; 6]>> = Vec::with_capacity(1_000_000);
    objects.extend((0..1_000_000).map(|n| Box::new([n; 6])));
    let filled = allocinfo().unwrap();
    let grown = |purpose: &str| {
        let (a, b) = (of(&before, purpose), of(&filled, purpose));
        (b.0 - a.0, b.1 - a.1)
    };
    let slabs = 1_000_000_u64.div_ceil(u64::from(shape.slots));
    let (bytes, pieces) = grown("slab_cells");
    // Reports leave some slabs behind, of this class, too.
    assert!(
        (slabs - 100..slabs + 40).contains(&pieces),
        "{pieces} slabs, not {slabs}"
    );
    assert!((3_500_000..4_200_000).contains(&bytes), "{bytes}");
    let (bits, pieces_of_bits) = grown("slab_bitmaps");
    assert_eq!(pieces_of_bits, pieces);
    assert!((110_000..140_000).contains(&bits), "{bits}");
    // Both records of each unit; a unit is 64 KiB.
    let (bytes, units) = of(&filled, "unit_table");
    assert_eq!(bytes, 128 * units);
    assert!(units >= slabs + 8_000_000 / 65536);

    // Threads have a heap each, of one size, and their stacks and walks.
    let barrier = Arc::new(Barrier::new(9));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let barrier = barrier.clone();
            std::thread::spawn(move || {
                let held = Box::new([0_u8; 100]);
                barrier.wait();
                barrier.wait();
                drop(held);
            })
        })
        .collect();
    barrier.wait();
    let many = allocinfo().unwrap();
    let (old, new) = (of(&filled, "thread_heaps"), of(&many, "thread_heaps"));
    assert_eq!(new.1 - old.1, 8);
    assert_eq!(new.0, new.1 * (old.0 / old.1));
    assert_eq!(of(&many, "kept_walks").1 - of(&filled, "kept_walks").1, 8);
    assert!(of(&many, "thread_stacks").1 >= of(&filled, "thread_stacks").1 + 8);
    for purpose in ["stack_nodes", "stack_tables", "thread_stacks"] {
        let (bytes, pieces) = of(&many, purpose);
        assert!(bytes > 0 && pieces > 0, "{purpose}: {bytes} in {pieces}");
    }
    barrier.wait();
    threads.into_iter().for_each(|t| t.join().unwrap());

    // In no sum, and in the text only if asked for.
    let report = allocinfo().unwrap();
    let (bytes, calls) = total();
    let rows: u64 = report.rows.iter().map(|r| r.bytes).sum();
    assert_eq!(rows, report.bytes);
    assert!(report.bytes.abs_diff(bytes) < 1 << 20 && report.calls.abs_diff(calls) < 10_000);
    assert!(!report.to_string().contains("metadata:yes"));
    let text = format!("{report:#}");
    let marked = text.lines().filter(|l| l.ends_with(" metadata:yes "));
    assert_eq!(marked.count(), report.metadata.len());
    drop(objects);
}
