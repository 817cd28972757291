//! The registry as a client sees it: numbers, rows, modules that come and go, a full table.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use codetag::{Client, CodeTag, Module, ROW_LOADED, Registered, Registry, TagRange};

fn memory(bytes: usize) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(bytes, 64).ok()?;
    // SAFETY: the size is not 0. Never freed.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

fn registry(capacity: u32) -> Registry {
    // SAFETY: `memory` gives fresh zeroed memory that is never freed.
    unsafe {
        Registry::new(Client {
            first_index: 16,
            capacity,
            wait: std::thread::yield_now,
            ..Client::new(memory)
        })
    }
}

fn name() -> &'static str {
    "some::func"
}

/// A loaded module with these lines; leaked, so it stays mapped.
fn module(name: &'static str, lines: &[u32]) -> Module<'static> {
    let tags: Vec<CodeTag> = lines
        .iter()
        .map(|&l| CodeTag::new("src/a.rs", "some", self::name, l, 5))
        .collect();
    Module {
        tags: TagRange::from_slice(tags.leak()),
        name: name.as_bytes(),
    }
}

fn indexes(module: &Module) -> Vec<u32> {
    module.tags.tags().map(CodeTag::index).collect()
}

fn register(registry: &Registry, module: &Module) -> Registered {
    // SAFETY: the test modules are leaked.
    unsafe { registry.register(*module) }
}

#[test]
fn numbers_are_consecutive_and_rows_hold_copies() {
    let registry = registry(100);
    let (a, b) = (module("", &[1, 2, 3]), module("plugin", &[7]));
    assert_eq!(
        register(&registry, &a),
        Registered {
            added: 3,
            reused: 0,
            lost: 0
        }
    );
    assert_eq!(register(&registry, &b).added, 1);
    assert_eq!((indexes(&a), indexes(&b)), (vec![16, 17, 18], vec![19]));
    let row = registry.row(19).unwrap();
    assert_eq!(
        (row.file(), row.func(), row.module_path()),
        ("src/a.rs", "some::func", "some")
    );
    assert_eq!(
        (row.module(), row.line(), row.column(), row.flags()),
        (&b"plugin"[..], 7, 5, ROW_LOADED)
    );
    let tag = b.tags.tags().next().unwrap();
    assert!(!std::ptr::eq(row.file(), tag.file()), "not copied");
    assert!(
        std::ptr::eq(row.file(), registry.row(16).unwrap().file()),
        "copied twice"
    );
    assert!(registry.row(15).is_none() && registry.row(20).is_none() && registry.row(0).is_none());
    assert_eq!((registry.count(), registry.lost()), (4, 0));
}

#[test]
fn a_module_that_comes_again_gets_its_rows_back() {
    let registry = registry(100);
    for round in 0..1000 {
        let m = module("plugin", &[1, 2]);
        let done = register(&registry, &m);
        assert_eq!(
            (done.added, done.reused),
            if round == 0 { (2, 0) } else { (0, 2) }
        );
        assert_eq!(indexes(&m), [16, 17]);
        assert!(registry.rows().iter().all(|r| r.flags() == ROW_LOADED));
        registry.unregister(&m.tags);
        assert!(registry.rows().iter().all(|r| r.flags() == 0));
    }
    assert_eq!(registry.count(), 2);
}

#[test]
fn other_tags_or_another_name_or_a_second_copy_get_new_rows() {
    let registry = registry(100);
    let first = module("plugin", &[1, 2]);
    register(&registry, &first);
    let second_copy = module("plugin", &[1, 2]);
    assert_eq!(register(&registry, &second_copy).added, 2);
    registry.unregister(&first.tags);
    for other in [
        module("plugin", &[1, 3]),
        module("plugin", &[1]),
        module("plugin2", &[1, 2]),
    ] {
        let done = register(&registry, &other);
        assert_eq!((done.reused, done.lost), (0, 0));
        assert!(done.added > 0);
    }
    assert_eq!(register(&registry, &module("plugin", &[1, 2])).reused, 2);
}

#[test]
fn after_a_fork_the_registry_goes_on() {
    let registry = registry(100);
    let a = module("a", &[1]);
    register(&registry, &a);
    // SAFETY: this thread is the only one that uses it.
    unsafe { registry.after_fork() };
    let b = module("b", &[1]);
    register(&registry, &b);
    assert_eq!((indexes(&a), indexes(&b)), (vec![16], vec![17]));
    assert!(registry.rows().iter().all(|row| row.file() == "src/a.rs"));
}

#[test]
fn twice_is_once() {
    let registry = registry(100);
    let m = module("", &[1, 2]);
    register(&registry, &m);
    assert_eq!(register(&registry, &m), Registered::default());
    assert_eq!((registry.count(), indexes(&m)), (2, vec![16, 17]));
}

#[test]
fn a_module_that_replaced_another_without_a_word_is_noticed() {
    let registry = registry(100);
    static TAGS: [CodeTag; 1] = [CodeTag::new("f", "m", name, 1, 1)];
    let tags = TagRange::from_slice(&TAGS);
    register(&registry, &Module { tags, name: b"old" });
    // What dlopen at the same address does: fresh tags.
    // SAFETY: nobody else uses the static; a new value of the same type.
    unsafe { (tags.start() as *mut CodeTag).write_volatile(CodeTag::new("g", "m", name, 2, 1)) };
    assert_eq!(register(&registry, &Module { tags, name: b"new" }).added, 1);
    let loaded: Vec<u32> = registry.rows().iter().map(|r| r.flags()).collect();
    assert_eq!(loaded, [0, ROW_LOADED]);
}

#[test]
fn a_full_table_loses_tags_and_counts_them_once() {
    let registry = registry(3);
    register(&registry, &module("a", &[1, 2]));
    let b = module("b", &[1, 2, 3]);
    assert_eq!(
        register(&registry, &b),
        Registered {
            added: 1,
            reused: 0,
            lost: 2
        }
    );
    assert_eq!(indexes(&b), [18, 0, 0]);
    let c = module("c", &[1]);
    assert_eq!(register(&registry, &c).lost, 1);
    assert_eq!(indexes(&c), [0]);
    registry.unregister(&b.tags);
    registry.unregister(&c.tags);
    let b = module("b", &[1, 2, 3]);
    assert_eq!(
        register(&registry, &b),
        Registered {
            added: 0,
            reused: 1,
            lost: 0
        }
    );
    assert_eq!(indexes(&b), [18, 0, 0]);
    register(&registry, &module("c", &[1]));
    assert_eq!((registry.count(), registry.lost()), (3, 3));
}

#[test]
fn without_memory_all_is_lost_but_nothing_breaks() {
    // SAFETY: never gives memory.
    let registry = unsafe { Registry::new(Client::new(|_| None)) };
    let m = module("a", &[1, 2]);
    assert_eq!(register(&registry, &m).lost, 2);
    assert_eq!(
        (registry.count(), registry.lost(), registry.rows().len()),
        (0, 2, 0)
    );
    registry.unregister(&m.tags);
}

#[test]
fn anchors_and_empty_ranges_have_no_rows() {
    let registry = registry(10);
    static TAGS: [CodeTag; 3] = [
        CodeTag::new("f", "m", name, 1, 1),
        CodeTag::anchor(),
        CodeTag::new("f", "m", name, 2, 1),
    ];
    let done = register(
        &registry,
        &Module {
            tags: TagRange::from_slice(&TAGS),
            name: b"",
        },
    );
    assert_eq!(
        (
            done.added,
            TAGS[0].index(),
            TAGS[1].index(),
            TAGS[2].index()
        ),
        (2, 16, 0, 17)
    );
    assert_eq!(
        register(
            &registry,
            &Module {
                tags: TagRange::from_slice(&[]),
                name: b""
            }
        ),
        Registered::default()
    );
    // SAFETY: an empty range.
    let none = unsafe { TagRange::new(std::ptr::null(), std::ptr::null()) };
    assert_eq!(none.as_slice().len(), 0);
}

#[test]
fn callbacks_see_modules_come_and_go() {
    static LOADS: AtomicU32 = AtomicU32::new(0);
    static UNLOADS: AtomicU32 = AtomicU32::new(0);
    // SAFETY: as in `registry`.
    let registry = unsafe {
        Registry::new(Client {
            on_load: Some(|module, done| {
                assert_eq!((module.name, done.added), (&b"m"[..], 2));
                LOADS.fetch_add(1, Ordering::Relaxed);
            }),
            on_unload: Some(|name| {
                assert_eq!(name, b"m");
                UNLOADS.fetch_add(1, Ordering::Relaxed);
            }),
            ..Client::new(memory)
        })
    };
    let m = module("m", &[1, 2]);
    register(&registry, &m);
    registry.unregister(&m.tags);
    registry.unregister(&m.tags);
    assert_eq!(
        (
            LOADS.load(Ordering::Relaxed),
            UNLOADS.load(Ordering::Relaxed)
        ),
        (1, 1)
    );
}

#[test]
fn many_threads_register_at_once() {
    let registry = registry(10_000);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let m = module("same", &[1, 2, 3]);
                    register(&registry, &m);
                    let seen = indexes(&m);
                    assert!(seen.windows(2).all(|w| w[1] == w[0] + 1));
                    for (tag, index) in m.tags.tags().zip(seen) {
                        assert_eq!(registry.row(index).unwrap().line(), tag.line());
                    }
                    registry.unregister(&m.tags);
                }
            });
        }
    });
    // At most one set of rows a thread: rows are shared only by modules that are never loaded at the same time.
    assert!(registry.count() <= 12, "{}", registry.count());
}
