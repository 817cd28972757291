//! The rows of a Rust program, exact to the byte against its own bookkeeping: 8 threads, sizes from 1 B to 64 MiB, realloc, frees by
//! other threads, panics through hooks. One test alone in its process: at a quiet point nobody else allocates.
//!
//! `MEMLEDGER_SOAK_SECONDS=600 cargo test --release -p memledger --test exact` makes a soak of it: quiet points go on for so long.

use memledger::{CodeTag, Ledger, alloc_hooks_tag, alloc_tag};
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// The ledger with independent books: bytes and objects, counted at each call.
struct Books(Ledger);

static BYTES: AtomicI64 = AtomicI64::new(0);
static CALLS: AtomicI64 = AtomicI64::new(0);

fn book(p: *mut u8, sign: i64) {
    if !p.is_null() {
        BYTES.fetch_add(sign * memledger::usable_size(p) as i64, Ordering::Relaxed);
        CALLS.fetch_add(sign, Ordering::Relaxed);
    }
}

// SAFETY: passes everything on to an allocator.
unsafe impl GlobalAlloc for Books {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        // SAFETY: passed on.
        let p = unsafe { self.0.alloc(l) };
        book(p, 1);
        p
    }
    unsafe fn dealloc(&self, p: *mut u8, l: Layout) {
        book(p, -1);
        // SAFETY: passed on.
        unsafe { self.0.dealloc(p, l) }
    }
    unsafe fn alloc_zeroed(&self, l: Layout) -> *mut u8 {
        // SAFETY: passed on.
        let p = unsafe { self.0.alloc_zeroed(l) };
        book(p, 1);
        p
    }
    unsafe fn realloc(&self, p: *mut u8, l: Layout, n: usize) -> *mut u8 {
        book(p, -1);
        // SAFETY: passed on.
        let q = unsafe { self.0.realloc(p, l, n) };
        book(if q.is_null() { p } else { q }, 1);
        q
    }
}

#[global_allocator]
static A: Books = Books(Ledger::new());

const THREADS: usize = 8;
const ROUNDS: usize = 12;
const STEPS: usize = 3000;

/// The tags of this test, on lines of their own: rows are merged by line.
#[rustfmt::skip]
fn tags() -> [&'static CodeTag; 4] {
    [
        alloc_tag!(),
        alloc_tag!(),
        alloc_tag!(),
        alloc_tag!(),
    ]
}

struct Object {
    data: Vec<u8>,
    tag: usize,
}

struct Rng(u64);
impl Rng {
    fn below(&mut self, n: u64) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n) as usize
    }
    fn size(&mut self) -> usize {
        let bits = if self.below(500) == 0 {
            25
        } else {
            self.below(14)
        };
        1 + self.below(2 << bits)
    }
}

fn step(rng: &mut Rng, mine: &mut Vec<Object>, shared: &[Mutex<Vec<Object>>]) {
    match rng.below(12) {
        0..=4 => {
            let (tag, n) = (rng.below(4), rng.size());
            let zeroed = rng.below(2) == 0;
            let data = alloc_hooks_tag!(
                tags()[tag],
                if zeroed {
                    vec![0u8; n]
                } else {
                    Vec::with_capacity(n)
                }
            );
            mine.push(Object { data, tag });
        }
        5 | 6 if !mine.is_empty() => {
            // realloc, perhaps to another tag: the object is charged to the line that sized it last.
            let (at, tag, n) = (rng.below(mine.len() as u64), rng.below(4), rng.size());
            let object = &mut mine[at];
            if n > object.data.capacity() {
                let more = n - object.data.len();
                alloc_hooks_tag!(tags()[tag], object.data.reserve_exact(more));
                object.tag = tag;
            }
        }
        7 if !mine.is_empty() => {
            let object = mine.swap_remove(rng.below(mine.len() as u64));
            shared[rng.below(THREADS as u64)]
                .lock()
                .unwrap()
                .push(object);
        }
        8 => drop(shared[rng.below(THREADS as u64)].lock().unwrap().pop()),
        9 if rng.below(20) == 0 => {
            // The hook must be undone on the way out.
            let tag = tags()[rng.below(4)];
            let n = rng.size().min(1000);
            let caught = std::panic::catch_unwind(|| {
                alloc_hooks_tag!(tag, {
                    let data = vec![1u8; n];
                    std::panic::panic_any(data);
                })
            });
            drop(caught);
        }
        _ if !mine.is_empty() => drop(mine.swap_remove(rng.below(mine.len() as u64))),
        _ => {}
    }
}

