//! The tracer from end to end: programs under the preloaded library, traced from outside.

mod common;

use common::{library, memledger, temporary, text};
use memledger_abi::trace::{OP_ALLOC, OP_FREE};
use memledger_inspect::trace::{Record, Tracing};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

struct Program {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Compiles and starts a program under the library; it has said that it is ready. `None`: there is no library.
    fn start(name: &str, settings: &str, args: &[&str]) -> Option<Self> {
        let library = library()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/tracer")
            .join(name);
        let program = temporary(&format!("{name}-{}", settings.len()));
        let status = Command::new("cc")
            .args(["-g", "-O1", "-pthread", "-o"])
            .args([&program, &source])
            .status()
            .unwrap();
        assert!(status.success());
        let mut child = Command::new(&program)
            .args(args)
            .env("LD_PRELOAD", library)
            .env("MEMLEDGER", settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Program {
            child,
            out: Some(out),
        })
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

fn run(args: &[&str]) -> (i32, String, String) {
    text(&memledger().args(args).output().unwrap())
}

fn record(program: &Program, name: &str, more: &[&str]) -> (PathBuf, i32, String) {
    let file = temporary(name);
    let pid = program.pid();
    let path = file.to_str().unwrap().to_owned();
    let args = ["trace", "record", "-p", &pid, "-o", &path];
    let (code, _, errors) = run(&[&args[..], more].concat());
    assert!(code < 2, "{errors}");
    (file, code, errors)
}

#[test]
fn a_leak_of_one_in_a_thousand_comes_first_with_its_line() {
    let Some(program) = Program::start("leak.c", "1", &[]) else {
        return;
    };
    // Rings that drop what has not been read keep what they have without gaps in the middle of an object's life.
    let (file, ..) = record(
        &program,
        "leak.ml",
        &["--seconds", "1", "--ring-size", "16M"],
    );
    let (code, out, errors) = run(&["trace", "report", file.to_str().unwrap(), "--by", "leaks"]);
    assert!(code < 2, "{errors}");
    let first = out.lines().find(|l| l.contains("leak.c:"));
    assert!(
        first.is_some_and(|l| l.contains("leaky") && l.contains("leak.c:17")),
        "{out}"
    );

    let pid = program.pid();
    let (code, out, errors) = run(&["trace", "stat", "-p", &pid, "--seconds", "0.3"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    let first = out.lines().nth(1).unwrap();
    assert!(first.contains("leak.c:17"), "{out}");
    let numbers: Vec<u64> = first
        .split_whitespace()
        .take(6)
        .map(|n| n.parse().unwrap())
        .collect();
    let (live, hits, given, frees) = (numbers[0], numbers[1], numbers[3], numbers[5]);
    // Objects of 48 bytes; those of before the tracer are not freed any more.
    assert_eq!((given, live), (hits * 48, (hits - frees) * 48), "{out}");
    assert!(
        hits > 1000 && (hits - frees).abs_diff(hits / 1000) <= 1,
        "{out}"
    );
    std::fs::remove_file(file).unwrap();
}

#[test]
fn printed_as_kmemtrace_did() {
    let Some(program) = Program::start("leak.c", "1,depth=2", &[]) else {
        return;
    };
    let (file, ..) = record(
        &program,
        "print.ml",
        &["--seconds", "0.1", "--min-size", "200"],
    );
    let path = file.to_str().unwrap();
    let (_, out, _) = run(&["trace", "print", path]);
    let lines: Vec<&str> = out.lines().filter(|l| l.contains("leak.c:")).collect();
    assert!(!lines.is_empty());
    for line in &lines {
        // The filter leaves only the site of 100 to 399 bytes.
        assert!(
            line.contains("busy") && line.contains("leak.c:10"),
            "{line}"
        );
        assert!(
            line.starts_with("+      K") || line.starts_with("-      K"),
            "{line}"
        );
    }
    let (_, raw, _) = run(&["trace", "print", "--style", "raw", path]);
    assert_eq!(raw.lines().count(), lines.len());
    let alloc = raw.lines().find(|l| l.contains("bytes_req")).unwrap();
    let words: Vec<&str> = alloc.split_whitespace().step_by(2).collect();
    let want = "type_id call_site ptr bytes_req bytes_alloc gfp_flags node";
    assert_eq!(words.join(" "), want);

    // A file cut anywhere is read to its last whole block, and that is said.
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 3]).unwrap();
    let (code, cut, errors) = run(&["trace", "print", "--style", "raw", path]);
    assert_eq!((code, cut.lines().count()), (1, lines.len()));
    assert!(errors.contains("ends inside a block"), "{errors}");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn from_the_first_allocation_and_full_rings_that_stop() {
    let set = "1,trace=on,trace_mode=stop,trace_size=4K";
    let Some(program) = Program::start("leak.c", set, &[]) else {
        return;
    };
    let mut tracing = Tracing::open(program.child.id()).unwrap();
    assert_eq!(tracing.on(), Some(true));
    let mut before = tracing.sums();
    while before.dropped == 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        before = tracing.sums();
    }
    let batch = tracing.poll();
    // One thread, one ring of 128 events: the first ones.
    assert_eq!((before.rings, batch.records.len()), (1, 128));
    assert_eq!(batch.lost.len(), 1);
    assert!(batch.lost[0].2 >= before.dropped);
    assert!(batch.records.iter().zip(0..).all(|(r, n)| r.event.seq == n));
    // Reading made room.
    let mut more = 0;
    for _ in 0..500 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        more += tracing.poll().records.len();
        if more >= 128 {
            return;
        }
    }
    panic!("{more} events after room was made");
}

/// Bytes given for `n`, by the rule of the size classes (`mm::class`).
fn given(n: u64) -> u64 {
    let n = n.next_multiple_of(16);
    if n <= 128 {
        return n;
    }
    n.next_multiple_of(1 << ((n - 1).ilog2() - 3))
}

/// What the program does is so regular that an event that mixes two would show.
fn check(r: &Record, before: Option<&Record>) {
    let e = r.event;
    match e.op {
        OP_ALLOC => {
            assert!(
                e.requested.is_multiple_of(2) && (16..=1014).contains(&e.requested),
                "{r:?}"
            );
            assert_eq!(e.given, given(e.requested), "{r:?}");
        }
        OP_FREE => assert_eq!(e.given, e.requested, "{r:?}"),
        _ => panic!("{r:?}"),
    }
    let Some(before) = before else { return };
    let b = before.event;
    assert!(e.time >= b.time, "{before:?} {r:?}");
    assert_eq!(e.index, b.index, "{before:?} {r:?}");
    if e.seq == b.seq.wrapping_add(1) {
        assert_ne!(e.op, b.op, "{before:?} {r:?}");
        if e.op == OP_FREE {
            assert_eq!((e.ptr, e.given), (b.ptr, b.given), "{before:?} {r:?}");
        }
    }
}

#[test]
fn eight_threads_at_full_rate_lose_nothing_uncounted_and_tear_nothing() {
    let seconds = std::env::var("MEMLEDGER_TRACE_SECONDS").unwrap_or_else(|_| "2".to_owned());
    let Some(mut program) = Program::start("storm.c", "1,trace=on,trace_size=256K", &[&seconds])
    else {
        return;
    };
    let mut tracing = Tracing::open(program.child.id()).unwrap();
    let mut out = program.out.take().unwrap();
    let lines = std::thread::spawn(move || {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            out.read_line(&mut line).unwrap();
            if line == "done\n" || line.is_empty() {
                return lines;
            }
            lines.push(line);
        }
    });
    let (mut seen, mut lost, mut last) = (
        HashMap::<u32, u64>::new(),
        HashMap::<u32, u64>::new(),
        HashMap::<u32, Record>::new(),
    );
    let main = program.child.id();
    loop {
        let over = lines.is_finished();
        let batch = tracing.poll();
        for r in batch.records {
            *seen.entry(r.tid).or_default() += 1;
            if r.tid != main {
                check(&r, last.get(&r.tid));
                last.insert(r.tid, r);
            }
        }
        for (_, tid, n) in batch.lost {
            *lost.entry(tid).or_default() += n;
        }
        if over {
            break;
        }
    }
    let lines = lines.join().unwrap();
    assert_eq!(lines.len(), 8);
    let mut total = (0, 0);
    for line in lines {
        let (tid, pairs) = line.trim().split_once(' ').unwrap();
        let (tid, pairs): (u32, u64) = (tid.parse().unwrap(), pairs.parse().unwrap());
        let (s, l) = (seen[&tid], lost.get(&tid).copied().unwrap_or(0));
        assert_eq!(s + l, 2 * pairs, "thread {tid}: {s} events, {l} lost");
        total = (total.0 + s, total.1 + l);
    }
    eprintln!("{} events read, {} lost in {seconds} s", total.0, total.1);
    assert_eq!(tracing.sums().lost_nested, 0);
}
