//! Named caches: memory of their own, objects charged to who allocates them, text as the kernel's, clean ends and unclean ones.

use memledger::{CacheBox, CacheError, KmemCache, Ledger, alloc_hooks, allocinfo, slabinfo};
use memledger_formats::slabinfo::Cache;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static ALLOC: Ledger = Ledger::new();

/// The tests fork, and look at sums of the process.
static ONE: Mutex<()> = Mutex::new(());

struct Conn {
    id: u64,
    bytes: [u8; 192],
}

impl Conn {
    fn new(id: u64) -> Self {
        Conn {
            id,
            bytes: [7; 192],
        }
    }
}

/// The row of a cache.
fn listed(name: &str) -> Option<Cache> {
    slabinfo()
        .unwrap()
        .caches
        .into_iter()
        .find(|c| c.name == name)
}

/// Live (bytes, calls) of the rows of a line of this file.
fn charged(line: u32) -> (u64, u64) {
    let report = allocinfo().unwrap();
    let rows = report
        .rows
        .iter()
        .filter(|r| r.file.ends_with("pools.rs") && r.line == line);
    rows.fold((0, 0), |sum, r| (sum.0 + r.bytes, sum.1 + r.calls))
}

#[test]
fn objects_are_charged_to_their_callers_and_slabs_listed_by_name() {
    let _one = ONE.lock();
    let cache = KmemCache::<Conn>::create("conn").unwrap();
    let empty = listed("conn").unwrap();
    assert_eq!(
        (empty.num_slabs, empty.active_objs, empty.objsize),
        (0, 0, 200)
    );
    let mut list: Vec<CacheBox<'_, Conn>> = Vec::with_capacity(2000);
    let site = line!() + 2;
    for id in 0..1000 {
        list.push(cache.alloc(Conn::new(id)));
    }
    let tag = line!() + 2;
    for id in 1000..1500 {
        list.push(alloc_hooks!(cache.alloc(Conn::new(id))));
    }
    // Exactly as large as the object: malloc would give 208.
    assert_eq!(charged(site), (1000 * 200, 1000));
    assert_eq!(charged(tag), (500 * 200, 500));
    let full = listed("conn").unwrap();
    let slabs = 1500_u64.div_ceil(full.objperslab);
    assert_eq!(
        (full.active_objs, full.num_slabs, full.active_slabs),
        (1500, slabs, slabs)
    );
    assert_eq!(full.num_objs, slabs * full.objperslab);
    assert_eq!(full.pagesperslab, 16);
    assert_eq!(
        full.to_string(),
        format!(
            "conn                {:>4} {:>6}    200 {:>4}   16 : tunables    0    0    0 : slabdata {:>6} {:>6}      0",
            1500, full.num_objs, full.objperslab, slabs, slabs
        )
    );
    // All are there, apart, and as they were.
    let mut at: Vec<usize> = list
        .iter()
        .map(|c| std::ptr::from_ref(&**c).addr())
        .collect();
    at.sort_unstable();
    assert!(at.windows(2).all(|w| w[1] - w[0] >= 200));
    assert!(
        list.iter()
            .enumerate()
            .all(|(i, c)| c.id == i as u64 && c.bytes == [7; 192])
    );
    // Half are freed: the others stay charged.
    let mut n = 0;
    list.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    assert_eq!((charged(site).1, charged(tag).1), (500, 250));
    assert_eq!(CacheBox::into_inner(list.pop().unwrap()).id, 1499);
    assert_eq!(cache.info().live, 749);
    list.clear();
    assert_eq!((charged(site), charged(tag)), ((0, 0), (0, 0)));
    assert_eq!(cache.info().slabs, 1, "one empty slab is kept");
    assert_eq!(cache.shrink(), 65536);
    assert_eq!(listed("conn").unwrap().num_slabs, 0);
    drop(list);
    cache.destroy().unwrap();
    assert_eq!(listed("conn"), None);
}

