//! Reads a live process whose ledger was laid out by hand.

mod common;

use common::{Running, compile, ledger, run, scratch, source};
use memledger_inspect::{
    Error, Helpers, Memory, MergeBy, NoLedgerReason, Process, ProcessMemory, RowKind, Snapshot,
    Sum, Symbolizer, control, find, rows, to_allocinfo,
};
use std::process::Command;

fn sum(bytes: u64, calls: u64) -> Sum {
    Sum { bytes, calls }
}

const UNIT: u64 = 65536;

fn check_contents(s: &Snapshot) {
    assert_eq!(s.ledgers.len(), 1);
    let l = &s.ledgers[0];
    assert_eq!(l.tag_sums, [sum(640, 10), sum(1280, 20), sum(0, 0)]);
    assert_eq!(
        l.site_sums.iter().map(|(_, s)| *s).collect::<Vec<_>>(),
        [sum(30 * 64 + 3 * UNIT, 31)]
    );
    assert_eq!(l.reserved[1], sum(160, 1));
    assert_eq!(l.reserved[2], sum(3 * 64 + 32, 4));
    assert_eq!(l.reserved[5], sum(128, 2));
    assert_eq!(
        s.total,
        sum(
            640 + 1280 + 1920 + 3 * UNIT + 160 + 224 + 128,
            10 + 20 + 31 + 1 + 4 + 2
        )
    );
    assert_eq!(s.losses(), [7, 0, 0, 0, 0, 9, 0, 0]);
    assert_eq!((s.meta_bytes(), s.torn_units(), l.units), (1024, 0, 6));
    assert!(s.enabled() && !s.never());
    assert_eq!(
        (
            l.tags[1].file.as_str(),
            l.tags[1].func.as_str(),
            l.tags[1].line
        ),
        ("src/plug in.c", "plug(int)", 34)
    );
    assert_eq!(
        (
            l.tags[1].module.as_str(),
            l.tags[1].loaded,
            l.tags[1].accurate
        ),
        ("libplug.so", false, true)
    );
    assert!(l.tags[2].loaded && !l.tags[2].accurate);
}

#[test]
fn pie_and_not_stripped_and_not() {
    for options in [
        &["-pie", "-fPIE", "-O2"][..],
        &["-no-pie", "-O2"],
        &["-pie", "-fPIE", "-s"],
        &["-no-pie", "-s"],
    ] {
        let program = compile("ledger.c", options);
        let running = ledger(&program, "");
        let s = Snapshot::read(running.pid()).unwrap_or_else(|e| panic!("{options:?}: {e}"));
        check_contents(&s);
        assert_eq!(
            (s.process.comm.as_str(), &s.process.exe),
            ("prog", &program)
        );
    }
}

#[test]
fn deleted_executable_and_memory_file() {
    let program = compile("ledger.c", &["-g"]);
    let running = ledger(&program, "");
    std::fs::remove_file(&program).unwrap();
    let s = Snapshot::read(running.pid()).unwrap();
    check_contents(&s);
    assert_eq!(s.process.exe, program);
    let rows = rows(
        &s,
        &mut Symbolizer::default(),
        &Helpers::default(),
        MergeBy::Line,
    );
    assert_eq!(
        rows[0].func, "build_list",
        "the deleted file is read through /proc"
    );
    let by_file = ProcessMemory::by_file(running.pid()).unwrap();
    check_contents(&Snapshot::read_from(&by_file, s.process).unwrap());
}

#[test]
fn rows_name_the_caller_of_the_wrapper() {
    let running = ledger(&compile("ledger.c", &["-g", "-O2"]), "");
    let s = Snapshot::read(running.pid()).unwrap();
    let text = std::fs::read_to_string(source("ledger.c")).unwrap();
    let line = 1 + text
        .lines()
        .position(|l| l.contains("/* charged */"))
        .unwrap() as u32;
    let mut symbols = Symbolizer::default();
    let rows = rows(&s, &mut symbols, &Helpers::default(), MergeBy::Line);
    assert_eq!(rows.iter().map(|r| r.bytes).sum::<u64>(), s.total.bytes);
    assert_eq!(rows.iter().map(|r| r.calls).sum::<u64>(), s.total.calls);
    let top = &rows[0];
    assert_eq!(
        (top.func.as_str(), top.line, top.kind, top.calls),
        ("build_list", line, RowKind::Site, 31)
    );
    assert!(top.file.ends_with("tests/fixture/ledger.c"), "{}", top.file);
    assert_eq!((&top.module, &top.build_id, top.charged), (&None, &None, 1));
    let names: Vec<_> = top
        .frames
        .iter()
        .map(|f| (f.func.as_deref().unwrap(), f.inlined))
        .collect();
    assert_eq!(
        names,
        [
            ("xmalloc", false),
            ("build_list", true),
            ("work", false),
            ("main", false)
        ]
    );
    let none = memledger_inspect::rows(&s, &mut symbols, &Helpers::empty(), MergeBy::Stack);
    assert_eq!(none[0].func, "xmalloc");
    let mut all = Helpers::empty();
    all.add("*");
    assert_eq!(
        memledger_inspect::rows(&s, &mut symbols, &all, MergeBy::Line)[0].func,
        "main",
        "all are helpers"
    );
    let plug = rows.iter().find(|r| r.func == "plug(int)").unwrap();
    assert!(!plug.loaded && plug.kind == RowKind::Tag);
    for row in &rows {
        let out = to_allocinfo(row);
        let line = memledger_formats::allocinfo::write_row(
            &out,
            memledger_formats::allocinfo::Version::V2_0,
        );
        assert_eq!(
            memledger_formats::allocinfo::parse_row(line.trim_end_matches('\n')).unwrap(),
            out
        );
    }
}

