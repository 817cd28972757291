//! Walks equal those of a second unwinder, in code of many shapes.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;
use common::*;
use memledger_abi::{ModuleRecord, node_module};
use std::ffi::c_void;

type Shape = unsafe extern "C" fn(Callback, *mut c_void);
type Recurse = unsafe extern "C" fn(Callback, *mut c_void, i32);

#[test]
fn every_shape_at_every_depth() {
    for (name, options) in VARIANTS {
        let path = build("frames.c", &format!("frames-{name}"), options);
        let library = Library::open(&path);
        let every_shape: Shape = library.get("every_shape");
        for depth in [1, 2, 3, 4, 5, 6, 8, 12, 16, 40] {
            let depot = depot();
            let walk = walker(depot);
            // Twice: by the miss path, then by the hit path.
            for _ in 0..2 {
                let mut job = Job::new(&walk, depth, true);
                unsafe { every_shape(capture, job.arg()) };
                assert_eq!(job.walks.len(), 5, "{name}");
                check(depot, &job);
            }
        }
    }
}

#[test]
fn a_realigned_frame_is_really_there() {
    let path = build(
        "frames.c",
        "frames-drap",
        &["-O2", "-fomit-frame-pointer", "-mavx2"],
    );
    let dump = std::process::Command::new("readelf")
        .args(["--debug-dump=frames"])
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert!(
        text.contains("DW_CFA_def_cfa_expression (DW_OP_breg6"),
        "gcc made no DRAP frame"
    );
}

#[test]
fn the_same_stack_is_the_same_node() {
    let path = build("frames.c", "frames-same", &["-O2"]);
    let library = Library::open(&path);
    let recurse: Recurse = library.get("recurse");
    let depot = depot();
    let walk = walker(depot);
    let mut job = Job::new(&walk, 12, false);
    for _ in 0..10 {
        unsafe { recurse(capture, job.arg(), 20) };
    }
    assert!(job.walks.iter().all(|w| *w == job.walks[0]));
    assert!(depot.node_count() <= 14, "{}", depot.node_count());
}

#[test]
fn deep_recursion_extends_the_bounds() {
    let path = build("frames.c", "frames-deep", &["-O2", "-fomit-frame-pointer"]);
    let library = Library::open(&path);
    let descend: Recurse = library.get("descend");
    let thread = std::thread::Builder::new().stack_size(64 << 20);
    let handle = thread.spawn(move || {
        let depot = depot();
        let walk = walker(depot);
        let mut job = Job::new(&walk, 8, false);
        // 20,000 frames of some 240 bytes: from the deepest to the shallowest, 8 frames each but at the end.
        unsafe { descend(capture, job.arg(), 20_000) };
        let stacks: Vec<_> = job.walks.iter().map(|w| stack(depot, *w)).collect();
        assert_eq!(stacks.len(), 20_001);
        assert!(stacks.iter().take(19_990).all(|s| s.len() == 8));
        assert_eq!(stacks[1], stacks[19_000]);
        let (lo, hi) = BOUNDS.with_borrow(|b| b.known());
        assert!(hi - lo > 4 << 20, "{lo:#x} {hi:#x}");
    });
    handle.unwrap().join().unwrap();
}

#[test]
fn nodes_name_their_modules() {
    let path = build("frames.c", "frames-module", &["-O2", "-Wl,--build-id=sha1"]);
    let library = Library::open(&path);
    let recurse: Recurse = library.get("recurse");
    let depot = depot();
    let walk = walker(depot);
    let mut job = Job::new(&walk, 6, false);
    unsafe { recurse(capture, job.arg(), 3) };
    let id = job.walks[0].node().unwrap();
    let all = nodes(depot);
    let first = (1..=id).find(|&n| all[n as usize].parent == 0).unwrap();
    let number = node_module(all[first as usize].key);
    assert!(number > 0 && number < depot.module_count());
    let records = depot.modules_address() as *const ModuleRecord;
    let record = unsafe { &*records.add(number as usize) };
    let name =
        unsafe { std::slice::from_raw_parts(record.name as *const u8, record.name_len as usize) };
    assert_eq!(name, path.to_str().unwrap().as_bytes());
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    assert_ne!(
        unsafe { libc::dladdr(recurse as *const c_void, &mut info) },
        0
    );
    assert_eq!(record.bias, info.dli_fbase as u64);
    assert_eq!(record.state, 1);
    assert_eq!(record.build_id_len, 20);
    let notes = std::process::Command::new("readelf")
        .arg("-n")
        .arg(&path)
        .output()
        .unwrap();
    let id: String = record.build_id.iter().map(|b| format!("{b:02x}")).collect();
    assert!(String::from_utf8_lossy(&notes.stdout).contains(&id));
    // The executable has an empty name.
    let deepest = job.walks[0].node().unwrap() as usize;
    let exe = unsafe { &*records.add(node_module(all[deepest].key) as usize) };
    assert_eq!((exe.name_len, exe.state), (0, 1));
}
