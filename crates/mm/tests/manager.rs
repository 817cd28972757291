//! The manager over a platform of plain system calls and `thread_local!`: every promise of the account and of the memory, away
//! from any real program. Each object carries a pattern, and a model keeps what should be live.

use mm::heap::{ThreadSlot, empty};
use mm::ledger::CELLS_MAX;
use mm::platform::{Misuse, Moved, Platform};
use mm::{Manager, class};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

struct Test;

thread_local! {
    static SLOT: UnsafeCell<ThreadSlot> = const { UnsafeCell::new(ThreadSlot {
        heap: null_mut(), busy: 0, exiting: 0, nested: null_mut(), nested_busy: 0, locks: 0, busy_before_fork: 0,
        trace: kmemtrace::TraceSlot::EMPTY,
    }) };
}

impl Platform for Test {
    fn reserve(bytes: usize) -> *mut u8 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping.
        let p = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if p == libc::MAP_FAILED {
            null_mut()
        } else {
            p.cast()
        }
    }
    fn reserve_limit() -> usize {
        8 << 30
    }
    fn commit(start: usize, bytes: usize) -> bool {
        // SAFETY: memory that the manager reserved.
        unsafe { libc::mprotect(start as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 }
    }
    fn purge(start: usize, bytes: usize) {
        // SAFETY: pages that hold nothing.
        let r = unsafe { libc::madvise(start as *mut _, bytes, libc::MADV_DONTNEED) };
        assert_eq!(r, 0);
    }
    fn populate(_: usize, _: usize) {}
    fn reset(start: usize, bytes: usize) -> bool {
        Self::purge(start, bytes);
        true
    }
    fn move_pages(from: usize, to: usize, bytes: usize) -> Moved {
        match MOVES.load(Ordering::Relaxed) {
            REFUSED => return Moved::No,
            LOST => {
                // As an old kernel does it: refuse when the new place is gone already.
                // SAFETY: a run of the manager that holds nothing.
                assert_eq!(unsafe { libc::munmap(to as *mut _, bytes) }, 0);
                return Moved::Lost;
            }
            _ => {}
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | 4;
        // SAFETY: both ranges are the manager's.
        let r =
            unsafe { libc::mremap(from as *mut _, bytes, bytes, flags, to as *mut libc::c_void) };
        if r as usize == to {
            Moved::Yes
        } else {
            Moved::No
        }
    }
    fn wait(_: &AtomicU32, _: u32) {
        std::thread::yield_now();
    }
    fn wake(_: &AtomicU32) {}
    fn now_ms() -> u64 {
        0
    }
    fn thread() -> *mut ThreadSlot {
        SLOT.with(|s| {
            // SAFETY: this thread's own cell.
            unsafe {
                if (*s.get()).heap.is_null() {
                    (*s.get()).heap = empty();
                }
            }
            s.get()
        })
    }
    fn watch_thread_exit() {}
    fn misuse(what: Misuse, p: usize) -> ! {
        // The manager must not be unwound: tell, and stay here.
        let told = TOLD.lock().unwrap_or_else(|e| e.into_inner()).take();
        match told {
            Some(tell) => tell.send(what).unwrap(),
            None => std::process::abort(),
        }
        eprintln!("{} on purpose: {p:#x}", what.text());
        loop {
            std::thread::park();
        }
    }
}

/// Whom `misuse` tells.
static TOLD: Mutex<Option<Sender<Misuse>>> = Mutex::new(None);

/// What the manager says to `f`, which misuses it on a thread of its own that never comes back.
fn misused(f: impl FnOnce() + Send + 'static) -> Misuse {
    let (tell, told) = channel();
    *TOLD.lock().unwrap() = Some(tell);
    std::thread::spawn(f);
    told.recv_timeout(std::time::Duration::from_secs(10))
        .expect("the misuse is noticed")
}

/// What `move_pages` does.
static MOVES: AtomicU32 = AtomicU32::new(0);
const REFUSED: u32 = 1;
const LOST: u32 = 2;

/// Serialises the tests of one manager each: a test thread's slot belongs to one manager at a time.
static ONE: Mutex<()> = Mutex::new(());

fn manager() -> &'static Manager<Test> {
    let m: &'static Manager<Test> = Box::leak(Box::new(Manager::new()));
    assert!(m.init(true));
    m
}

