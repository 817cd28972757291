//! A program that uses the library's macros, and has no hooks of its own.
#![deny(warnings, unsafe_code)]

use pool::{Store, inner, place};
use std::future::Future;
use std::task::{Context, Poll, Waker};

fn main() {
    assert!(pool::start());
    let (a, line) = (pool::root!(), line!());
    assert_eq!(place(a), (file!(), line));
    let ((b, default), line) = (inner::root!(0_u8), line!());
    assert_eq!((place(b), default), ((file!(), line), true));
    let (c, line) = (inner::plain!(), line!());
    assert_eq!(place(c), (file!(), line));
    let (future, line) = (inner::later!(), line!());
    let mut future = std::pin::pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(d) => assert_eq!(place(d), (file!(), line)),
        Poll::Pending => panic!("pending"),
    }
    let mut store = Store::<u8>::new();
    let ((e, n), line) = (store.count::<3, u32>("x"), line!());
    assert_eq!((place(e), n), ((file!(), line), 7));
    assert!(
        pool::inside()
            .iter()
            .all(|&i| place(i).0.ends_with("lib.rs"))
    );
    // The plain forms charge what is current: here, nothing.
    let bare = [
        pool::root_noprof(),
        inner::root_noprof("").0,
        inner::plain_noprof(),
    ];
    assert_eq!((bare, store.count_noprof::<3, u32>("x").0), ([0; 3], 0));
    const EMPTY: Store<u8> = Store::new_noprof();
    assert!(EMPTY.0.is_empty());
}