fn check(shared: &[Mutex<Vec<Object>>], own: &[Mutex<Vec<Object>>]) {
    // The whole process, before anything else is allocated.
    let (bytes, calls) = memledger::total();
    assert_eq!(
        (bytes as i64, calls as i64),
        (BYTES.load(Ordering::Relaxed), CALLS.load(Ordering::Relaxed))
    );
    // The rows of the tags.
    let mut want = [(0u64, 0u64); 4];
    for objects in shared.iter().chain(own) {
        for o in objects.lock().unwrap().iter() {
            want[o.tag].0 += memledger::usable_size(o.data.as_ptr()) as u64;
            want[o.tag].1 += 1;
        }
    }
    let report = memledger::allocinfo().unwrap();
    for (tag, want) in tags().iter().zip(want) {
        let row = report
            .rows
            .iter()
            .find(|r| r.file == tag.file() && r.line == tag.line())
            .unwrap_or_else(|| {
                panic!(
                    "no row for {}:{} (index {})",
                    tag.file(),
                    tag.line(),
                    tag.index()
                )
            });
        assert_eq!((row.bytes, row.calls), want, "line {}", tag.line());
    }
    let sum: u64 = report.rows.iter().map(|r| r.bytes).sum();
    assert_eq!(sum, report.bytes);
    let text = report.to_string();
    assert!(text.starts_with("allocinfo - version: 2.0\n"));
    assert_eq!(text.lines().count(), report.rows.len() + 2);
}

#[test]
fn rows_equal_the_books_at_every_quiet_point() {
    std::panic::set_hook(Box::new(|_| {}));
    let shared: Vec<_> = (0..THREADS).map(|_| Mutex::new(Vec::new())).collect();
    let own: Vec<_> = (0..THREADS).map(|_| Mutex::new(Vec::new())).collect();
    let quiet = Barrier::new(THREADS + 1);
    let failed = AtomicI64::new(0);
    let (done, rounds) = (AtomicBool::new(false), AtomicI64::new(0));
    let soak = std::env::var("MEMLEDGER_SOAK_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok());
    let end = soak.map(|s| Instant::now() + Duration::from_secs(s));
    std::thread::scope(|s| {
        for (t, own) in own.iter().enumerate() {
            let (shared, quiet, done) = (&shared, &quiet, &done);
            s.spawn(move || {
                let mut rng = Rng(t as u64 * 7919 + 12345);
                while !done.load(Ordering::Relaxed) {
                    let mut mine = std::mem::take(&mut *own.lock().unwrap());
                    for _ in 0..STEPS {
                        step(&mut rng, &mut mine, shared);
                    }
                    *own.lock().unwrap() = mine;
                    quiet.wait();
                    quiet.wait();
                }
            });
        }
        let mut round = 0;
        while !done.load(Ordering::Relaxed) {
            quiet.wait();
            // A failure must not leave the threads waiting.
            let ok =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(&shared, &own)));
            if let Err(e) = ok {
                let text = e
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or(e.downcast_ref::<&str>().copied());
                eprintln!("{}", text.unwrap_or("panicked"));
                failed.fetch_add(1, Ordering::Relaxed);
            }
            round += 1;
            rounds.store(round as i64, Ordering::Relaxed);
            let over = end.map_or(round >= ROUNDS, |end| Instant::now() >= end);
            done.store(
                over || failed.load(Ordering::Relaxed) > 0,
                Ordering::Relaxed,
            );
            quiet.wait();
        }
    });
    println!("{} quiet points", rounds.load(Ordering::Relaxed));
    assert_eq!(failed.load(Ordering::Relaxed), 0);
}
