//! Unloading and loading again. One test alone in its process, so that a library comes back to its place.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;
use common::*;
use memledger_abi::{ModuleRecord, node_module};
use stackdepot::{Depot, Walk};
use std::ffi::c_void;
use std::path::Path;

type Run = unsafe extern "C" fn(Callback, *mut c_void);

/// One call site, however this is optimised.
#[inline(never)]
fn call(run: Run, job: &mut Job) {
    unsafe { run(capture, job.arg()) };
    std::hint::black_box(job);
}

/// Loads, walks, unloads; gives the place and the walk.
fn visit(depot: &Depot, path: &Path) -> (usize, Walk) {
    let library = Library::open(path);
    depot.modules_changed();
    let run: Run = library.get("run");
    let walk = walker(depot);
    let mut job = Job::new(&walk, 3, true);
    for _ in 0..2 {
        call(run, &mut job);
    }
    check(depot, &job);
    assert_eq!(job.walks[0], job.walks[1]);
    library.close();
    depot.modules_changed();
    (run as usize, job.walks[0])
}

fn record(depot: &Depot, walk: Walk) -> (u32, ModuleRecord) {
    let all = nodes(depot);
    let mut id = walk.node().unwrap() as usize;
    while all[id].parent != 0 {
        id = all[id].parent as usize;
    }
    assert_eq!(
        all[id].flags & 1,
        1,
        "the node of an unloaded library is dead"
    );
    let number = node_module(all[id].key);
    let records = depot.modules_address() as *const ModuleRecord;
    (number, unsafe { *records.add(number as usize) })
}

#[test]
fn libraries_come_and_go() {
    for id in ["-Wl,--build-id=sha1", "-Wl,--build-id=none"] {
        let tag = id.rsplit('=').next().unwrap();
        let a = build(
            "plugin.c",
            &format!("plugin-a-{tag}"),
            &["-O2", "-DVARIANT=1", id],
        );
        let b = build(
            "plugin.c",
            &format!("plugin-b-{tag}"),
            &["-O2", "-DVARIANT=2", id],
        );
        let depot = depot();
        let (place_a, first_a) = visit(depot, &a);
        let (number_a, record_a) = record(depot, first_a);
        assert_eq!(record_a.state, 2);
        // Another library at the same place: same return addresses, other nodes.
        let (place_b, first_b) = visit(depot, &b);
        assert_eq!(
            place_a, place_b,
            "the loader no longer reuses the place; the test needs another way"
        );
        assert_ne!(first_a, first_b);
        let (number_b, record_b) = record(depot, first_b);
        assert_ne!(number_a, number_b);
        assert_ne!(record_a.name, record_b.name);
        let stack_a = stack(depot, first_a);
        assert_eq!(stack_a[..2], stack(depot, first_b)[..2]);
        // The first one again: its record and nodes live again, as often as one likes.
        let counts = (depot.node_count(), depot.module_count(), depot.meta_bytes());
        for _ in 0..200 {
            assert_eq!(visit(depot, &a), (place_a, first_a));
            assert_eq!(visit(depot, &b), (place_b, first_b));
        }
        assert_eq!(
            (depot.node_count(), depot.module_count(), depot.meta_bytes()),
            counts
        );
        assert_eq!(record(depot, first_a).1.state, 2);
        // A changed file under the same path is another module, if its build-id tells.
        if id.ends_with("sha1") {
            let changed = build(
                "plugin.c",
                &format!("plugin-a-{tag}"),
                &["-O2", "-DVARIANT=3", id],
            );
            let (place_c, first_c) = visit(depot, &changed);
            assert_eq!(place_c, place_a);
            assert_ne!(first_c, first_a);
        }
    }
}
