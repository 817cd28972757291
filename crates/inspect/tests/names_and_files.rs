//! Symbols from every place they may be in.

mod common;

use common::{Running, compile, ledger, run};
use memledger_inspect::{
    Frame, Helpers, Ledger, MergeBy, ModuleInfo, NodeInfo, Process, Row, Snapshot, Sum,
    SymbolOptions, Symbolizer, rows,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

fn top(program: &Path, options: SymbolOptions) -> (Row, Running) {
    let running = ledger(program, "");
    let s = Snapshot::read(running.pid()).unwrap();
    let rows = rows(
        &s,
        &mut Symbolizer::new(options),
        &Helpers::default(),
        MergeBy::Line,
    );
    (rows[0].clone(), running)
}

fn dirs(dir: &Path) -> SymbolOptions {
    SymbolOptions {
        debug_dirs: vec![dir.to_owned()],
        ..SymbolOptions::default()
    }
}

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

/// Moves the debug information of a program to a file and strips the program of all symbols.
fn split(program: &Path, debug: &Path) {
    std::fs::create_dir_all(debug.parent().unwrap()).unwrap();
    run(
        "objcopy",
        &["--only-keep-debug", path(program), path(debug)],
    );
    run("strip", &[path(program)]);
}

fn build_id(program: &Path) -> String {
    use object::Object;
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    file.build_id()
        .unwrap()
        .unwrap()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

#[test]
fn without_debug_information_the_symbol_table() {
    let (row, _running) = top(&compile("ledger.c", &["-O2"]), SymbolOptions::default());
    // What was inlined cannot be told apart.
    assert_eq!(
        (row.func.as_str(), row.file.as_str(), row.line),
        ("work", "prog", 0)
    );
    assert!(row.build_id.is_some_and(|id| id.len() == 40));
}

#[test]
fn stripped_static_functions_have_no_wrong_name() {
    let program = compile("ledger.c", &["-O2", "-s", "-rdynamic"]);
    // Exported functions keep their names; `main` and `work` are such, `fake_malloc` is not asked for.
    assert_eq!(top(&program, SymbolOptions::default()).0.func, "work");
    let program = compile("ledger.c", &["-O2", "-s", "-fvisibility=hidden"]);
    let (row, _running) = top(&program, SymbolOptions::default());
    assert!(row.func.starts_with("prog+0x"), "{}", row.func);
    assert_eq!(row.build_id.as_deref(), Some(build_id(&program).as_str()));
    assert_eq!(row.charged, 0, "nothing is known to be a helper");
}

#[test]
fn debug_file_by_build_id() {
    let program = compile("ledger.c", &["-g", "-O2"]);
    let id = build_id(&program);
    let dir = common::scratch();
    split(
        &program,
        &dir.join(format!(".build-id/{}/{}.debug", &id[..2], &id[2..])),
    );
    assert!(
        top(&program, SymbolOptions::default())
            .0
            .func
            .starts_with("prog+0x")
    );
    let (row, _running) = top(&program, dirs(&dir));
    assert_eq!(
        (row.func.as_str(), row.build_id.is_none()),
        ("build_list", true)
    );
    assert!(row.line > 0);
    let fast = SymbolOptions {
        no_dwarf: true,
        ..dirs(&dir)
    };
    let (row, _running) = top(&program, fast);
    assert_eq!((row.func.as_str(), row.line), ("work", 0));
}

#[test]
fn debug_file_by_link() {
    for (options, place) in [
        (&["-g", "-O2"][..], "prog.debug"),
        (&["-g", "-O2", "-Wl,--build-id=none"], ".debug/prog.debug"),
    ] {
        let program = compile("ledger.c", options);
        let debug = program.with_file_name(place);
        split(&program, &debug);
        run(
            "objcopy",
            &[
                &format!("--add-gnu-debuglink={}", path(&debug)),
                path(&program),
            ],
        );
        let (row, _running) = top(&program, SymbolOptions::default());
        assert_eq!(row.func, "build_list", "{place}");
        // A file of that name which is another build must not be used.
        let other = compile("ledger.c", &["-g", "-O1", "-DOTHER"]);
        std::fs::copy(&other, &debug).unwrap();
        let (row, _running) = top(&program, SymbolOptions::default());
        assert!(row.func.starts_with("prog+0x"), "{place}: {}", row.func);
    }
}

#[test]
fn compressed_and_split_debug_information() {
    for options in [
        &["-g", "-O2", "-gz=zlib"][..],
        &["-g", "-O2", "-gdwarf-4"],
        &["-g", "-O2", "-gsplit-dwarf"],
    ] {
        let (row, _running) = top(&compile("ledger.c", options), SymbolOptions::default());
        assert_eq!(
            (row.func.as_str(), row.line > 0),
            ("build_list", true),
            "{options:?}"
        );
    }
}

#[test]
fn another_file_at_the_same_path_is_not_taken() {
    let program = compile("ledger.c", &["-g", "-O2"]);
    let running = ledger(&program, "");
    let s = Snapshot::read(running.pid()).unwrap();
    drop(running);
    let other = compile("ledger.c", &["-g", "-O1", "-DOTHER"]);
    std::fs::remove_file(&program).unwrap();
    std::fs::copy(&other, &program).unwrap();
    let rows = rows(
        &s,
        &mut Symbolizer::default(),
        &Helpers::default(),
        MergeBy::Line,
    );
    assert!(rows[0].func.starts_with("prog+0x"), "{}", rows[0].func);
}

/// A snapshot with one site: one frame at return address `ra` in the object `name` (empty: the executable).
fn one_site(pid: u32, exe: PathBuf, name: &str, ra: u64, bias: u64) -> Snapshot {
    let module = ModuleInfo {
        bias,
        name: name.into(),
        loaded: true,
        ..ModuleInfo::default()
    };
    let ledger = Ledger {
        site_sums: vec![(
            1,
            Sum {
                bytes: 64,
                calls: 1,
            },
        )],
        nodes: vec![
            NodeInfo::default(),
            NodeInfo {
                ra,
                module: 1,
                parent: 0,
                dead: false,
            },
        ],
        modules: vec![ModuleInfo::default(), module],
        ..Ledger::default()
    };
    let process = Process {
        pid,
        exe,
        ..Process::default()
    };
    let total = Sum {
        bytes: 64,
        calls: 1,
    };
    let (time, read_time) = (SystemTime::now(), Duration::ZERO);
    Snapshot {
        core: None,
        process,
        ledgers: vec![ledger],
        total,
        time,
        read_time,
    }
}

fn frames(s: &Snapshot) -> Vec<Rc<Frame>> {
    Symbolizer::default().stack(s, &s.ledgers[0], 1)
}

#[test]
fn names_of_cpp() {
    for options in [&["-g", "-O1"][..], &["-O1"]] {
        let program = compile("names.cc", options);
        let (running, line) = Running::start(&mut Command::new(&program));
        let hex = |w: &str| u64::from_str_radix(w.trim_start_matches("0x"), 16).unwrap();
        let (ra, bias) = line.split_once(' ').map(|(a, b)| (hex(a), hex(b))).unwrap();
        let s = one_site(running.pid(), program, "", ra, bias);
        let f = &frames(&s)[0];
        let name = f.func.as_deref().unwrap();
        assert_eq!(
            name,
            "shop::Cart<std::vector<int, std::allocator<int> > >::fill"
        );
        assert!(!Helpers::default().is_helper(name));
        assert_eq!(f.line > 0, options.contains(&"-g"));
    }
}

/// A function of this program.
#[inline(never)]
fn named_here(x: u64) -> u64 {
    std::hint::black_box(x.wrapping_mul(31).rotate_left(7) ^ 0x55)
}

#[test]
fn names_of_rust_and_of_a_shared_object() {
    assert_ne!(named_here(1), 0);
    let me = Process::read(std::process::id()).unwrap();
    let exe = me.exe.clone();
    let base = me
        .mappings
        .iter()
        .find(|m| Path::new(&m.path) == exe)
        .unwrap()
        .start;
    let at = named_here as *const () as u64 + 4;
    let s = one_site(me.pid, exe.clone(), "", at, base);
    let f = frames(&s).pop().unwrap();
    assert_eq!(f.func.as_deref(), Some("names_and_files::named_here"));
    assert!(f.file.as_deref().unwrap().ends_with("names_and_files.rs") && f.module.is_none());
    // The same as a library: it has a module then. A path that is not there has the offset only.
    let s = one_site(0, PathBuf::new(), exe.to_str().unwrap(), at, base);
    let f = frames(&s).pop().unwrap();
    assert_eq!(f.module.as_deref(), exe.file_name().unwrap().to_str());
    assert_eq!(f.func.as_deref(), Some("names_and_files::named_here"));
    let s = one_site(0, PathBuf::new(), "/nowhere/libx.so.1", 0x1235, 0x1000);
    let row = rows(
        &s,
        &mut Symbolizer::default(),
        &Helpers::default(),
        MergeBy::Line,
    )
    .remove(0);
    assert_eq!(
        (row.func.as_str(), row.file.as_str(), row.line),
        ("libx.so.1+0x234", "libx.so.1", 0)
    );
}

#[test]
fn code_of_no_object() {
    let mut s = one_site(0, PathBuf::new(), "", 0x1235, 0);
    s.ledgers[0].nodes[1].module = 0;
    let row = rows(
        &s,
        &mut Symbolizer::default(),
        &Helpers::default(),
        MergeBy::Line,
    )
    .remove(0);
    assert_eq!((row.func.as_str(), row.file.as_str()), ("0x1234", "?"));
}
