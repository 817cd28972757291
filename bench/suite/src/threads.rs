//! Workloads of more than one thread. An operation is one object, or one thread for `threads`.

use crate::block::Block;
use crate::micro::{Workload, mixed_size, pair};
use crate::{Random, hooked};
use std::collections::VecDeque;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;

const BATCH: usize = 128;

pub(crate) fn workload(name: &str) -> Option<Workload> {
    Some(match name {
        "pair2" => Box::new(pair2),
        "prodcons" => Box::new(producer_consumer),
        "larson" => larson(),
        "xmalloc" => Box::new(xmalloc),
        "threads" => Box::new(threads),
        _ => return None,
    })
}

/// The loop of pairs on two threads at once. Operations are those of both.
fn pair2(ops: u64) -> u64 {
    thread::scope(|s| {
        let other = s.spawn(|| pair(ops / 2));
        pair(ops / 2) + other.join().expect("it does not panic")
    })
}

fn batch_of(random: &mut Random, n: usize) -> Vec<Block> {
    let mut v = hooked!(Vec::with_capacity(n));
    for _ in 0..n {
        v.push(hooked!(Block::new(16 + random.below(225), 8)));
    }
    v
}

/// One thread allocates, another frees, in batches over a channel.
fn producer_consumer(ops: u64) -> u64 {
    let batches = (ops / BATCH as u64).max(1);
    let (send, receive) = sync_channel::<Vec<Block>>(64);
    thread::scope(|s| {
        s.spawn(move || receive.into_iter().for_each(drop));
        let mut random = Random::new(17);
        for _ in 0..batches {
            send.send(batch_of(&mut random, BATCH))
                .expect("the consumer lives as long");
        }
        drop(send);
    });
    batches * BATCH as u64
}

/// As Larson's server: each thread replaces blocks at random in an array, and hands the array to the other one, so that most
/// frees are of blocks of another thread.
fn larson() -> Workload {
    const SLOTS: usize = 4096;
    const ROUNDS: u64 = 16;
    let make = |seed| {
        let mut r = Random::new(seed);
        let v: Vec<Block> = (0..SLOTS)
            .map(|_| hooked!(Block::new(mixed_size(&mut r), 8)))
            .collect();
        Mutex::new(v)
    };
    let arrays = Arc::new([make(19), make(23)]);
    Box::new(move |ops| {
        let each = (ops / 2 / ROUNDS).max(1);
        let barrier = Barrier::new(2);
        let work = |me: u64| {
            let mut r = Random::new(29 + me);
            for round in 0..ROUNDS {
                let mut array = arrays[((me + round) % 2) as usize]
                    .lock()
                    .expect("no thread panics");
                for _ in 0..each {
                    array[r.below(SLOTS)] = hooked!(Block::new(mixed_size(&mut r), 8));
                }
                drop(array);
                barrier.wait();
            }
        };
        thread::scope(|s| {
            s.spawn(|| work(1));
            work(0);
        });
        each * 2 * ROUNDS
    })
}

/// As xmalloc-test: both threads allocate batches for a common queue, and free batches of either from it.
fn xmalloc(ops: u64) -> u64 {
    let batches = (ops / 2 / BATCH as u64).max(1);
    let queue: Mutex<VecDeque<Vec<Block>>> = Mutex::new(VecDeque::with_capacity(128));
    let filled = Condvar::new();
    let work = |me: u64| {
        let mut random = Random::new(31 + me);
        for _ in 0..batches {
            let batch = batch_of(&mut random, BATCH);
            queue.lock().expect("no thread panics").push_back(batch);
            filled.notify_one();
            // Each puts before it takes, so there is always one for all that wait.
            let mut q = filled
                .wait_while(queue.lock().expect("no thread panics"), |q| q.is_empty())
                .expect("no thread panics");
            let batch = q.pop_front();
            drop(q);
            drop(batch);
        }
    };
    thread::scope(|s| {
        s.spawn(|| work(1));
        work(0);
    });
    batches * 2 * BATCH as u64
}

/// Threads that allocate 100 blocks, free half of them and leave the rest to the one that started them. Two at a time.
fn threads(ops: u64) -> u64 {
    let one = |seed: u64| {
        let mut r = Random::new(seed);
        let mut v = batch_of(&mut r, 100);
        v.truncate(50);
        v
    };
    let n = (ops / 2).max(1);
    for k in 0..n {
        let (a, b) = (
            thread::spawn(move || one(k)),
            thread::spawn(move || one(k + 1)),
        );
        drop(a.join().expect("it does not panic"));
        drop(b.join().expect("it does not panic"));
    }
    n * 2
}
