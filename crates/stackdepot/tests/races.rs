//! Many threads and growth; tables that are full; a system without memory or loader.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;
use common::*;
use stackdepot::{Depot, InitError, Linux, Object, Platform, StackBounds, Walk};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

type Choose = unsafe extern "C" fn(Callback, *mut c_void, u32, i32);
/// Levels of choice: 4^6 stacks, 5,460 nodes and a few: more than half of the first table.
const LEVELS: i32 = 6;

fn choose_of(name: &str) -> Choose {
    let path = build("frames.c", name, &["-O2", "-fomit-frame-pointer"]);
    std::mem::ManuallyDrop::new(Library::open(&path)).get("choose")
}

#[test]
fn eight_threads_through_growth() {
    let choose = choose_of("frames-race");
    for _ in 0..4 {
        let depot = depot();
        let start = Barrier::new(8);
        let per_thread: Vec<HashMap<u32, Walk>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8u32)
                .map(|t| {
                    let start = &start;
                    scope.spawn(move || {
                        let walk = walker(depot);
                        start.wait();
                        // The same stacks in two orders, so that some race and some do not.
                        (0..4096u32)
                            .map(|i| {
                                let bits = if t % 2 == 0 { i } else { 4095 - i };
                                let mut job = Job::new(&walk, LEVELS as u32 + 1, false);
                                unsafe { choose(capture, job.arg(), bits, LEVELS) };
                                (bits, job.walks[0])
                            })
                            .collect()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let stacks: HashMap<u32, Vec<u64>> = per_thread[0]
            .iter()
            .map(|(&b, &w)| (b, stack(depot, w)))
            .collect();
        let distinct: std::collections::HashSet<_> = stacks.values().collect();
        assert_eq!(distinct.len(), 4096);
        for (bits, walk) in per_thread.iter().flatten() {
            assert_eq!(stack(depot, *walk), stacks[bits]);
        }
        // Duplicates, and nodes made in vain by losers, are rare.
        let needed: usize = 2 + (1..=LEVELS as u32).map(|l| 4usize.pow(l)).sum::<usize>();
        let made = depot.node_count() as usize;
        println!("{made} nodes for {needed}");
        assert!(made < needed + needed / 10, "{made} {needed}");
    }
}

#[test]
fn stacks_found_again_are_right() {
    let choose = choose_of("frames-right");
    let depot = depot();
    let walk = walker(depot);
    for bits in (0..4096).step_by(7) {
        let mut job = Job::new(&walk, 10, true);
        unsafe { choose(capture, job.arg(), bits, LEVELS) };
        check(depot, &job);
    }
}

#[test]
fn a_full_table_says_so() {
    let choose = choose_of("frames-full");
    let depot = Depot::with_platform(Linux, 100);
    depot.init().unwrap();
    let walk = walker(&depot);
    let mut results = HashMap::new();
    for bits in (0..4096).chain(0..4096) {
        let mut job = Job::new(&walk, LEVELS as u32 + 1, false);
        unsafe { choose(capture, job.arg(), bits, LEVELS) };
        let walk = job.walks[0];
        // What is known stays known, what is not stays out.
        assert_eq!(*results.entry(bits).or_insert(walk), walk);
    }
    let full = results.values().filter(|&&w| w == Walk::FULL).count();
    assert!(full > 4000 && full < 4096, "{full}");
    assert!(
        results
            .values()
            .all(|w| w.node().is_some() || *w == Walk::FULL)
    );
    assert_eq!(depot.node_count(), 100);
}

/// A system with so many mappings to give, and no loader.
struct Poor {
    mappings: AtomicUsize,
}
unsafe impl Platform for Poor {
    fn reserve(&self, bytes: usize) -> *mut u8 {
        if bytes > 1 << 20 {
            std::ptr::null_mut()
        } else {
            Linux.reserve(bytes)
        }
    }
    fn commit(&self, start: *mut u8, bytes: usize) -> bool {
        Linux.commit(start, bytes)
    }
    fn map(&self, bytes: usize) -> *mut u8 {
        let left = self
            .mappings
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if left.is_err() {
            std::ptr::null_mut()
        } else {
            Linux.map(bytes)
        }
    }
    fn find_object(&self, _: usize) -> Option<Object> {
        None
    }
    fn readable(&self, page: usize) -> bool {
        Linux.readable(page)
    }
    fn stack_end(&self) -> usize {
        Linux.stack_end()
    }
}

fn poor(mappings: usize) -> Depot<Poor> {
    Depot::with_platform(
        Poor {
            mappings: mappings.into(),
        },
        1 << 20,
    )
}

#[test]
fn without_memory_there_is_no_walk() {
    for mappings in 0..5 {
        let depot = poor(mappings);
        assert_eq!(depot.init(), Err(InitError::NoMemory), "{mappings}");
        let word = [0x12345usize];
        let walk = unsafe { depot.walk(word.as_ptr() as usize, 0, 1, &StackBounds::default()) };
        assert_eq!(walk, Walk::NONE);
    }
    let depot = poor(5);
    assert_eq!(depot.init(), Ok(()));
    assert_eq!(depot.init(), Err(InitError::Repeated));
}

#[test]
fn a_table_that_cannot_grow_still_answers() {
    let choose = choose_of("frames-poor");
    // Only the first table. No loader: the rule of each address is a guess, which ends at once without frame pointers.
    let depot = poor(5);
    depot.init().unwrap();
    let walk = walker(&depot);
    for bits in 0..4096 {
        let mut job = Job::new(&walk, 8, false);
        unsafe { choose(capture, job.arg(), bits, LEVELS) };
        assert!(job.walks[0].node().is_some());
    }
    // Nodes for made-up return addresses fill the table up to its last slot; then it is full, and says so.
    let mut full = 0;
    let mut seen = HashMap::new();
    for ra in (0x10_0000_usize..).step_by(16).take(6000) {
        let word = [ra];
        let walk = unsafe { depot.walk(word.as_ptr() as usize, 0, 1, &StackBounds::default()) };
        match walk.node() {
            Some(node) => assert!(seen.insert(node, ra).is_none()),
            None => full += 1,
        }
    }
    assert!(full > 1000, "{full}");
    assert!(seen.len() > 3000, "{}", seen.len());
}

#[test]
fn return_addresses_that_cannot_be() {
    let depot = depot();
    let bounds = StackBounds::default();
    for ra in [0usize, 1, 4095, 1 << 47, usize::MAX, 0x8000_0000_0000_0000] {
        let word = [ra];
        assert_eq!(
            unsafe { depot.walk(word.as_ptr() as usize, 0, 8, &bounds) },
            Walk::NONE
        );
    }
    assert_eq!(depot.node_count(), 1);
}

static INTERRUPTED: AtomicPtr<Depot> = AtomicPtr::new(std::ptr::null_mut());
static CHOOSE: AtomicUsize = AtomicUsize::new(0);
static SIGNALS: AtomicUsize = AtomicUsize::new(0);

/// Walks on its own account: the interrupted walk has the thread's bounds.
#[unsafe(naked)]
unsafe extern "C" fn capture_in_signal(arg: *mut c_void) {
    core::arch::naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {entered}", entered = sym entered_in_signal)
}

unsafe extern "C" fn entered_in_signal(_: *mut c_void, sp: usize, fp: usize) {
    let depot = unsafe { &*INTERRUPTED.load(Ordering::Relaxed) };
    let walk = unsafe { depot.walk(sp, fp, 9, &StackBounds::default()) };
    if walk.node().is_some() {
        SIGNALS.fetch_add(1, Ordering::Relaxed);
    }
}

extern "C" fn on_signal(_: i32) {
    let choose: Choose = unsafe { std::mem::transmute(CHOOSE.load(Ordering::Relaxed)) };
    let bits = (SIGNALS.load(Ordering::Relaxed) * 2_654_435_761) as u32 >> 7 & 0xfff;
    unsafe { choose(capture_in_signal, std::ptr::null_mut(), bits, LEVELS) };
}

#[test]
fn signals_may_interrupt_a_walk_anywhere() {
    let choose = choose_of("frames-interrupt");
    CHOOSE.store(choose as usize, Ordering::Relaxed);
    INTERRUPTED.store(std::ptr::from_ref(depot()).cast_mut(), Ordering::Relaxed);
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()),
            0
        );
    }
    let target = unsafe { libc::pthread_self() } as usize;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                unsafe { libc::pthread_kill(target as libc::pthread_t, libc::SIGUSR2) };
                std::thread::yield_now();
            }
        });
        let mut rounds = 0;
        while rounds < 5 || rounds < 1000 && SIGNALS.load(Ordering::Relaxed) < 200 {
            rounds += 1;
            // A fresh depot each time: most walks miss.
            let depot = depot();
            INTERRUPTED.store(std::ptr::from_ref(depot).cast_mut(), Ordering::Relaxed);
            let walk = walker(depot);
            let mut seen = HashMap::new();
            for bits in (0..4096).chain(0..4096) {
                let mut job = Job::new(&walk, LEVELS as u32 + 1, false);
                unsafe { choose(capture, job.arg(), bits, LEVELS) };
                let frames = stack(depot, job.walks[0]);
                assert_eq!(seen.entry(bits).or_insert_with(|| frames.clone()), &frames);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(SIGNALS.load(Ordering::Relaxed) >= 200, "{SIGNALS:?}");
}
