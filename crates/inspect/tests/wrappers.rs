//! A stripped program with wrappers of its own around malloc, run with the library that accounts it.

mod common;

use common::{Running, compile, run};
use memledger_inspect::{Helpers, MergeBy, Report, Row, Snapshot, Symbolizer, report};
use object::{Object, ObjectSymbol};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library to preload, if it has been built: `MEMLEDGER_TEST_LIB`, or in this build's or the workspace's directory.
fn library() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("MEMLEDGER_TEST_LIB") {
        return Some(PathBuf::from(path));
    }
    let tests = std::env::current_exe().ok()?;
    let build = tests.parent()?.parent()?.to_owned();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release");
    let found = [build.join("../release"), workspace, build]
        .iter()
        .map(|dir| dir.join("libmemledger_preload.so"))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: libmemledger_preload.so has not been built (MEMLEDGER_TEST_LIB)");
    }
    found
}

/// Its functions by address, before it is stripped.
fn functions(program: &Path) -> HashMap<u64, String> {
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let text = file
        .symbols()
        .filter(|s| s.kind() == object::SymbolKind::Text);
    text.map(|s| (s.address(), s.name().unwrap().to_owned()))
        .collect()
}

/// Name of a row's function, by its start; only of rows of the program itself.
fn name(row: &Row, functions: &HashMap<u64, String>) -> Option<String> {
    let start = row.func.strip_prefix("prog+0x")?;
    let start = u64::from_str_radix(start, 16).unwrap();
    Some(functions.get(&start).expect("the start of one").clone())
}

struct Stripped {
    functions: HashMap<u64, String>,
    snapshot: Snapshot,
    _running: Running,
}

impl Stripped {
    fn start() -> Option<Self> {
        let library = library()?;
        let program = compile("wrappers.c", &["-O2", "-fno-optimize-sibling-calls"]);
        let functions = functions(&program);
        run("strip", &["-s", program.to_str().unwrap()]);
        let (running, first) = Running::start(Command::new(&program).env("LD_PRELOAD", library));
        assert_eq!(first, "ready");
        Some(Stripped {
            functions,
            snapshot: Snapshot::read(running.pid()).unwrap(),
            _running: running,
        })
    }

    fn report(&self, guess: bool, merge: MergeBy) -> Report {
        let mut helpers = Helpers::default();
        helpers.set_guess(guess);
        report(&self.snapshot, &mut Symbolizer::default(), &helpers, merge)
    }

    /// Function, calls, guessed; of the rows of the program.
    fn rows(&self, report: &Report) -> Vec<(String, u64, bool)> {
        let one = |r: &Row| Some((name(r, &self.functions)?, r.calls, r.guessed));
        let mut rows: Vec<_> = report.rows.iter().filter_map(one).collect();
        rows.sort();
        rows
    }
}

#[test]
fn callers_of_wrappers_without_a_name_are_charged() {
    let Some(program) = Stripped::start() else {
        return;
    };
    let report = program.report(true, MergeBy::Line);
    let mut expected: Vec<_> = (1..=6)
        .map(|n| (format!("user{n}"), 10 * n, true))
        .collect();
    expected.insert(0, ("make_node".to_owned(), 21, true));
    assert_eq!(program.rows(&report), expected);
    let mut wrappers: Vec<(&str, usize, usize)> = report
        .wrappers
        .iter()
        .map(|w| (program.functions[&w.start].as_str(), w.callers, w.places))
        .collect();
    wrappers.sort_unstable();
    // Only seen places count: the program never asks for 0 bytes.
    assert_eq!(wrappers, [("checked", 7, 1), ("raw_alloc", 1, 1)]);
    for w in &report.wrappers {
        assert!(
            w.object.ends_with("/prog") && w.size > 0 && w.size < 200,
            "{w:?}"
        );
    }
    // One line of a function each: the loops of a user are two stacks.
    let stacks = program.report(true, MergeBy::Stack);
    let user = |r: &&Row| name(r, &program.functions).as_deref() == Some("user6");
    let of_user: Vec<&Row> = stacks.rows.iter().filter(user).collect();
    assert_eq!(of_user.len(), 2);
    let places: Vec<String> = of_user
        .iter()
        .map(|r| r.frames[r.charged].place())
        .collect();
    assert_ne!(places[0], places[1]);
    assert!(
        places
            .iter()
            .all(|p| p.starts_with(&format!("{}+0x", of_user[0].func)))
    );
    assert_eq!(of_user[0].func, of_user[1].func);
    assert!(of_user.iter().all(|r| r.build_id.is_some()));
    assert_eq!(of_user[0].charged, 2);
}

#[test]
fn without_guesses_the_wrapper_is_one_row() {
    let Some(program) = Stripped::start() else {
        return;
    };
    let report = program.report(false, MergeBy::Line);
    assert_eq!(
        program.rows(&report),
        [("raw_alloc".to_owned(), 210 + 21, false)]
    );
    assert_eq!(report.wrappers, []);
    let sum: u64 = report.rows.iter().map(|r| r.bytes).sum();
    assert_eq!(sum, program.snapshot.total.bytes);
}

#[test]
fn a_symbol_without_a_size_does_not_name_the_next_function() {
    let Some(library) = library() else { return };
    // An exported function without a size, as `_init` is, stands before all others.
    let dir = common::scratch();
    let asm = dir.join("first.s");
    let text =
        ".globl first\n.type first,@function\n.text\nfirst: ret\n.section .note.GNU-stack,\"\"\n";
    std::fs::write(&asm, text).unwrap();
    let source = common::source("wrappers.c");
    let program = dir.join("prog");
    let [asm, source, out] = [&asm, &source, &program].map(|p| p.to_str().unwrap());
    run(
        "cc",
        &[
            "-O2",
            "-rdynamic",
            "-fvisibility=hidden",
            "-o",
            out,
            asm,
            source,
        ],
    );
    let functions = functions(&program);
    let start = |wanted| functions.iter().find(|(_, n)| *n == wanted).unwrap().0;
    let apart = start("raw_alloc").wrapping_sub(*start("first"));
    assert!(apart < 4096, "{apart:#x}");
    run("strip", &["-s", out]);
    let (running, _) = Running::start(Command::new(&program).env("LD_PRELOAD", library));
    let snapshot = Snapshot::read(running.pid()).unwrap();
    let report = report(
        &snapshot,
        &mut Symbolizer::default(),
        &Helpers::default(),
        MergeBy::Line,
    );
    assert!(report.rows.iter().all(|r| r.func != "first"));
    assert_eq!(report.wrappers.len(), 2);
}
