//! Modules that come and go, on a made-up system.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;
use common::{depot, nodes};
use memledger_abi::{ModuleRecord, node_module};
use stackdepot::{Depot, Linux, Object, Platform, StackBounds, Walk};
use std::sync::Mutex;

/// Objects of 64 KiB.
const SIZE: usize = 0x1_0000;

#[derive(Default)]
struct Loader(Mutex<Vec<Object>>);

unsafe impl Platform for &Loader {
    fn reserve(&self, bytes: usize) -> *mut u8 {
        Linux.reserve(bytes)
    }
    fn commit(&self, start: *mut u8, bytes: usize) -> bool {
        Linux.commit(start, bytes)
    }
    fn map(&self, bytes: usize) -> *mut u8 {
        Linux.map(bytes)
    }
    fn find_object(&self, pc: usize) -> Option<Object> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .find(|o| (o.start..o.end).contains(&pc))
            .copied()
    }
    fn readable(&self, _: usize) -> bool {
        false
    }
    fn stack_end(&self) -> usize {
        0
    }
}

impl Loader {
    fn load(&self, start: usize, name: &'static std::ffi::CStr, identity: usize) {
        let name = name.as_ptr() as usize;
        self.0.lock().unwrap().push(Object {
            start,
            end: start + SIZE,
            bias: start,
            name,
            identity,
            eh_frame_hdr: 0,
        });
    }
    fn unload(&self, start: usize) {
        self.0.lock().unwrap().retain(|o| o.start != start);
    }
}

fn walk<P: Platform>(depot: &Depot<P>, ra: usize) -> Walk {
    let word = [ra];
    unsafe { depot.walk(word.as_ptr() as usize, 0, 1, &StackBounds::default()) }
}

fn module<P: Platform>(depot: &Depot<P>, walk: Walk) -> (u32, ModuleRecord) {
    let number = node_module(nodes(depot)[walk.node().unwrap() as usize].key);
    (number, unsafe {
        *(depot.modules_address() as *const ModuleRecord).add(number as usize)
    })
}

const PLACE: usize = 0x7000_0000_0000;
const RA: usize = PLACE + 0x1234;

#[test]
fn the_same_module_comes_back_and_another_does_not() {
    let loader = Loader::default();
    let depot = Depot::with_platform(&loader, 1 << 14);
    depot.init().unwrap();
    loader.load(PLACE, c"/lib/a.so", 1);
    let a = walk(&depot, RA);
    assert_eq!(walk(&depot, RA), a);
    depot.modules_changed();
    assert_eq!(walk(&depot, RA), a);
    // Another file at the same place, even with the loader's record at the same address.
    loader.unload(PLACE);
    loader.load(PLACE, c"/lib/b.so", 1);
    depot.modules_changed();
    let b = walk(&depot, RA);
    assert_ne!(a, b);
    assert_eq!(module(&depot, a).1.state, 2);
    assert_eq!(module(&depot, b).1.state, 1);
    // The first again, with another loader's record.
    loader.unload(PLACE);
    depot.modules_changed();
    loader.load(PLACE, c"/lib/a.so", 7);
    depot.modules_changed();
    assert_eq!(walk(&depot, RA), a);
    // The inline child is back too: the same answer by whichever way.
    assert_eq!(nodes(&depot)[0].child_ra, RA as u64);
    assert_eq!(
        (module(&depot, a).1.state, module(&depot, b).1.state),
        (1, 2)
    );
    // At another place it is another module.
    loader.unload(PLACE);
    loader.load(PLACE + SIZE, c"/lib/a.so", 7);
    depot.modules_changed();
    assert_ne!(
        module(&depot, walk(&depot, RA + SIZE)).0,
        module(&depot, a).0
    );
    assert_eq!((depot.node_count(), depot.module_count()), (4, 4));
}

#[test]
fn an_object_mapped_over_generated_code() {
    let loader = Loader::default();
    let depot = Depot::with_platform(&loader, 1 << 14);
    depot.init().unwrap();
    let jit = walk(&depot, RA);
    let other = walk(&depot, RA + 2 * SIZE);
    assert_eq!(module(&depot, jit).0, 0);
    depot.modules_changed();
    assert_eq!(walk(&depot, RA), jit);
    loader.load(PLACE, c"/lib/a.so", 1);
    depot.modules_changed();
    let object = walk(&depot, RA);
    assert_ne!(object, jit);
    assert_eq!(module(&depot, object).0, 1);
    assert_eq!(walk(&depot, RA + 2 * SIZE), other);
}

#[test]
fn more_modules_than_records() {
    let loader = Loader::default();
    let depot = Depot::with_platform(&loader, 1 << 14);
    depot.init().unwrap();
    let places = (0..4200).map(|n| PLACE + n * SIZE);
    let walks: Vec<_> = places
        .clone()
        .map(|place| {
            loader.load(place, c"/lib/many.so", place);
            walk(&depot, place + 0x100)
        })
        .collect();
    assert_eq!(depot.module_count(), 4096);
    assert_eq!(
        walks.iter().filter(|&&w| module(&depot, w).0 == 0).count(),
        105
    );
    depot.modules_changed();
    // None of them has gone, known or not.
    for (place, want) in places.zip(walks) {
        assert_eq!(walk(&depot, place + 0x100), want);
    }
}

#[test]
fn nothing_happens_before_the_start() {
    let depot_not_ready = Depot::new();
    depot_not_ready.modules_changed();
    assert_eq!(
        (
            depot_not_ready.node_count(),
            depot_not_ready.nodes_address()
        ),
        (0, 0)
    );
    assert_eq!(depot().node_count(), 1);
}
