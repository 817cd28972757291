//! A model of the manager under threads and signal handlers, with shuttle's schedulers.
//!
//! Run: `.ci/models`, or `RUSTFLAGS="--cfg shuttle" cargo test -p mm --lib --release model`. `MODEL_RUNS` sets the number of schedules.
//!
//! Three threads allocate, resize and free, also each other's objects, on a manager of their own; at any access to a shared word
//! (locks, lists, records of units, slots of vectors) the scheduler may go on with another thread, or a "signal
//! handler" may run there and allocate and free on the same thread. A lock sleeps and wakes as a futex does, so that a wake that is lost
//! is a deadlock, which shuttle reports. Checked: no two live objects overlap (each carries its name at both ends), the
//! rows are the live objects at the end, and nothing is left after all was freed.
//!
//! Bound: the schedules are random (uniform, and PCT with 3 preemptions), not all; memory is sequentially consistent.

extern crate std;
use crate::Manager;
use crate::heap::{ThreadSlot, empty};
use crate::ledger::CELLS_MAX;
use crate::platform::{Misuse, Moved, Platform};
use crate::sync::AtomicU32;
use core::ptr::null_mut;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use std::boxed::Box;
use std::cell::{Cell, UnsafeCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::vec::Vec;

const RESERVED: usize = 64 << 20;
const THREADS: u32 = 3;
const STEPS: u32 = 12;

/// One execution: its manager, its sleepers, and the objects that threads leave to each other.
struct World {
    manager: Manager<Model>,
    /// Where the sleepers of each word sleep.
    futex: Mutex<HashMap<usize, Arc<Condvar>>>,
    live: std::sync::Mutex<Vec<Live>>,
    lost: std::sync::atomic::AtomicU32,
}

/// An object that carries its own address at both ends.
#[derive(Clone, Copy)]
struct Live {
    p: usize,
    size: usize,
    index: u32,
}

#[repr(align(128))]
struct Own {
    slot: UnsafeCell<ThreadSlot>,
    /// The world that signal handlers of this thread allocate in; null: no signals.
    world: Cell<*const World>,
    handling: Cell<bool>,
}

shuttle::thread_local! {
    static OWN: Own = Own {
        slot: UnsafeCell::new(ThreadSlot {
            heap: empty(),
            busy: 0,
            exiting: 0,
            nested: null_mut(),
            nested_busy: 0,
            locks: 0,
            busy_before_fork: 0,
            trace: kmemtrace::TraceSlot::EMPTY,
        }),
        world: Cell::new(core::ptr::null()),
        handling: Cell::new(false),
    };
}

std::thread_local! {
    /// Any access to it lets the scheduler change threads.
    static SWITCH: AtomicU32 = const { AtomicU32::new(0) };
    /// The sleepers' world, and the mapping of the manager that is being modelled.
    static NOW: Cell<(*const World, usize, usize)> = const { Cell::new((core::ptr::null(), 0, 0)) };
}

/// Other threads, and now and then a signal handler.
pub(crate) fn point() {
    SWITCH.with(|s| s.load(Ordering::Relaxed));
    let world = OWN.with(|o| {
        let quiet =
            o.world.get().is_null() || o.handling.get() || thread_rng().gen_range(0..40) != 0;
        (!quiet).then(|| {
            o.handling.set(true);
            o.world.get()
        })
    });
    if let Some(world) = world {
        // SAFETY: the world of this thread, which lives until all its threads are joined.
        let world = unsafe { &*world };
        step(world, 100);
        step(world, 100);
        OWN.with(|o| o.handling.set(false));
    }
}

struct Model;

impl Platform for Model {
    fn reserve(bytes: usize) -> *mut u8 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping.
        let p = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(p, libc::MAP_FAILED);
        NOW.with(|n| n.set((n.get().0, p as usize, bytes)));
        p.cast()
    }
    fn reserve_limit() -> usize {
        RESERVED
    }
    fn commit(start: usize, bytes: usize) -> bool {
        // SAFETY: memory that the manager reserved.
        unsafe { libc::mprotect(start as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 }
    }
    fn purge(start: usize, bytes: usize) {
        // SAFETY: pages that hold nothing.
        assert_eq!(
            unsafe { libc::madvise(start as *mut _, bytes, libc::MADV_DONTNEED) },
            0
        );
    }
    fn populate(_: usize, _: usize) {}
    fn reset(start: usize, bytes: usize) -> bool {
        Self::purge(start, bytes);
        true
    }
    fn move_pages(_: usize, _: usize, _: usize) -> Moved {
        Moved::No
    }
    fn wait(word: &AtomicU32, value: u32) {
        // SAFETY: the world of this execution.
        let world = unsafe { &*NOW.with(Cell::get).0 };
        let mut sleepers = world.futex.lock().unwrap();
        if word.load(Ordering::SeqCst) == value {
            let at = core::ptr::from_ref(word) as usize;
            let woken = sleepers.entry(at).or_default().clone();
            drop(woken.wait(sleepers).unwrap());
        }
    }
    fn wake(word: &AtomicU32) {
        // SAFETY: as above.
        let world = unsafe { &*NOW.with(Cell::get).0 };
        let at = core::ptr::from_ref(word) as usize;
        if let Some(woken) = world.futex.lock().unwrap().get(&at) {
            woken.notify_one();
        }
    }
    fn now_ms() -> u64 {
        0
    }
    fn thread() -> *mut ThreadSlot {
        OWN.with(|o| o.slot.get())
    }
    fn watch_thread_exit() {}
    fn misuse(what: Misuse, p: usize) -> ! {
        panic!("{} {p:#x}", what.text());
    }
}

fn mark(o: &Live) {
    // SAFETY: a live object of at least 16 bytes.
    unsafe {
        (o.p as *mut usize).write_unaligned(o.p);
        ((o.p + o.size - 8) as *mut usize).write_unaligned(o.p ^ o.size);
    }
}

fn check(o: &Live) {
    // SAFETY: as above.
    unsafe {
        assert_eq!((o.p as *const usize).read_unaligned(), o.p, "overwritten");
        let end = ((o.p + o.size - 8) as *const usize).read_unaligned();
        assert_eq!(end, o.p ^ o.size, "overwritten at the end");
    }
}

/// Allocates, resizes or frees one object. `largest` in bytes.
fn step(world: &World, largest: usize) {
    let mut rng = thread_rng();
    let (m, index) = (&world.manager, 16 + rng.gen_range(0..4));
    let old = {
        let mut live = world.live.lock().unwrap();
        let what = rng.gen_range(0..8);
        let at = if what < 4 || live.is_empty() {
            None
        } else {
            Some(rng.gen_range(0..live.len()))
        };
        at.map(|at| (live.swap_remove(at), what == 4))
    };
    let most = if rng.gen_bool(0.5) { 32 } else { largest };
    let size = rng.gen_range(16..=most);
    let p = match old {
        Some((o, false)) => {
            check(&o);
            // SAFETY: live, and out of the list.
            return unsafe { m.free(o.p) };
        }
        Some((o, true)) if o.size <= largest => {
            // SAFETY: live, and out of the list.
            let p = unsafe { m.realloc(o.p, size, 8, index) } as usize;
            if p == 0 {
                world.live.lock().unwrap().push(o);
            }
            p
        }
        Some((o, true)) => {
            world.live.lock().unwrap().push(o);
            return;
        }
        None if size <= 100 && rng.gen_range(0..8) == 0 => m.alloc_bump(size, 8, index) as usize,
        None => m.alloc(size, index) as usize,
    };
    if p == 0 {
        // Only handlers may be refused.
        world.lost.fetch_add(1, Ordering::Relaxed);
        assert!(OWN.with(|o| o.handling.get()), "no memory for {size} bytes");
        return;
    }
    let o = Live { p, size, index };
    mark(&o);
    world.live.lock().unwrap().push(o);
}

fn rows(m: &Manager<Model>) -> HashMap<u32, u64> {
    let mut rows = HashMap::new();
    let mut scratch = Box::new([0u32; CELLS_MAX]);
    let torn = m.scan(&mut scratch, |index, _| {
        *rows.entry(index).or_default() += 1
    });
    assert_eq!(torn.slabs, 0);
    rows
}

fn world() -> Arc<World> {
    let world = Arc::new(World {
        manager: Manager::new(),
        futex: Mutex::new(HashMap::new()),
        live: Default::default(),
        lost: Default::default(),
    });
    NOW.with(|n| n.set((Arc::as_ptr(&world), 0, 0)));
    world
}

fn unmap() {
    let (_, start, bytes) = NOW.with(Cell::get);
    // SAFETY: the manager's whole memory; nothing uses it any more.
    assert_eq!(unsafe { libc::munmap(start as *mut _, bytes) }, 0);
}

/// Runs that handlers put aside, while other threads take and give runs: all come back.
fn put_aside() {
    let world = world();
    assert!(world.manager.init(true));
    let before = world.manager.arena.usage().0;
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let world = Send(world.clone());
            shuttle::thread::spawn(move || {
                let arena = &world.all().manager.arena;
                for n in [1, 2] {
                    let run = arena.take(n, 1, false, false).unwrap();
                    arena.forget(run.first, n);
                    arena.put_aside(run.first, n);
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    assert_eq!(world.manager.arena.usage().0, before);
    unmap();
}

fn execution(largest: usize, signals: bool) {
    let world = world();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let world = Send(world.clone());
            shuttle::thread::spawn(move || {
                let world = world.all();
                assert!(world.manager.init(true));
                OWN.with(|o| {
                    o.world.set(if signals {
                        Arc::as_ptr(&world)
                    } else {
                        core::ptr::null()
                    })
                });
                for _ in 0..STEPS {
                    step(&world, largest);
                }
                OWN.with(|o| o.world.set(core::ptr::null()));
                world.manager.thread_exit();
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    let mut want: HashMap<u32, u64> = HashMap::new();
    let live = core::mem::take(&mut *world.live.lock().unwrap());
    for o in &live {
        check(o);
        *want.entry(o.index).or_default() += 1;
    }
    assert_eq!(rows(&world.manager), want);
    for o in &live {
        // SAFETY: live.
        unsafe { world.manager.free(o.p) };
    }
    assert!(rows(&world.manager).is_empty());
    world.manager.thread_exit();
    unmap();
}

/// The world is used by one thread at a time, as shuttle runs them.
struct Send(Arc<World>);
// SAFETY: all of shuttle's threads are continuations on one thread.
unsafe impl core::marker::Send for Send {}
impl Send {
    fn all(self) -> Arc<World> {
        self.0
    }
}

fn in_all_orders(f: impl Fn() + Copy + core::marker::Send + Sync + 'static) {
    let runs =
        std::env::var("MODEL_RUNS").map_or(300, |n| n.parse().expect("MODEL_RUNS is a number"));
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(2_000_000);
    let random = shuttle::scheduler::RandomScheduler::new(runs);
    shuttle::Runner::new(random, config.clone()).run(f);
    let pct = shuttle::scheduler::PctScheduler::new(3, runs);
    shuttle::Runner::new(pct, config).run(f);
}

#[test]
fn model_small_objects() {
    in_all_orders(|| execution(200, false));
}

#[test]
fn model_small_and_large_objects() {
    in_all_orders(|| execution(300_000, false));
}

#[test]
fn model_signal_handlers() {
    in_all_orders(|| execution(300_000, true));
}

#[test]
fn model_runs_put_aside() {
    in_all_orders(put_aside);
}
