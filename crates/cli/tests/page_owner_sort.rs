//! `memledger page-owner sort` against what the kernel's own tool printed, and where it does better.

mod common;

use common::{memledger, output, shared, temporary, text};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Files of the tool's output, and its options.
const PRINTED: [(&str, &[&str]); 9] = [
    ("default", &[]),
    ("opt-m", &["-m"]),
    ("opt-p", &["-p"]),
    ("pid-list", &["--pid=1,2"]),
    ("cull-st", &["--cull=st"]),
    ("cull-pid", &["--cull=pid"]),
    ("cull-allocator", &["--cull=allocator"]),
    ("cull-st_pid_name", &["--cull=st,pid,name"]),
    ("name_cull", &["--name=sh", "--cull=pid,name"]),
];

fn folder() -> Option<PathBuf> {
    shared("kernel-data/page_owner_sort")
}

/// Sorts a file to standard output.
fn sort(options: &[&str], input: &Path) -> (i32, String, String) {
    let (input, sort) = (input.to_str().unwrap(), ["page-owner", "sort"]);
    output(&[&sort[..], options, &[input, "-"]].concat())
}

fn record(order: u32, pid: u32, name: &str, ts: u64, stack: &str) -> String {
    format!(
        "Page allocated via order {order}, mask 0x0(), pid {pid}, tgid {pid} ({name}), ts {ts} ns\n\
         PFN 0x0 type Movable Block 0 type Movable Flags 0x0(node=0)\n{stack}\n"
    )
}

