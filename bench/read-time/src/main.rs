//! read-time PID ROUNDS: times `Snapshot::read` of another process, and the symbols and rows made of it, in milliseconds.
//! Prints one line a round (read, rows), then the medians.
#![forbid(unsafe_code)]

use memledger_inspect::{Helpers, MergeBy, Snapshot, Symbolizer, rows};
use std::time::Instant;

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<u32> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let [pid, rounds] = args[..] else {
        return Err("read-time PID ROUNDS".into());
    };
    let (mut read, mut named, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    for _ in 0..rounds.max(1) {
        let t = Instant::now();
        let snapshot = Snapshot::read(pid)?;
        read.push(t.elapsed().as_secs_f64() * 1e3);
        let mut symbols = Symbolizer::new(Default::default());
        for times in [&mut named, &mut again] {
            let t = Instant::now();
            last = Some((rows(&snapshot, &mut symbols, &Helpers::default(), MergeBy::Line), snapshot.total));
            times.push(t.elapsed().as_secs_f64() * 1e3);
        }
    }
    let (rows, total) = last.ok_or("no round")?;
    println!("live objects: {}, bytes: {}, rows: {}", total.calls, total.bytes, rows.len());
    let least = read.iter().copied().fold(f64::INFINITY, f64::min);
    println!("read the ledger: {:.2} ms (median of {}, least {least:.2})", median(read), rounds.max(1));
    println!("symbols and rows, nothing cached: {:.2} ms", median(named));
    println!("symbols and rows, symbols cached: {:.2} ms", median(again));
    Ok(())
}