#[test]
fn symbols_after_the_process_is_gone() {
    let mut running = ledger(&compile("ledger.c", &["-g", "-O2"]), "");
    let s = Snapshot::read(running.pid()).unwrap();
    running.kill();
    drop(running);
    assert!(!s.process.alive());
    let rows = rows(
        &s,
        &mut Symbolizer::default(),
        &Helpers::default(),
        MergeBy::Line,
    );
    assert_eq!(rows[0].func, "build_list");
}

#[test]
fn two_runtimes_add_up() {
    let library = scratch().join("libsecond.so");
    run(
        "cc",
        &[
            "-shared",
            "-fPIC",
            "-o",
            library.to_str().unwrap(),
            source("second.c").to_str().unwrap(),
        ],
    );
    let program = compile("ledger.c", &[]);
    let (running, _) = Running::start(Command::new(&program).env("LD_PRELOAD", &library));
    let s = Snapshot::read(running.pid()).unwrap();
    assert_eq!(s.ledgers.len(), 2);
    let one = Snapshot::read(ledger(&program, "").pid()).unwrap();
    assert_eq!(s.total.bytes, one.total.bytes + 4096);
}

#[test]
fn compressed_cells() {
    let running = ledger(&compile("ledger.c", &["-g", "-O2"]), "compressed");
    let s = Snapshot::read(running.pid()).unwrap();
    assert_eq!(s.ledgers[0].tag_sums[2], sum(4096, 1));
    assert_eq!(s.total, sum(3 * 4096, 3));
    let rows = rows(
        &s,
        &mut Symbolizer::default(),
        &Helpers::default(),
        MergeBy::Line,
    );
    assert_eq!((rows[0].func.as_str(), rows[0].bytes), ("build_list", 8192));
    let inaccurate: Vec<_> = rows.iter().filter(|r| !r.accurate).collect();
    assert_eq!((inaccurate.len(), inaccurate[0].bytes), (1, 4096));
}

#[test]
fn a_unit_that_keeps_changing_is_counted() {
    let running = ledger(&compile("ledger.c", &[]), "torn");
    let s = Snapshot::read(running.pid()).unwrap();
    assert_eq!(s.torn_units(), 1);
    assert_eq!(s.total, sum(3 * UNIT + 160 + 32, 3));
}

#[test]
fn switch() {
    let mut running = ledger(&compile("ledger.c", &[]), "");
    assert_eq!(control::get(running.pid()).unwrap(), [true]);
    for (on, word) in [(false, "off"), (true, "on")] {
        assert_eq!(control::set(running.pid(), on).unwrap(), 1);
        assert_eq!(running.lines.next().unwrap().unwrap(), word);
        assert_eq!(control::get(running.pid()).unwrap(), [on]);
        assert_eq!(Snapshot::read(running.pid()).unwrap().enabled(), on);
    }
}

#[test]
fn clear_errors() {
    let program = compile("ledger.c", &[]);
    let read = |mode: &str| Snapshot::read(ledger(&program, mode).pid());
    assert!(matches!(read("notready"), Err(Error::NotReady { .. })));
    assert!(matches!(
        read("version"),
        Err(Error::WrongVersion { found: 7, .. })
    ));
    assert!(matches!(
        read("garbage"),
        Err(Error::Corrupt {
            what: "unit_shift",
            ..
        })
    ));
    let never = ledger(&program, "never");
    assert!(matches!(
        control::set(never.pid(), false),
        Err(Error::Never { .. })
    ));
    assert!(matches!(
        control::get(never.pid()),
        Err(Error::Never { .. })
    ));
    assert!(Snapshot::read(never.pid()).unwrap().never());
    let mut killed = ledger(&program, "");
    killed.kill();
    let error = loop {
        match Snapshot::read(killed.pid()) {
            Ok(_) => std::thread::yield_now(),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::Dying { .. }), "{error}");
    let pid = killed.pid();
    drop(killed);
    assert!(matches!(
        Snapshot::read(pid),
        Err(Error::NoSuchProcess { .. })
    ));
}

