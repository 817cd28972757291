//! The main thread's stack. Has no harness, because that runs tests on other threads.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;
use common::*;
use std::ffi::c_void;

type Shape = unsafe extern "C" fn(Callback, *mut c_void);
type Recurse = unsafe extern "C" fn(Callback, *mut c_void, i32);

/// Address range of the mapping with this name.
fn mapping(name: &str) -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with(name)).unwrap();
    let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
    (
        usize::from_str_radix(start, 16).unwrap(),
        usize::from_str_radix(end, 16).unwrap(),
    )
}

fn main() {
    let path = build(
        "frames.c",
        "frames-main",
        &["-O2", "-fomit-frame-pointer", "-mavx2"],
    );
    let library = Library::open(&path);
    let every_shape: Shape = library.get("every_shape");
    let descend: Recurse = library.get("descend");
    let depot = depot();
    let walk = walker(depot);
    let mut job = Job::new(&walk, 64, true);
    unsafe { every_shape(capture, job.arg()) };
    check(depot, &job);
    let (lo, hi) = BOUNDS.with_borrow(|b| b.known());
    let stack = mapping("[stack]");
    assert!(
        stack.0 <= lo && lo < hi && hi <= stack.1,
        "{lo:#x} {hi:#x} {stack:#x?}"
    );
    // The kernel extends the mapping as the recursion goes deeper.
    let mut job = Job::new(&walk, 8, false);
    unsafe { descend(capture, job.arg(), 10_000) };
    let grown = BOUNDS.with_borrow(|b| b.known());
    assert!(grown.1 == hi && lo - grown.0 > 2 << 20 && mapping("[stack]").0 <= grown.0);
    // A forked child goes on with what it has.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        depot.after_fork();
        let mut job = Job::new(&walk, 64, true);
        unsafe { every_shape(capture, job.arg()) };
        check(depot, &job);
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}
