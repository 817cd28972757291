//! A Rust program with known allocations: prints "known FUNCTION CALLS BYTES" of what each function still holds, then ends at once.
use std::collections::BTreeMap;
use std::hint::black_box;

struct Tally {
    name: &'static str,
    calls: usize,
    bytes: usize,
}

#[inline(never)]
fn load_texts(keep: &mut Vec<String>) -> Tally {
    let before = keep.len();
    (0..4000).for_each(|i| keep.push("x".repeat(40 + i % 300)));
    let bytes = keep[before..].iter().map(String::capacity).sum();
    Tally { name: "load_texts", calls: 4000, bytes }
}

#[inline(never)]
fn load_boxes(keep: &mut Vec<Box<[u8; 600]>>) -> Tally {
    (0..3000).for_each(|i| keep.push(Box::new([i as u8; 600])));
    Tally { name: "load_boxes", calls: 3000, bytes: 3000 * 600 }
}

#[inline(never)]
fn load_tables(keep: &mut Vec<Vec<u64>>) -> Tally {
    for i in 0..500 {
        let mut v = Vec::new();
        v.resize(100 + i * 10, 0);
        v.shrink_to_fit();
        keep.push(v);
    }
    let bytes = keep.iter().map(|v| v.capacity() * 8).sum();
    Tally { name: "load_tables", calls: 500, bytes }
}

#[inline(never)]
fn load_nothing() -> Tally {
    let map: BTreeMap<u32, String> = (0..5000).map(|i| (i, i.to_string())).collect();
    black_box(&map);
    Tally { name: "load_nothing", calls: 0, bytes: 0 }
}

fn main() {
    // The outer vectors have their room beforehand: they are main's.
    let (mut a, mut b, mut c) = (Vec::with_capacity(4000), Vec::with_capacity(3000), Vec::with_capacity(500));
    for t in [load_texts(&mut a), load_boxes(&mut b), load_tables(&mut c), load_nothing()] {
        println!("known {} {} {}", t.name, t.calls, t.bytes);
    }
    black_box((&a, &b, &c));
    // SAFETY: _exit takes any status and does not return.
    unsafe { _exit(0) }
}

unsafe extern "C" {
    fn _exit(status: i32) -> !;
}
