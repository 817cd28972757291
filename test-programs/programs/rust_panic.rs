//! Promise: panics unwinding through frames that own memory, on many threads, with backtraces captured (they read debug
//! information and allocate a lot), leave a right heap.
use std::backtrace::Backtrace;
use std::panic;

fn deep(n: u32, kind: u32) -> String {
    let mut s = "a".repeat(10 + n as usize * 5);
    let boxed: Box<[u32]> = (0..n * 3).collect();
    if n == 0 {
        if kind % 5 == 0 {
            assert!(Backtrace::force_capture().to_string().len() > 20);
        }
        panic!("{}", "p".repeat(kind as usize % 300));
    }
    s.push_str(&deep(n - 1, kind));
    assert_eq!(boxed.len(), n as usize * 3);
    s
}

fn main() {
    panic::set_hook(Box::new(|_| ()));
    let threads: Vec<_> = (0..6)
        .map(|t| {
            std::thread::spawn(move || {
                for i in 0..60 {
                    let r = panic::catch_unwind(|| deep(i % 30, i * 7 + t));
                    let e = r.expect_err("deep always panics");
                    assert_eq!(e.downcast_ref::<String>().unwrap().len(), (i * 7 + t) as usize % 300);
                }
                deep(20, 13) // this one ends the thread
            })
        })
        .collect();
    for t in threads {
        assert!(t.join().is_err());
    }
}