#[test]
fn sizes_alignments_and_names() {
    let _one = ONE.lock();
    #[repr(align(256))]
    struct Wide(u8);
    let wide = KmemCache::<Wide>::create("wide").unwrap();
    let lines = KmemCache::<[u8; 40]>::create_aligned("lines", 64).unwrap();
    let units = KmemCache::<()>::create_aligned("units", 65536).unwrap();
    let large = KmemCache::<[u8; 100_000]>::create("large").unwrap();
    let empty = KmemCache::<()>::create("empty").unwrap();
    assert_eq!((wide.info().slot_bytes, lines.info().slot_bytes), (256, 64));
    assert_eq!(
        (large.info().slot_bytes, empty.info().slot_bytes),
        (100_000, 8)
    );
    for _ in 0..100 {
        let (w, l) = (wide.alloc(Wide(3)), lines.alloc([1; 40]));
        let (u, b) = (units.alloc(()), large.alloc([9; 100_000]));
        assert!(std::ptr::from_ref(&*w).addr().is_multiple_of(256) && w.0 == 3);
        assert!(std::ptr::from_ref(&*l).addr().is_multiple_of(64));
        assert!(std::ptr::from_ref(&*u).addr().is_multiple_of(65536));
        assert_eq!((b[0], b[99_999], large.info().live), (9, 9, 1));
        std::mem::forget((u, l));
    }
    assert_eq!((units.info().live, lines.info().live), (100, 100));
    for name in ["", "a b", "tab\t", &"x".repeat(65)] {
        assert_eq!(KmemCache::<u8>::create(name).unwrap_err(), CacheError::Name);
    }
    assert!(KmemCache::<u8>::create(&"x".repeat(64)).is_ok());
    assert_eq!(
        KmemCache::<u8>::create_aligned("x", 3).unwrap_err(),
        CacheError::Size
    );
    assert_eq!(
        KmemCache::<u8>::create_aligned("x", 1 << 17).unwrap_err(),
        CacheError::Size
    );
    assert_eq!(
        KmemCache::<[u8; 2 << 20]>::create("x").unwrap_err(),
        CacheError::Size
    );
    let counted = KmemCache::create_with("made", || 41_u64).unwrap();
    assert_eq!(*counted.alloc_new() + 1, 42);
}

#[test]
fn values_are_dropped_once_also_by_other_threads() {
    let _one = ONE.lock();
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Counted([u64; 5]);
    impl Drop for Counted {
        fn drop(&mut self) {
            assert_eq!(self.0[0], self.0[4]);
            DROPS.fetch_add(1, Ordering::Relaxed);
        }
    }
    let cache = KmemCache::<Counted>::create("counted").unwrap();
    let shared = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for t in 0..8 {
            let (cache, shared) = (&cache, &shared);
            scope.spawn(move || {
                for i in 0..20_000_u64 {
                    let object = cache.alloc(Counted([i * 8 + t; 5]));
                    // Every other one is dropped by whoever comes.
                    let mut list = shared.lock().unwrap();
                    let other: Option<CacheBox<'_, Counted>> = list.pop();
                    if i % 2 == 0 {
                        list.push(object);
                    }
                    drop(list);
                    drop(other);
                }
            });
        }
    });
    let left = shared.into_inner().unwrap();
    assert_eq!(cache.info().live, left.len() as u64);
    assert_eq!(DROPS.load(Ordering::Relaxed) + left.len(), 160_000);
    drop(left);
    assert_eq!(
        (cache.info().live, DROPS.load(Ordering::Relaxed)),
        (0, 160_000)
    );
    cache.destroy().unwrap();
}

#[test]
fn a_cache_destroyed_with_live_objects_leaves_them() {
    let _one = ONE.lock();
    let cache = KmemCache::<[u64; 4]>::create("left_over").unwrap();
    let line = line!() + 1;
    let object = std::ptr::from_ref(CacheBox::leak(cache.alloc([5; 4])));
    let leak = cache.destroy().unwrap_err();
    if std::env::var_os("POOLS_CHILD").is_none() {
        // The same in a process whose standard error is seen.
        let name = "a_cache_destroyed_with_live_objects_leaves_them";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env("POOLS_CHILD", "1")
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{err}");
        let first =
            "memledger: cache left_over destroyed: 1 objects (32 bytes) remain in the cache\n";
        assert!(err.contains(first), "{err}");
        let by = format!(
            "pools.rs:{line} pools::a_cache_destroyed_with_live_objects_leaves_them, one at 0x"
        );
        assert!(
            err.contains("memledger:   1 by ") && err.contains(&by),
            "{err}"
        );
    }
    assert_eq!((leak.objects, leak.bytes), (1, 32));
    // SAFETY: leaked, so it lives for ever.
    assert_eq!(unsafe { *object }, [5; 4]);
    assert_eq!(charged(line), (32, 1));
    assert_eq!(listed("left_over").unwrap().active_objs, 1);
}

