//! micro WORKLOAD OPERATIONS [--plain]: nanoseconds an operation, on standard output as "operations ns".
//!
//! The work is done below 20 frames. After a tenth of the operations to warm up, the rest is timed in five parts; the result is
//! their median. With `--plain` there is no warming up and one part: for instruction counts, taken as the slope of two lengths.

use bench_suite::micro::{below_frames, workload};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _profiler = bench_suite::profiler();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, ops, plain @ ..] = &args[..] else {
        return Err("micro WORKLOAD OPERATIONS [--plain]".into());
    };
    let ops: u64 = ops.parse()?;
    let Some((done, ns)) = below_frames(20, &mut || {
        let mut run = workload(name)?;
        if !plain.is_empty() {
            return Some((run(ops), 0.0));
        }
        run(ops / 10);
        let (mut done, mut parts) = (0, Vec::new());
        for _ in 0..5 {
            let from = Instant::now();
            let n = run(ops / 5);
            parts.push(from.elapsed().as_nanos() as f64 / n as f64);
            done += n;
        }
        parts.sort_by(f64::total_cmp);
        Some((done, parts[2]))
    }) else {
        return Err(format!("no workload {name}").into());
    };
    println!("{done} {ns:.4}");
    Ok(())
}