#[test]
fn why_there_is_no_ledger() {
    let reason = |command: &mut Command| {
        let (running, _) = Running::start(command);
        match Snapshot::read(running.pid()) {
            Err(Error::NoLedger { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    let program = compile("names.cc", &[]);
    assert_eq!(
        reason(&mut Command::new(&program)),
        NoLedgerReason::NotPreloaded
    );
    let preload = "/nowhere/libmemledger.so";
    let failed = reason(
        Command::new(&program)
            .env("LD_PRELOAD", preload)
            .stderr(std::process::Stdio::null()),
    );
    assert_eq!(failed, NoLedgerReason::PreloadFailed(preload.into()));
    let linked = compile("names.cc", &["-static"]);
    assert_eq!(reason(&mut Command::new(&linked)), NoLedgerReason::Static);
}

/// Another user may not read: only when run as root can there be another user.
#[test]
fn permission() {
    use std::os::unix::process::CommandExt;
    let me = Process::read(std::process::id()).unwrap();
    assert!(me.alive());
    if std::fs::metadata("/proc/self")
        .map(|m| std::os::unix::fs::MetadataExt::uid(&m))
        .unwrap()
        != 0
    {
        return;
    }
    // The test binary itself, where an ordinary user can reach it.
    let public = std::env::temp_dir().join(format!("inspect-reader-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &public).unwrap();
    let running = ledger(&compile("ledger.c", &[]), "");
    let out = Command::new(&public)
        .args(["--exact", "as_other_user", "--ignored", "--nocapture"])
        .env("INSPECT_PID", running.pid().to_string())
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output();
    std::fs::remove_file(&public).unwrap();
    let text = String::from_utf8_lossy(&out.unwrap().stdout).into_owned();
    assert!(
        text.contains("permission denied: it belongs to user 0"),
        "{text}"
    );
}

#[test]
#[ignore = "run by the test `permission` under another user id"]
fn as_other_user() {
    let Ok(pid) = std::env::var("INSPECT_PID") else {
        return;
    };
    println!("{}", Snapshot::read(pid.parse().unwrap()).unwrap_err());
}

#[test]
fn own_memory_and_batches_with_holes() {
    let mem = ProcessMemory::new(std::process::id());
    let data: Vec<u8> = (0..=255).collect();
    let at = data.as_ptr() as u64;
    let mut bufs = vec![[0u8; 16]; 3000];
    let addr = |i: usize| {
        if i % 3 == 1 {
            16
        } else {
            at + (i % 240) as u64
        }
    };
    let mut spans: Vec<_> = bufs
        .iter_mut()
        .enumerate()
        .map(|(i, b)| find_span(addr(i), b))
        .collect();
    mem.read_many(&mut spans);
    for (i, span) in spans.iter().enumerate() {
        assert_eq!(span.ok, i % 3 != 1, "{i}");
        if span.ok {
            assert_eq!(span.buf, &data[i % 240..i % 240 + 16]);
        }
    }
    let search = find::descriptors(&mem, &Process::read(std::process::id()).unwrap().mappings);
    assert!(search.found.is_empty() && search.objects > 1);
    assert!(mem.read(u64::MAX - 4, &mut [0; 16]).is_err());
}

fn find_span(addr: u64, buf: &mut [u8]) -> memledger_inspect::mem::Span<'_> {
    memledger_inspect::mem::Span::new(addr, buf)
}

#[test]
fn a_million_objects() {
    let running = ledger(&compile("ledger.c", &["-O2"]), "big");
    let runs = if cfg!(debug_assertions) { 2 } else { 20 };
    let times: Vec<_> = (0..runs)
        .map(|_| {
            let s = Snapshot::read(running.pid()).unwrap();
            assert_eq!(s.total, sum(977 * 1024 * 64, 977 * 1024));
            assert_eq!(
                (
                    s.ledgers[0].tags.len(),
                    s.ledgers[0].nodes.len(),
                    s.torn_units()
                ),
                (5000, 15000, 0)
            );
            s.read_time
        })
        .collect();
    println!("read in {times:?}");
    if !cfg!(debug_assertions) {
        assert!(times.iter().min().unwrap().as_millis() < 20, "{times:?}");
    }
}