fn run(f: impl FnOnce(&'static Manager<Test>) + Send) {
    let _guard = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let m = manager();
    std::thread::scope(|s| {
        s.spawn(|| {
            f(m);
            m.thread_exit();
        });
    });
}

fn sums(m: &Manager<Test>) -> HashMap<u32, (u64, u64)> {
    let mut rows: HashMap<u32, (u64, u64)> = HashMap::new();
    let mut scratch = Box::new([0u32; CELLS_MAX]);
    let torn = m.scan(&mut scratch, |index, bytes| {
        let row = rows.entry(index).or_default();
        row.0 += bytes;
        row.1 += 1;
    });
    assert_eq!(torn.slabs, 0);
    rows
}

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn size(&mut self) -> usize {
        let bits = if self.below(20) == 0 {
            22
        } else {
            self.below(16)
        };
        self.below(2 << bits) as usize
    }
}

/// An object with its pattern.
#[derive(Clone, Copy)]
struct Live {
    p: usize,
    size: usize,
    index: u32,
    seed: u8,
}

fn fill(o: &Live) {
    // SAFETY: a live object of `size` bytes.
    unsafe {
        let n = o.size;
        for at in [0, n / 2, n.saturating_sub(1)] {
            if at < n {
                (o.p as *mut u8).add(at).write(o.seed ^ at as u8);
            }
        }
    }
}

fn check(o: &Live, size: usize) {
    // SAFETY: as in `fill`.
    unsafe {
        for at in [0, o.size / 2, o.size.saturating_sub(1)] {
            if at < size.min(o.size) && o.size > 0 {
                assert_eq!(
                    (o.p as *const u8).add(at).read(),
                    o.seed ^ at as u8,
                    "object {:#x} at {at}",
                    o.p
                );
            }
        }
    }
}

fn expect_rows(m: &Manager<Test>, live: &[Live]) {
    let mut want: HashMap<u32, (u64, u64)> = HashMap::new();
    for o in live {
        let row = want.entry(o.index).or_default();
        row.0 += m.usable_size(o.p) as u64;
        row.1 += 1;
    }
    assert_eq!(sums(m), want);
}

fn storm(m: &Manager<Test>, seed: u64, steps: usize, live: &mut Vec<Live>) {
    let mut rng = Rng(seed);
    for _ in 0..steps {
        let index = 16 + rng.below(50) as u32;
        match rng.below(10) {
            0..=4 => {
                let size = rng.size();
                let align = if rng.below(4) == 0 {
                    1 << rng.below(18)
                } else {
                    8
                };
                let p = if rng.below(3) == 0 {
                    let p = m.alloc_zeroed(size, align, index);
                    // SAFETY: a fresh object of `size` bytes.
                    let bytes = unsafe { std::slice::from_raw_parts(p, size) };
                    assert!(bytes.iter().all(|&b| b == 0), "not zeroed");
                    p
                } else {
                    m.alloc_aligned(size, align, index)
                };
                assert!(
                    !p.is_null() && (p as usize).is_multiple_of(align),
                    "{size} at {align}: {p:?}"
                );
                assert!(m.usable_size(p as usize) >= size);
                let o = Live {
                    p: p as usize,
                    size,
                    index,
                    seed: rng.next() as u8,
                };
                fill(&o);
                live.push(o);
            }
            5 if !live.is_empty() => {
                let at = rng.below(live.len() as u64) as usize;
                let size = rng.size().max(1);
                let old = live[at];
                // SAFETY: a live object, replaced below.
                let p = unsafe { m.realloc(old.p, size, 8, index) } as usize;
                assert!(p != 0);
                check(&Live { p, ..old }, size);
                live[at] = Live {
                    p,
                    size,
                    index,
                    seed: old.seed,
                };
                fill(&live[at]);
            }
            _ if !live.is_empty() => {
                let at = rng.below(live.len() as u64) as usize;
                let o = live.swap_remove(at);
                check(&o, o.size);
                // SAFETY: live, and dropped from the model.
                unsafe { m.free(o.p) };
            }
            _ => {}
        }
    }
}

#[test]
fn rows_equal_the_model_at_every_quiet_point() {
    run(|m| {
        let mut live = Vec::new();
        for round in 0..30 {
            storm(m, 77 + round, 2000, &mut live);
            expect_rows(m, &live);
        }
        for o in live.drain(..) {
            // SAFETY: live.
            unsafe { m.free(o.p) };
        }
        assert!(sums(m).is_empty());
    });
}

