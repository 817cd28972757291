//! macros generate json|words|ast FILE SIZE; macros json|words|ast FILE REPEAT; macros tree ENTRIES REPEAT.
//!
//! The second forms print "checksum cpu_ns wall_ns" for the work itself: CPU is user and system time of all threads.

use bench_suite::{ast, cpu_ns, programs};
use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let _profiler = bench_suite::profiler();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["generate", what, file, size] = words[..] {
        let size: usize = size.parse()?;
        let text = match what {
            "json" => programs::json_text(size),
            "words" => programs::words_text(size),
            "ast" => ast::generate(size),
            _ => return Err("json, words or ast".into()),
        };
        return Ok(std::fs::write(file, text)?);
    }
    let [name, input, repeat] = words[..] else {
        return Err("see the head of macros.rs".into());
    };
    let text = if name == "tree" {
        String::new()
    } else {
        std::fs::read_to_string(input)?
    };
    let run = || -> Result<u64, Box<dyn Error>> {
        Ok(match name {
            "json" => programs::json(&text)?,
            "words" => programs::words(&text),
            "ast" => programs::compile(&text)?,
            "tree" => programs::tree(input.parse()?),
            _ => return Err(format!("no program {name}").into()),
        })
    };
    let (from, cpu) = (Instant::now(), cpu_ns());
    let mut sum = 0;
    for _ in 0..repeat.parse::<usize>()? {
        sum = run()?;
    }
    println!(
        "{sum:016x} {} {}",
        cpu_ns() - cpu,
        from.elapsed().as_nanos()
    );
    Ok(())
}
