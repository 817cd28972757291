//! Futures and tasks under tags: tokio's two runtimes, and tower.

mod common;

use common::now;
use memledger::{
    AllocTagLayer, AllocTagged, SavedTag, alloc_hooks, alloc_hooks_future, alloc_tag_record,
};
use std::rc::Rc;
use tokio::task::yield_now;

#[global_allocator]
static A: memledger::Ledger = memledger::Ledger::new();

const BIG: usize = 40_960;

/// Allocates a block in each of `n` polls; says whether the tag was always the same.
async fn work(n: usize) -> (Vec<Vec<u8>>, bool) {
    let mine = SavedTag::current();
    let mut blocks = Vec::with_capacity(n);
    let mut same = true;
    for _ in 0..n {
        blocks.push(vec![1; BIG]);
        yield_now().await;
        same &= SavedTag::current() == mine;
    }
    (blocks, same)
}

/// The line has the blocks, a vector for each task, and a little of tokio's (queues that grew in a poll of the task).
fn holds(line: u32, blocks: u64, tasks: u64) -> bool {
    let (bytes, calls) = now(file!(), line);
    let rest = bytes.wrapping_sub(blocks * BIG as u64);
    let fits = rest < 8192 && calls >= tasks && calls < blocks + tasks + 16;
    eprintln!("line {line}: {bytes} bytes, {calls} calls");
    fits
}

#[tokio::test]
async fn tasks_that_interleave_on_one_thread_do_not_see_each_others_tags() {
    let (tag, first) = (alloc_tag_record!(), line!());
    let a = tokio::spawn(work(5).alloc_tagged(tag));
    let (b, second) = (alloc_hooks_future!(work(7)), line!());
    let b = tokio::spawn(b);
    let plain = tokio::spawn(async {
        for _ in 0..20 {
            yield_now().await;
            assert_eq!(SavedTag::current(), SavedTag::NONE);
        }
    });
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    plain.await.unwrap();
    assert!(a.1 && b.1 && SavedTag::current() == SavedTag::NONE);
    assert!(holds(first, 5, 1) && holds(second, 7, 1));
    drop((a, b));
    assert!(holds(first, 0, 0) && holds(second, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_that_move_between_threads_keep_their_tags() {
    let (tag, line) = (alloc_tag_record!(), line!());
    let tasks: Vec<_> = (0..16)
        .map(|_| tag.spawn_with(tokio::spawn, work(10)))
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        let (blocks, same) = task.await.unwrap();
        assert!(same);
        all.push(blocks);
    }
    assert!(holds(line, 160, 16));
    drop(all);
    assert!(holds(line, 0, 0));
}

#[tokio::test]
async fn the_inner_of_two_futures_wins_and_the_outer_comes_back() {
    let (outer, inner) = (alloc_tag_record!(), alloc_tag_record!());
    assert_ne!(outer, inner);
    let task = async move {
        assert_eq!(SavedTag::current(), outer);
        async {
            assert_eq!(SavedTag::current(), inner);
            yield_now().await;
            assert_eq!(SavedTag::current(), inner);
            // A hook that does not span an await.
            assert!(![inner, outer].contains(&alloc_hooks!(SavedTag::current())));
        }
        .alloc_tagged(inner)
        .await;
        assert_eq!(SavedTag::current(), outer);
        // Blocking work that is asked to keep the tag, and a task of one's own.
        let job = memledger::inherit_tag(SavedTag::current);
        assert_eq!(tokio::task::spawn_blocking(job).await.unwrap(), outer);
        let child = async { SavedTag::current() }.alloc_tag_inherited();
        assert_eq!(tokio::spawn(child).await.unwrap(), outer);
        let child = async { SavedTag::current() };
        assert_eq!(tokio::spawn(child).await.unwrap(), SavedTag::NONE);
    };
    task.alloc_tagged(outer).await;
    assert_eq!(SavedTag::current(), SavedTag::NONE);
    // A task that panics in a poll.
    let task = async { panic!("meant") }.alloc_tagged(outer);
    assert!(tokio::spawn(task).await.is_err());
    assert_eq!(SavedTag::current(), SavedTag::NONE);
}

#[tokio::test]
async fn layers_split_a_server_by_route() {
    use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
    let answer = |n: usize| async move {
        yield_now().await;
        Ok::<_, std::io::Error>(vec![1_u8; n])
    };
    let (tag, line) = (alloc_tag_record!(), line!());
    let mut big = ServiceBuilder::new()
        .layer(AllocTagLayer::new(tag))
        .service_fn(answer);
    let (tag, second) = (alloc_tag_record!(), line!());
    let mut small = ServiceBuilder::new()
        .layer(AllocTagLayer::new(tag))
        .service(service_fn(answer));
    let (a, b) = tokio::join!(
        async { big.ready().await.unwrap().call(3 * BIG).await.unwrap() },
        async { small.ready().await.unwrap().call(BIG).await.unwrap() }
    );
    assert!(holds(line, 3, 0) && holds(second, 1, 0));
    assert_eq!((a.len(), b.len()), (3 * BIG, BIG));
    drop((a, b));
}

/// A future that is not `Send` may be tagged; one that is stays so.
#[test]
fn send_if_the_future_is() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let _sent = is_send(async { yield_now().await }.alloc_tagged(SavedTag::NONE));
    let local = Rc::new(1);
    let _kept = async move { *local }.alloc_tagged(SavedTag::NONE);
}