#[test]
fn rows_are_exact_after_threads_that_free_each_others_memory() {
    run(|m| {
        let pools: Vec<Mutex<Vec<Live>>> = (0..4).map(|_| Mutex::new(Vec::new())).collect();
        for round in 0..6 {
            std::thread::scope(|s| {
                for t in 0..4usize {
                    let pools = &pools;
                    s.spawn(move || {
                        // Each thread works on another thread's objects.
                        let mut live = std::mem::take(&mut *pools[(t + round) % 4].lock().unwrap());
                        storm(m, (round * 4 + t) as u64 * 31 + 7, 5000, &mut live);
                        *pools[(t + round) % 4].lock().unwrap() = live;
                        m.thread_exit();
                    });
                }
            });
            let all: Vec<Live> = pools
                .iter()
                .flat_map(|p| p.lock().unwrap().clone())
                .collect();
            expect_rows(m, &all);
        }
    });
}

#[test]
fn everything_freed_can_be_given_back() {
    run(|m| {
        let mut all = Vec::new();
        for i in 0..200_000usize {
            all.push(m.alloc(16 + i % 500, 20) as usize);
        }
        for p in all {
            // SAFETY: live.
            unsafe { m.free(p) };
        }
        assert!(m.trim());
        let (used, dirty, _) = m.arena.usage();
        assert_eq!(dirty, 0);
        // What stays: the bump region and metadata.
        assert!(used <= (16 + 4) * mm::arena::UNIT, "{used} bytes in use");
    });
}

#[test]
fn huge_objects_grow_in_place_or_by_moving_pages() {
    run(|m| {
        let mut p = m.alloc(1 << 20, 30) as usize;
        let mut size = 1 << 20;
        // Something behind it, so that it has to move sometimes.
        let mut walls = Vec::new();
        while size < 600 << 20 {
            // SAFETY: live objects of these sizes.
            unsafe {
                (p as *mut u64).write(size as u64);
                ((p + size - 8) as *mut u64).write(!size as u64);
                let q = m.realloc(p, size * 2, 8, 31) as usize;
                assert_eq!((q as *const u64).read(), size as u64);
                assert_eq!(((q + size - 8) as *const u64).read(), !size as u64);
                p = q;
            }
            size *= 2;
            walls.push(m.alloc(40_000, 32) as usize);
        }
        assert_eq!(sums(m)[&31], (size as u64, 1));
        // SAFETY: live.
        unsafe {
            p = m.realloc(p, 100_000, 8, 31) as usize;
            assert_eq!((p as *const u64).read(), (size / 2) as u64);
            assert_eq!(sums(m)[&31], (102_400, 1));
            m.free(p);
            let q = m.alloc_zeroed(64 << 20, 8, 33);
            assert!(
                std::slice::from_raw_parts(q, 64 << 20)
                    .iter()
                    .all(|&b| b == 0)
            );
            m.free(q as usize);
        }
        for w in walls {
            // SAFETY: live.
            unsafe { m.free(w) };
        }
        assert!(sums(m).is_empty());
    });
}

#[test]
fn pages_that_cannot_be_moved_are_copied_or_the_object_stays() {
    run(|m| {
        let grow = |p: usize, size: usize| {
            // SAFETY: a live object.
            unsafe { m.realloc(p, size, 8, 40) as usize }
        };
        MOVES.store(REFUSED, Ordering::Relaxed);
        let p = m.alloc(4 << 20, 40) as usize;
        let wall = m.alloc(100_000, 41) as usize;
        // SAFETY: live objects of these sizes.
        unsafe {
            (p as *mut u64).write(7);
            let q = grow(p, 64 << 20);
            assert_eq!((q as *const u64).read(), 7);
            // Too large for the hole that was left: right behind `q`.
            let wall2 = m.alloc(8 << 20, 41) as usize;
            MOVES.store(LOST, Ordering::Relaxed);
            assert_eq!(grow(q, 256 << 20), 0);
            MOVES.store(0, Ordering::Relaxed);
            assert_eq!((q as *const u64).read(), 7);
            assert_eq!(sums(m)[&40], (64 << 20, 1));
            // The hole is not handed out: this would fault.
            let r = m.alloc_zeroed(256 << 20, 8, 42);
            assert!(
                std::slice::from_raw_parts(r, 256 << 20)
                    .iter()
                    .step_by(4096)
                    .all(|&b| b == 0)
            );
            for p in [q, r as usize, wall, wall2] {
                m.free(p);
            }
        }
        assert!(sums(m).is_empty());
    });
}

