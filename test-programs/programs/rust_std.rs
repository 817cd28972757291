//! Promise: Rust's std (System allocator: malloc, calloc, realloc, posix_memalign) works with all collections, threads,
//! channels, scoped threads, processes and thread-locals with destructors.
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::sync::{Arc, Mutex, mpsc};
use std::{cell::RefCell, thread};

#[repr(align(512))]
struct Wide([u8; 1024]);

struct Last(Vec<String>);
impl Drop for Last {
    fn drop(&mut self) {
        assert!(self.0.iter().all(|s| s.len() == 30));
        let late: Vec<Box<[u8]>> = (0..100).map(|i| vec![1; i * 10].into_boxed_slice()).collect();
        assert_eq!(late.len(), 100);
    }
}
thread_local!(static LAST: RefCell<Last> = const { RefCell::new(Last(Vec::new())) });

fn collections(seed: u64) -> u64 {
    let mut map: HashMap<String, Vec<u64>> = HashMap::new();
    let mut tree = BTreeMap::new();
    let (mut heap, mut set) = (BinaryHeap::new(), HashSet::new());
    let (mut deque, mut list) = (VecDeque::new(), LinkedList::new());
    for i in 0..20_000u64 {
        let k = (i * 7919 + seed) % 1000;
        map.entry(format!("key {k}")).or_default().push(i);
        tree.insert(k * 31, Box::new(i));
        heap.push(k);
        set.insert(i % 777);
        deque.push_back(i);
        if i % 3 == 0 {
            deque.pop_front();
        }
        list.push_front(i.to_string());
    }
    assert_eq!(map.values().map(Vec::len).sum::<usize>(), 20_000);
    assert_eq!((tree.len(), set.len(), list.len(), heap.len()), (1000, 777, 20_000, 20_000));
    let mut v = heap.into_sorted_vec();
    v.shrink_to_fit();
    v.iter().sum::<u64>() + deque.len() as u64
}

fn main() {
    let want = collections(1);
    let (tx, rx) = mpsc::channel::<Vec<String>>();
    let shared = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (0..6)
        .map(|t| {
            let (tx, shared) = (tx.clone(), shared.clone());
            thread::spawn(move || {
                LAST.with(|l| l.borrow_mut().0.extend((0..50).map(|_| "x".repeat(30))));
                for i in 0..200 {
                    tx.send(vec![format!("{t} {i}"); 10]).unwrap();
                    shared.lock().unwrap().push(Box::new(Wide([t; 1024])));
                }
                collections(1)
            })
        })
        .collect();
    drop(tx);
    assert_eq!(rx.iter().map(|v| v.len()).sum::<usize>(), 12_000);
    for t in threads {
        assert_eq!(t.join().unwrap(), want);
    }
    let wides = shared.lock().unwrap();
    assert!(wides.iter().all(|w| &raw const **w as usize % 512 == 0 && w.0[7] == w.0[1023]));
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| assert_eq!(collections(1), want));
        }
    });
    let out = std::process::Command::new("sh").args(["-c", "echo $0", "hello"]).output().unwrap();
    assert_eq!(out.stdout, b"hello\n");
}
