//! memory start | live N | spike BYTES: resident memory, as "name bytes" lines on standard output.
//!
//! `start`: of a program that has done nothing. `live`: of N live objects of 8..=240 bytes, and how many bytes they asked for.
//! `spike`: after BYTES of such objects have been freed: at once, after a second of sleep, and after some more small calls.
//! The objects are linked through their own memory, so nothing else is counted.

use bench_suite::block::{Block, Chain};
use bench_suite::{Random, hooked, resident};
use std::thread::sleep;
use std::time::Duration;

fn add(chain: &mut Chain, random: &mut Random) {
    chain.push(hooked!(Block::new(8 + random.below(233), 8)));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = resident();
    let _profiler = bench_suite::profiler();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut random = Random::new(37);
    let mut chain = Chain::default();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["start"] => println!("start {start}"),
        ["live", n] => {
            let n: u64 = n.parse()?;
            let before = resident();
            (0..n).for_each(|_| add(&mut chain, &mut random));
            let after = resident();
            println!(
                "objects {n}\nrequested {}\nresident {}",
                chain.bytes,
                after - before.min(after)
            );
        }
        ["spike", bytes] => {
            let bytes: u64 = bytes.parse()?;
            while chain.bytes < bytes {
                add(&mut chain, &mut random);
            }
            let peak = resident();
            drop(std::mem::take(&mut chain));
            println!("peak {peak}\nat_once {}", resident());
            sleep(Duration::from_secs(1));
            println!("second {}", resident());
            for _ in 0..1000 {
                drop(hooked!(Block::new(100, 8)));
            }
            println!("later {}", resident());
        }
        _ => return Err("memory start | live N | spike BYTES".into()),
    }
    Ok(())
}