#[test]
fn sizes_that_no_address_space_has_are_refused() {
    run(|m| {
        for shift in 32..63 {
            for less in [0, 1 << 16, 1 << 20] {
                let size = (1usize << shift) - less;
                if size > 8 << 30 {
                    assert!(m.alloc(size, 16).is_null(), "{size:#x}");
                    assert!(m.alloc_zeroed(size, 8, 16).is_null(), "{size:#x}");
                    assert!(
                        m.alloc_aligned(100_000, size.next_power_of_two(), 16)
                            .is_null()
                    );
                }
            }
        }
        let p = m.alloc(100_000, 16) as usize;
        // SAFETY: a live object; failures leave it.
        unsafe {
            assert!(m.realloc(p, 0xffff_ffff_0000, 8, 16).is_null());
            m.free(p);
        }
        assert!(sums(m).is_empty());
    });
}

#[test]
fn misuse_is_told_apart() {
    run(|m| {
        let p = m.alloc(100, 16) as usize;
        let big = m.alloc(1 << 20, 16) as usize;
        let local = Box::leak(Box::new([0u64; 2]));
        let foreign = (&raw const local[0]) as usize;
        // SAFETY: misuse on purpose; it is noticed before anything is changed.
        unsafe {
            assert_eq!(misused(move || m.free(p + 8)), Misuse::Interior);
            assert_eq!(misused(move || m.free(p + 1)), Misuse::Interior);
            assert_eq!(misused(move || m.free(big + 4096)), Misuse::Interior);
            assert_eq!(misused(move || m.free(big + (1 << 17))), Misuse::NoObject);
            m.free(p);
            assert_eq!(misused(move || m.free(p)), Misuse::DoubleFree);
            m.free(big);
            assert_eq!(misused(move || m.free(big)), Misuse::NoObject);
            m.free(foreign);
            assert_eq!(m.foreign_frees.load(Ordering::Relaxed), 1);
            let realloc = misused(move || assert!(m.realloc(foreign, 10, 8, 16).is_null()));
            assert_eq!(realloc, Misuse::Foreign);
        }
        assert!(sums(m).is_empty());
    });
}

#[test]
fn a_signal_handler_inside_the_manager_gets_memory_and_can_free_it() {
    run(|m| {
        let outside = m.alloc(64, 17) as usize;
        let thread = Test::thread();
        // SAFETY: this thread's slot: as if a signal had come while the manager was at work.
        unsafe { (*thread).busy = 1 };
        let mut inside = Vec::new();
        for i in 0..5000usize {
            inside.push(m.alloc(8 + i % 3000, 18) as usize);
        }
        inside.push(m.alloc(200_000, 18) as usize);
        assert!(inside.iter().all(|&p| p != 0));
        assert_eq!(sums(m)[&18].1, 5001);
        for p in inside {
            // SAFETY: live.
            unsafe { m.free(p) };
        }
        // SAFETY: live; this thread's slot.
        unsafe {
            m.free(outside);
            (*thread).busy = 0;
        }
        assert!(sums(m).is_empty());
    });
}

#[test]
fn out_of_memory_is_null_and_nothing_breaks() {
    run(|m| {
        assert!(m.alloc(usize::MAX / 2 - 100_000, 16).is_null());
        assert!(m.alloc(9 << 30, 16).is_null());
        let mut all = Vec::new();
        loop {
            let p = m.alloc(512 << 20, 16) as usize;
            if p == 0 {
                break;
            }
            all.push(p);
        }
        assert!(all.len() > 10);
        let small = m.alloc(100, 16) as usize;
        // SAFETY: live; a failed realloc leaves the object.
        unsafe {
            assert!(m.realloc(all[0], 1 << 30, 8, 17).is_null());
            assert_eq!(m.usable_size(all[0]), 512 << 20);
            for p in all {
                m.free(p);
            }
            m.free(small);
        }
        assert!(!m.alloc(1 << 30, 16).is_null());
    });
}

#[test]
fn every_class_hands_out_distinct_slots() {
    run(|m| {
        for c in 0..class::CLASSES {
            let n = 3 * class::capacity_of_class(c) + 5;
            let mut seen: Vec<usize> = (0..n).map(|_| m.alloc_class(c, 40) as usize).collect();
            seen.sort_unstable();
            assert!(
                seen.windows(2)
                    .all(|w| w[1] - w[0] >= class::size_of_class(c))
            );
            for p in seen {
                // SAFETY: live.
                unsafe { m.free(p) };
            }
        }
    });
}