/// Writes a temporary file.
fn file(name: &str, text: &[u8]) -> PathBuf {
    let path = temporary(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn kernel_compat_is_the_kernels_output() {
    let Some(dir) = folder() else { return };
    let files = std::fs::read_dir(dir.join("out")).unwrap().count();
    assert_eq!(files, PRINTED.len(), "files of output without a test");
    for (name, options) in PRINTED {
        let options = [&["--kernel-compat"], options].concat();
        let (code, out, err) = sort(&options, &dir.join("input.every8.txt.xz"));
        assert_eq!((code, err.as_str()), (0, ""), "{name}");
        let expect = std::fs::read(dir.join("out").join(format!("{name}.out"))).unwrap();
        assert!(out.as_bytes() == expect, "{name} differs");
    }
}

#[test]
fn odd_files_lose_nothing() {
    let Some(dir) = folder() else { return };
    let edge = |name: &str| sort(&["--cull=st"], &dir.join("edge").join(name));
    let base = edge("base.txt");
    assert_eq!((base.0, base.2.as_str()), (0, ""));
    for name in ["crlf.txt", "no-final-blank.txt", "double-blank.txt"] {
        assert_eq!(edge(name), base, "{name}");
    }
}

/// Three groups whose keys are in different orders.
fn three() -> String {
    let a = record(0, 1, "b", 30, " f+0x1/0x2\n");
    let b = record(3, 2, "a", 10, " h+0x1/0x2\n") + &record(3, 2, "a", 11, " h+0x1/0x2\n");
    a + &b + &record(1, 3, "a", 20, " g+0x1/0x2\nSlab cache page\n")
}

/// The pids in the order of output.
fn pids(options: &[&str], input: &Path) -> Vec<u64> {
    let (code, out, err) = sort(&[options, &["--json"]].concat(), input);
    assert_eq!((code, err.as_str()), (0, ""), "{options:?}");
    let all: serde_json::Value = serde_json::from_str(&out).unwrap();
    let groups = all["groups"].as_array().unwrap().iter();
    groups.map(|g| g["pid"].as_u64().unwrap()).collect()
}

#[test]
fn each_option_has_its_effect() {
    let path = file("three", three().as_bytes());
    let cases: [(&[&str], [u64; 3]); 13] = [
        (&[], [2, 1, 3]),
        (&["-t"], [2, 1, 3]),
        (&["-m"], [2, 3, 1]),
        (&["-a"], [2, 3, 1]),
        (&["-p"], [1, 2, 3]),
        (&["-P"], [1, 2, 3]),
        (&["-n"], [3, 2, 1]),
        (&["-s"], [1, 3, 2]),
        (&["--sort", "-pid"], [3, 2, 1]),
        (&["--sort", "n,-p"], [3, 2, 1]),
        (&["--sort=-name,at"], [1, 2, 3]),
        (&["--sort=+pages"], [1, 3, 2]),
        (&["--sort", "ator,st"], [3, 1, 2]),
    ];
    for (options, expect) in cases {
        assert_eq!(pids(options, &path), expect, "{options:?}");
    }
    assert_eq!(pids(&["--pid=3,1"], &path), [1, 3]);
    assert_eq!(pids(&["--tgid=2"], &path), [2]);
    assert_eq!(pids(&["--name=a"], &path), [2, 3]);
    let (_, out, _) = sort(&["--cull=n,ator"], &path);
    let lines = [
        "2 times, 16 pages, task_comm_name: a, allocated by OTHERS ",
        "1 times, 2 pages, task_comm_name: a, allocated by SLAB ",
        "1 times, 1 pages, task_comm_name: b, allocated by OTHERS ",
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), lines);
    for wrong in [&["--sort=x"][..], &["--cull=times"], &["-a", "-m"]] {
        assert_eq!(sort(wrong, &path).0, 2, "{wrong:?}");
    }
}

#[test]
fn times_of_frees() {
    let line = |pid, free: u64| {
        record(0, pid, "a", 5, " f+0x1/0x2\n")
            .replace(" ts 5 ns", &format!(" ts 5 ns, free_ts {free} ns"))
    };
    let text = line(1, 4) + &line(2, 9) + &line(3, 0);
    let path = file("free", text.as_bytes());
    assert_eq!(pids(&["-r"], &path), [3, 1, 2]);
    assert_eq!(pids(&["--sort=-ft"], &path), [2, 1, 3]);
    assert_eq!(pids(&["-f"], &path), [1, 3]);
    let (_, out, _) = sort(&["--cull=f"], &path);
    assert_eq!(
        out,
        "2 times, 2 pages, UNRELEASED\n1 times, 1 pages, RELEASED\n"
    );
}

#[test]
fn losses_have_line_numbers() {
    let text = three() + "what\n\nPage allocated via order x\nPFN 0x1\n\n" + &three();
    let (code, out, err) = sort(&["--cull=p"], &file("bad", text.as_bytes()));
    assert_eq!(code, 1);
    assert!(
        err.contains("line 18: ") && err.contains("line 20: "),
        "{err}"
    );
    assert!(out.starts_with("4 times, 32 pages, PID 2\n"), "{out}");
    let cut = three();
    let path = file("cut", &cut.as_bytes()[..cut.len() - 8]);
    assert_eq!(sort(&[], &path).0, 1);
    // The tool drops it, too.
    let path = file("last", three().trim_end().as_bytes());
    assert_eq!(sort(&["--kernel-compat"], &path).0, 1);
}

/// What a packer makes of text; `None` without it.
fn pack(packer: &str, text: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new(packer);
    command
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: no {packer}");
        return None;
    };
    child.stdin.take().unwrap().write_all(text).unwrap();
    Some(child.wait_with_output().unwrap().stdout)
}

#[test]
fn packed_input_and_standard_input() {
    let plain = sort(&[], &file("plain", three().as_bytes()));
    assert_eq!(plain.0, 0);
    for packer in ["xz", "gzip", "zstd"] {
        let Some(packed) = pack(packer, three().as_bytes()) else {
            continue;
        };
        assert_eq!(sort(&[], &file(packer, &packed)), plain, "{packer}");
        let path = file("half", &packed[..packed.len() / 2]);
        let (code, out, err) = sort(&[], &path);
        assert_eq!((code, out.as_str()), (2, ""), "{packer}");
        assert!(err.contains(path.to_str().unwrap()), "{err}");
    }
    // By the tool's name, and from a pipe.
    let mut command = memledger();
    command
        .arg0("/usr/bin/page_owner_sort")
        .args(["-t", "-", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(three().as_bytes()).unwrap();
    drop(stdin);
    assert_eq!(text(&child.wait_with_output().unwrap()), plain);
}