#[test]
fn a_forked_child_goes_on() {
    let _one = ONE.lock();
    let cache = KmemCache::<Conn>::create("forked").unwrap();
    let stop = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    drop(cache.alloc(Conn::new(1)));
                }
            });
        }
        for _ in 0..50 {
            // SAFETY: the child uses the cache, and ends by `_exit`.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let object = cache.alloc(Conn::new(2));
                let ok = object.id == 2;
                drop(object);
                // SAFETY: ends the child.
                unsafe { libc::_exit(if ok { 0 } else { 1 }) };
            }
            let mut status = 0;
            // SAFETY: waits for the child just made.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, 0);
        }
        stop.store(1, Ordering::Relaxed);
    });
    assert_eq!(cache.info().live, 0);
}

#[test]
fn the_tracer_knows_caches_by_name() {
    use memledger_abi::trace::{TRACER_CACHES, TRACER_EVENTS};
    use memledger_inspect::trace::{Options, Tracing};
    let _one = ONE.lock();
    let cache = KmemCache::<Conn>::create("traced").unwrap();
    let mut tracing = Tracing::open(std::process::id()).unwrap();
    tracing
        .configure(&Options {
            tracers: TRACER_CACHES | TRACER_EVENTS,
            stop: false,
            ring_bytes: None,
            min_bytes: None,
            max_bytes: None,
            sites: Vec::new(),
            caches_off: Vec::new(),
            sample: 1,
        })
        .unwrap();
    tracing.set(true).unwrap();
    let kept = cache.alloc(Conn::new(1));
    for id in 0..99 {
        drop(cache.alloc(Conn::new(id)));
    }
    tracing.set(false).unwrap();
    let sums = tracing.sums();
    let (number, _) = sums
        .cache_names
        .iter()
        .find(|(_, name)| *name == "traced")
        .unwrap();
    let c = sums.caches[*number];
    assert_eq!(
        (c.allocs, c.frees, c.given, c.freed),
        (100, 99, 20_000, 19_800)
    );
    drop(kept);
}

#[test]
fn signal_handlers_never_wait() {
    use std::sync::OnceLock;
    static CACHE: OnceLock<KmemCache<Conn>> = OnceLock::new();
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: i32) {
        if let Some(cache) = CACHE.get()
            && let Ok(object) = cache.try_alloc(Conn::new(3))
        {
            assert_eq!(object.id, 3);
        }
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    let _one = ONE.lock();
    let cache = CACHE.get_or_init(|| KmemCache::create("signals").unwrap());
    let every = |usec| {
        let interval = libc::timeval {
            tv_sec: 0,
            tv_usec: usec,
        };
        let timer = libc::itimerval {
            it_interval: interval,
            it_value: interval,
        };
        // SAFETY: a timer of this process, and a handler that only uses the cache and a counter.
        unsafe {
            libc::signal(libc::SIGALRM, handler as extern "C" fn(i32) as usize);
            assert_eq!(
                libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()),
                0
            );
        }
    };
    every(50);
    std::thread::scope(|scope| {
        for t in 0..3 {
            scope.spawn(move || {
                while HANDLED.load(Ordering::Relaxed) < 2000 {
                    let objects: Vec<_> = (0..50).map(|id| cache.alloc(Conn::new(id))).collect();
                    assert!(objects.iter().zip(0..).all(|(o, id)| o.id == id), "{t}");
                }
            });
        }
    });
    every(0);
    // What a handler could not put back is lost, and counted; nothing else is.
    let info = cache.info();
    assert_eq!(info.live, info.lost);
}
