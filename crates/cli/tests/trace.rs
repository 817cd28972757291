//! `memledger trace`: the text and the raw pages of one run of a real kernel give the same reports, in all views.
//!
//! The captures are not part of the repository; `MEMLEDGER_SHARED` names the folder that has them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const VIEWS: [&str; 12] = [
    "totals",
    "site",
    "cache",
    "task",
    "flags",
    "migrate",
    "live",
    "leaks",
    "sizes",
    "lifetimes",
    "timeline",
    "others",
];

fn captures() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("MEMLEDGER_SHARED").map_or(root, PathBuf::from);
    let dir = shared.join("kernel-data/linux-7.3");
    if dir.is_dir() {
        return Some(dir);
    }
    println!(
        "skipped: no captures at {} (set MEMLEDGER_SHARED)",
        dir.display()
    );
    None
}

fn trace(args: &[&str], files: &[PathBuf]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_memledger"))
        .arg("trace")
        .args(args)
        .args(files)
        .output()
        .expect("starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn text_and_raw_pages_give_the_same_reports() {
    let Some(dir) = captures() else { return };
    let one = [dir.join("trace.kmem-all.txt.xz")];
    let two = [0, 1].map(|n| dir.join(format!("trace_pipe_raw.cpu{n}.bin.xz")));
    let mut args = vec!["report", "-n", "0"];
    VIEWS.iter().for_each(|view| args.extend(["--by", view]));
    let (left, right) = (trace(&args, &one), trace(&args, &two));
    assert_eq!(
        (left.status.code(), right.status.code()),
        (Some(0), Some(0))
    );
    assert_eq!(text(&left.stdout), text(&right.stdout));
    let report = text(&left.stdout);
    assert!(
        report.contains("58941 allocations and frees") && report.contains("11439 other events")
    );
    assert_eq!(58_941 + 11_439, 70_380);
    let args = ["report", "--folded", "-", "--weight", "hits"];
    let (left, right) = (trace(&args, &one), trace(&args, &two));
    assert_eq!(text(&left.stdout), text(&right.stdout));
    assert!(text(&left.stdout).contains(";alloc_pipe_info "));
}

#[test]
fn losses_are_shown_and_lower_the_confidence() {
    let Some(dir) = captures() else { return };
    let file = [dir.join("trace-formats/trace.small-buffer-overwritten.txt")];
    let out = trace(&["report", "--json"], &file);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("lost: 1090 events"),
        "{}",
        text(&out.stderr)
    );
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(json["lost"]["events"], 1090);
    assert!(json["confidence"].as_f64().expect("a number") < 0.3);
}

#[test]
fn what_contradicts_itself_is_found() {
    let dir = std::env::temp_dir().join(format!("memledger-trace-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let file = [dir.join("trace.txt")];
    let head = "a-1 [000] ..... 1.00000";
    let alloc = "kmalloc: call_site=f+0x1/0x9 ptr=ffff888000000";
    let free = "kfree: call_site=g+0x1/0x9 ptr=ffff888000000";
    let tail = "gfp_flags=GFP_KERNEL node=-1";
    let lines = format!(
        "{head}1: {alloc}100 bytes_req=64 bytes_alloc=64 {tail}\n{head}2: {alloc}120 bytes_req=8 bytes_alloc=8 {tail}\n\
         {head}3: {free}100\n{head}4: {free}100\n{head}5: {free}900\n{head}6: {alloc}200 bytes_req=9 bytes_alloc=8 {tail}\n\
         {head}7: {alloc}200 bytes_req=8 bytes_alloc=8 {tail}\n"
    );
    std::fs::write(&file[0], lines).expect("written");
    let out = trace(&["check", "--json"], &file);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    for kind in [
        "free without allocation",
        "double free",
        "less given than requested",
        "allocated while live",
        "overlaps a live object",
    ] {
        assert_eq!(json["problems"][kind], 1, "{kind}");
    }
    assert_eq!(out.status.code(), Some(1));
    std::fs::write(
        &file[0],
        format!("{head}1: {alloc}100 bytes_req=64 bytes_alloc=64 {tail}\n{head}3: {free}100\n"),
    )
    .expect("written");
    assert_eq!(trace(&["check"], &file).status.code(), Some(0));
    std::fs::remove_dir_all(&dir).expect("removed");
}

#[test]
fn a_leak_comes_first() {
    use std::fmt::Write;
    let file = [std::env::temp_dir().join(format!("memledger-leak-{}.txt", std::process::id()))];
    let mut lines = String::new();
    for i in 0..4000_u64 {
        for (site, ptr) in [
            ("leaky", 0xffff_8880_0000_0000 + i * 64),
            ("fine", 0xffff_8881_0000_0000 + i * 64),
        ] {
            writeln!(lines, "a-1 [000] ..... {}.000000: kmalloc: call_site={site}+0x1/0x9 ptr={ptr:x} bytes_req=64 bytes_alloc=64 gfp_flags=GFP_KERNEL node=-1", i + 1).expect("text");
            if site == "fine" || i % 1000 != 5 {
                writeln!(
                    lines,
                    "a-1 [000] ..... {}.500000: kfree: call_site={site}+0x1/0x9 ptr={ptr:x}",
                    i + 1
                )
                .expect("text");
            }
        }
    }
    std::fs::write(&file[0], lines).expect("written");
    let out = trace(&["report", "--json", "--by", "leaks"], &file);
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(json["leaks"][0]["site"], "leaky+0x1");
    assert_eq!(
        (
            &json["leaks"][0]["objects"],
            json["leaks"].as_array().expect("rows").len()
        ),
        (&4.into(), 1)
    );
    std::fs::remove_file(&file[0]).expect("removed");
}
