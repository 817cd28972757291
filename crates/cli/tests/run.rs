//! `memledger run`: the command must not notice it, whatever it does; and the report.

mod common;

use common::{harmless_library, library, memledger, temporary, text};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How commands are run: without a library (followed only), and with one (traced and read).
fn ways() -> [Option<std::path::PathBuf>; 2] {
    [None, Some(harmless_library())]
}

/// `memledger run`, traced, with a library that accounts nothing.
fn traced() -> Command {
    let mut command = memledger();
    command.env("MEMLEDGER_LIB", harmless_library()).arg("run");
    command
}

fn sh(script: &str) -> (i32, String, String) {
    text(&traced().args(["--", "sh", "-c", script]).output().unwrap())
}

#[test]
fn exit_codes_and_signals_are_those_of_the_command() {
    let cases = [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -TERM $$", 128 + 15),
        ("kill -KILL $$", 128 + 9),
        ("kill -SEGV $$", 128 + 11),
        ("kill -ABRT $$", 128 + 6),
        ("kill -INT $$", 128 + 2),
        ("kill -35 $$", 128 + 35),
        ("exec sh -c 'exit 9'", 9),
        ("true & wait; exit 3", 3),
    ];
    for library in ways() {
        for children in [false, true] {
            for (script, code) in cases {
                let mut command = memledger();
                if let Some(library) = &library {
                    command.env("MEMLEDGER_LIB", library);
                }
                command.arg("run");
                if children {
                    command.arg("--children");
                }
                let out = command.args(["--", "sh", "-c", script]).output().unwrap();
                assert_eq!(
                    text(&out).0,
                    code,
                    "{script}, library {library:?}, children {children}"
                );
                assert_eq!(text(&out).1, "");
            }
        }
    }
}

#[test]
fn streams_pass_through() {
    let mut child = traced()
        .args(["--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let mut stdin = child.stdin.take().unwrap();
    let copy = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy).unwrap());
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(out.status.success());
    assert_eq!(out.stdout, input);
}

#[test]
fn commands_that_cannot_be_started() {
    for library in ways() {
        let run = |name: &OsStr| {
            let mut command = memledger();
            if let Some(library) = &library {
                command.env("MEMLEDGER_LIB", library);
            }
            text(&command.args(["run", "--"]).arg(name).output().unwrap())
        };
        let (code, out, err) = run("memledger-no-such-command".as_ref());
        assert_eq!((code, out.as_str()), (127, ""));
        assert_eq!(
            err,
            "memledger: memledger-no-such-command: command not found\n"
        );
        let (code, _, err) = run("/etc/passwd".as_ref());
        assert_eq!(code, 126);
        assert_eq!(err, "memledger: /etc/passwd: Permission denied\n");
    }
}

#[test]
fn usage_errors_do_not_run_the_command() {
    let mark = temporary("ran");
    let touch = ["--", "touch", mark.to_str().unwrap()];
    for args in [
        &["--depth", "0"][..],
        &["--depth", "99"],
        &["--top", "x"],
        &["--lib", "/nonexistent.so"],
        &["-o", "/nonexistent/x"],
    ] {
        let out = traced().args(args).args(touch).output().unwrap();
        assert_eq!(text(&out).0, 2, "{args:?}");
        assert!(!mark.exists(), "{args:?}");
    }
    assert_eq!(text(&traced().output().unwrap()).0, 2);
}

#[test]
fn environment_of_the_command() {
    let library = harmless_library();
    let out = traced()
        .env("LD_PRELOAD", "libm.so.6")
        .args([
            "--depth",
            "7",
            "--",
            "sh",
            "-c",
            "echo $LD_PRELOAD $MEMLEDGER",
        ])
        .output()
        .unwrap();
    let library = library.canonicalize().unwrap();
    assert_eq!(
        text(&out).1,
        format!("{}:libm.so.6 1,depth=7\n", library.display())
    );
    let out = traced()
        .env("MEMLEDGER", "0")
        .args(["--", "sh", "-c", "echo $MEMLEDGER"])
        .output()
        .unwrap();
    assert_eq!(text(&out).1, "0\n");
}

#[test]
fn signal_state_of_the_command() {
    let (_, out, _) = sh("grep -E '^Sig(Blk|Pnd)' /proc/self/status");
    assert!(
        out.lines().count() == 2 && out.lines().all(|line| line.ends_with("\t0000000000000000")),
        "{out}"
    );
    // What nohup ignores stays ignored.
    let out = Command::new("sh")
        .args([
            "-c",
            &format!(
                "trap '' HUP; {} run -- sh -c 'kill -HUP $$; echo alive'",
                env!("CARGO_BIN_EXE_memledger")
            ),
        ])
        .output()
        .unwrap();
    assert_eq!(text(&out).1, "alive\n");
}

/// Starts a command that prints a line when it is ready, and waits for that.
fn ready(command: &mut Command) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, out)
}

fn kill(signal: &str, pid: i64) {
    assert!(
        Command::new("kill")
            .args([signal, "--", &pid.to_string()])
            .status()
            .unwrap()
            .success()
    );
}

const COUNTING: &str = r"
import signal, sys, time
n = [0]
def count(*_): n[0] += 1
for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT): signal.signal(s, count)
print('ready', flush=True)
t = time.time()
while time.time() - t < 0.6: time.sleep(0.02)
print(n[0])
";

#[test]
fn signals_are_passed_on_once() {
    let run = |target: &dyn Fn(u32) -> i64, signal: &str| {
        let mut command = traced();
        command
            .args(["--", "python3", "-c", COUNTING])
            .process_group(0);
        let (mut child, mut out) = ready(&mut command);
        kill(signal, target(child.id()));
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success());
        rest
    };
    for signal in ["-TERM", "-USR1", "-INT"] {
        assert_eq!(
            run(&|pid| i64::from(pid), signal),
            "1\n",
            "{signal} to memledger"
        );
        assert_eq!(
            run(&|pid| -i64::from(pid), signal),
            "1\n",
            "{signal} to the group"
        );
    }
}

/// Waits until the state of a process is one of `states`.
fn wait_state(pid: &str, states: &str) {
    let begin = Instant::now();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let state = stat.rsplit_once(") ").unwrap().1.chars().next().unwrap();
        if states.contains(state) {
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(10),
            "{pid} is {state}, not {states}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_stopped_command_stays_stopped_and_continues() {
    let mut command = traced();
    command.args([
        "--",
        "sh",
        "-c",
        "echo ready; echo $$; kill -STOP $$; echo resumed; exit 6",
    ]);
    let (mut child, mut out) = ready(&mut command);
    let mut pid = String::new();
    out.read_line(&mut pid).unwrap();
    wait_state(pid.trim(), "tT");
    std::thread::sleep(Duration::from_millis(100));
    wait_state(pid.trim(), "tT");
    kill("-CONT", pid.trim().parse().unwrap());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "resumed\n");
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn job_control() {
    // The shell must see memledger stopped when the terminal stops the command, and both go on together.
    let script = "set -m
        $M run -- sh -c 'kill -TSTP $$; echo resumed; exit 5' 2>/dev/null &
        for i in $(seq 200); do jobs -s | grep -q Stopped && break; sleep 0.02; done
        jobs -s | grep -c Stopped
        kill -CONT %1; wait %1; echo $?";
    let out = Command::new("bash")
        .args(["-c", script])
        .env("M", env!("CARGO_BIN_EXE_memledger"))
        .env("MEMLEDGER_LIB", harmless_library())
        .output()
        .unwrap();
    assert_eq!(text(&out).1, "1\nresumed\n5\n");
}

#[test]
fn programs_that_trace_others_run() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let out = traced()
        .args([
            "--",
            "strace",
            "-f",
            "-o",
            "/dev/null",
            "sh",
            "-c",
            "true; exit 4",
        ])
        .output()
        .unwrap();
    assert_eq!(text(&out).0, 4);
}

#[test]
fn threads_and_processes_under_children() {
    let script = "
import os, subprocess, threading
def work(i):
    assert subprocess.run(['sh', '-c', f'exit {i}']).returncode == i
    assert os.waitstatus_to_exitcode(os.system('kill -USR1 $$')) in (-10, 138)
ts = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for t in ts: t.start()
for t in ts: t.join()
pid = os.fork()
if pid == 0: os._exit(17)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 17
print('done')
";
    let out = traced()
        .args(["--children", "--", "python3", "-c", script])
        .output()
        .unwrap();
    let (code, out, err) = text(&out);
    assert_eq!((code, out.as_str()), (0, "done\n"), "{err}");
}

#[test]
fn a_daemon_does_not_keep_us() {
    let begin = Instant::now();
    let out = traced()
        .args([
            "--children",
            "--",
            "sh",
            "-c",
            "sleep 20 >/dev/null 2>&1 & echo $!",
        ])
        .output()
        .unwrap();
    let (code, pid, _) = text(&out);
    assert_eq!(code, 0);
    assert!(begin.elapsed() < Duration::from_secs(10));
    let pid: i64 = pid.trim().parse().unwrap();
    wait_state(&pid.to_string(), "S");
    kill("-KILL", pid);
}

#[test]
fn where_nothing_may_be_traced() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    // What strace traces, nobody else can.
    for (script, code) in [("exit 7", 7), ("kill -TERM $$", 143), ("exec true", 0)] {
        let out = Command::new("strace")
            .args([
                "-f",
                "-o",
                "/dev/null",
                env!("CARGO_BIN_EXE_memledger"),
                "run",
                "--",
                "sh",
                "-c",
                script,
            ])
            .env("MEMLEDGER_LIB", harmless_library())
            .output()
            .unwrap();
        let (status, _, err) = text(&out);
        assert_eq!(status, code, "{script}: {err}");
        assert!(err.contains("could not be traced"), "{err}");
    }
}

#[test]
fn ignored_child_signals_do_not_hide_the_end() {
    let run = |command: &[&str]| {
        let out = Command::new("env")
            .args([
                "--ignore-signal=CHLD",
                env!("CARGO_BIN_EXE_memledger"),
                "run",
                "--",
            ])
            .args(command)
            .env("MEMLEDGER_LIB", harmless_library())
            .output()
            .unwrap();
        text(&out)
    };
    assert_eq!(run(&["sh", "-c", "exit 7"]).0, 7);
    let (code, line, _) = run(&["grep", "SigIgn", "/proc/self/status"]);
    assert_eq!(code, 0);
    let ignored = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
    assert!(
        ignored & (1 << 16) != 0,
        "SIGCHLD is not ignored any more: {line}"
    );
}

#[test]
fn static_programs_are_run_all_the_same() {
    let source = temporary("static.c");
    let program = temporary("static");
    std::fs::write(&source, "int main(void) { return 5; }\n").unwrap();
    let built = Command::new("cc")
        .arg("-static")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    if !built.is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: cc -static does not work here");
        return;
    }
    let (code, _, err) = text(&traced().arg("--").arg(&program).output().unwrap());
    assert_eq!(code, 5);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(
        err.contains("cannot be measured") && err.contains("static"),
        "{err}"
    );
}

#[test]
fn what_was_not_measured_is_said() {
    let (code, _, err) = sh("exit 1");
    assert_eq!(code, 1);
    assert!(err.contains("not measured"), "{err}");
}

#[test]
fn report_goes_where_it_shall() {
    let path = temporary("report.txt");
    let out = traced()
        .arg("-o")
        .arg(&path)
        .args(["--", "true"])
        .output()
        .unwrap();
    assert_eq!(text(&out), (0, String::new(), String::new()));
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .contains("not measured")
    );
    std::fs::remove_file(path).unwrap();
    let out = traced()
        .args(["-o", "-", "--json", "--", "sh", "-c", "exit 2"])
        .output()
        .unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(value["end"]["code"], 2);
    // Nobody reads it.
    let script = format!(
        "{{ {} run -o - -- true; echo $? >&2; }} | true",
        env!("CARGO_BIN_EXE_memledger")
    );
    let out = Command::new("sh")
        .args(["-c", &script])
        .env("MEMLEDGER_LIB", harmless_library())
        .output()
        .unwrap();
    assert_eq!(text(&out).2, "0\n");
}

// With the real library.

/// Another number each time, for names of files.
fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// `memledger run --json` of a command; its report.
fn measured(args: &[&str], command: &[&str]) -> Option<(i32, serde_json::Value)> {
    let report = temporary(&format!("{}.json", number()));
    let out = memledger()
        .env("MEMLEDGER_LIB", library()?)
        .args(["run", "--json", "-o"])
        .arg(&report)
        .args(args)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    let value = serde_json::from_slice(&std::fs::read(&report).unwrap())
        .unwrap_or_else(|error| panic!("{error}: {}", text(&out).2));
    std::fs::remove_file(report).unwrap();
    Some((text(&out).0, value))
}

/// A C program that allocates 1000 times 1000 bytes by one line and 3 MiB by another, frees the latter, then does what its
/// argument says.
const HOLDER: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>
void *volatile keep[1000];
__attribute__((noinline)) void small_ones(void) { for (int i = 0; i < 1000; i++) keep[i] = malloc(1000); }
__attribute__((noinline)) void *large_one(void) { void *p = malloc(3 << 20); memset(p, 1, 3 << 20); return p; }
static void *other(void *unused) { usleep(50000); _exit(3); return unused; }
int main(int argc, char **argv) {
    small_ones();
    void *large = large_one();
    usleep(300000);
    free(large);
    switch (argc > 1 ? argv[1][0] : 'r') {
    case 'e': exit(3);
    case 'u': _exit(3);
    case 'k': raise(SIGKILL);
    case 't': raise(SIGTERM);
    case 's': raise(SIGSEGV);
    case 'a': abort();
    case 'p': { pthread_t t; pthread_create(&t, 0, other, 0); pthread_exit(0); }
    case 'o': { pthread_t t; pthread_create(&t, 0, other, 0); pthread_join(t, 0); }
    }
    return 3;
}
"#;

fn holder() -> Option<String> {
    let program = temporary(&format!("holder-{}", number()));
    let source = program.with_extension("c");
    std::fs::write(&source, HOLDER).unwrap();
    let built = Command::new("cc")
        .args(["-g", "-O1", "-pthread"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output();
    if built.is_ok_and(|out| out.status.success()) {
        return Some(program.to_str().unwrap().to_owned());
    }
    eprintln!("skipped: cc does not work here");
    None
}

fn row<'a>(process: &'a serde_json::Value, func: &str) -> Option<&'a serde_json::Value> {
    process["rows"]
        .as_array()?
        .iter()
        .find(|row| row["func"] == func)
}

#[test]
fn the_report_comes_whatever_ends_the_command() {
    if library().is_none() {
        return;
    }
    let Some(holder) = holder() else { return };
    let cases = [
        ("return", 3),
        ("exit", 3),
        ("u_exit", 3),
        ("kill", 137),
        ("term", 143),
        ("segv", 139),
        ("abort", 134),
        ("pthread_exit", 3),
        ("other", 3),
    ];
    for (how, code) in cases {
        let Some((status, report)) = measured(&["--at=exit"], &[&holder, how]) else {
            return;
        };
        assert_eq!(status, code, "{how}");
        let process = &report["processes"][0];
        let small = row(process, "small_ones").unwrap_or_else(|| panic!("{how}: {report:#}"));
        assert_eq!(small["calls"], 1000, "{how}");
        let bytes = small["bytes"].as_u64().unwrap();
        assert!((1_000_000..1_125_000).contains(&bytes), "{how}: {bytes}");
        assert!(row(process, "large_one").is_none(), "{how}: {report:#}");
        if how != "pthread_exit" {
            assert_eq!(process["moment"], "end", "{how}: {report:#}");
        }
        assert!(
            process["peak"]["bytes"].as_u64().unwrap() > 4_000_000,
            "{how}: {report:#}"
        );
        let (_, report) = measured(&[], &[&holder, how]).unwrap();
        let process = &report["processes"][0];
        let large = row(process, "large_one").unwrap_or_else(|| panic!("{how}: {report:#}"));
        assert!(large["bytes"].as_u64().unwrap() >= 3 << 20, "{how}");
        assert!(
            large["file"].as_str().unwrap().ends_with(".c") && large["line"] == 9,
            "{how}: {large}"
        );
    }
}

#[test]
fn text_report() {
    let Some(library) = library() else { return };
    let Some(holder) = holder() else { return };
    let out = memledger()
        .env("MEMLEDGER_LIB", library)
        .args(["run", "--frames", "--", &holder])
        .output()
        .unwrap();
    let (code, out, err) = text(&out);
    assert_eq!((code, out.as_str()), (3, ""));
    for word in [
        "at its peak seen",
        "large_one",
        "small_ones",
        "3.00 MiB",
        "total (",
        "ended with code 3; ",
        "> large_one",
        "main",
    ] {
        assert!(err.contains(word), "no {word:?} in:\n{err}");
    }
}

#[test]
fn each_process_of_a_tree() {
    if library().is_none() {
        return;
    }
    let Some(holder) = holder() else { return };
    let script = format!(
        "{holder} exit & {holder} kill & wait; python3 -c 'import time; x = [bytes(1000) for _ in range(10**5)]; time.sleep(1)'"
    );
    let Some((code, report)) = measured(&["--children"], &["bash", "-c", &script]) else {
        return;
    };
    assert_eq!(code, 0);
    let processes = report["processes"].as_array().unwrap();
    let largest = &processes[0];
    assert!(
        largest["comm"].as_str().unwrap().starts_with("python"),
        "{report:#}"
    );
    assert!(largest["total"]["bytes"].as_i64().unwrap() > 100_000_000);
    let holders = processes
        .iter()
        .filter(|process| row(process, "large_one").is_some());
    assert_eq!(holders.count(), 2, "{report:#}");
    assert!(
        processes.iter().any(|process| process["comm"] == "bash"),
        "{report:#}"
    );
    let bytes: Vec<i64> = processes
        .iter()
        .map(|process| process["total"]["bytes"].as_i64().unwrap())
        .collect();
    assert!(bytes.is_sorted_by(|a, b| a >= b), "{bytes:?}");
}

#[test]
fn common_programs() {
    if library().is_none() {
        return;
    }
    let (code, report) = measured(
        &[],
        &[
            "python3",
            "-c",
            "import time; x = [bytes(1000) for i in range(10**5)]; time.sleep(1); print(len(x))",
        ],
    )
    .unwrap();
    assert_eq!(code, 0);
    assert!(
        report["processes"][0]["peak"]["bytes"].as_u64().unwrap() > 10_000_000,
        "{report:#}"
    );
    let source = temporary("hello.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nint main(void) { puts(\"x\"); return 0; }\n",
    )
    .unwrap();
    let object = temporary("hello.o");
    let command = [
        "gcc",
        "-O2",
        "-c",
        source.to_str().unwrap(),
        "-o",
        object.to_str().unwrap(),
    ];
    let (code, report) = measured(&["--children"], &command).unwrap();
    assert_eq!(code, 0);
    assert!(report["processes"][0]["comm"] == "cc1", "{report:#}");
}

#[test]
fn a_live_process_is_read_and_switched() {
    let Some(library) = library() else { return };
    let script = "
keep = [bytes(5000) for _ in range(1000)]
print('ready', flush=True)
input()
";
    let mut command = Command::new("python3");
    command
        .args(["-c", script])
        .env("LD_PRELOAD", library)
        .stdin(Stdio::piped());
    let (mut child, _out) = ready(&mut command);
    let pid = child.id().to_string();
    let run = |args: &[&str]| text(&memledger().args(args).output().unwrap());
    let (code, out, err) = run(&[
        "allocinfo",
        "-p",
        &pid,
        "--json",
        "--frames",
        "--depth",
        "2",
    ]);
    assert_eq!(code, 0, "{err}");
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = value["rows"].as_array().unwrap();
    let sum: i64 = rows.iter().map(|row| row["bytes"].as_i64().unwrap()).sum();
    assert_eq!(value["total"]["bytes"], sum);
    let first = &rows[0];
    assert!(
        first["bytes"].as_i64().unwrap() >= 5_000_000 && first["calls"].as_i64().unwrap() >= 1000,
        "{first}"
    );
    assert!(first["frames"].as_array().unwrap().len() <= 2);
    let (code, raw, _) = run(&["allocinfo", "-p", &pid, "--raw"]);
    assert_eq!(code, 0);
    let mut lines = raw.lines();
    assert_eq!(lines.next(), Some("allocinfo - version: 2.0"));
    assert!(
        lines
            .skip(1)
            .all(|line| line.ends_with(' ') && line.contains(" func:")),
        "{raw}"
    );
    assert_eq!(
        run(&["ctl", "-p", &pid, "mem_profiling"]),
        (0, "mem_profiling=1\n".to_owned(), String::new())
    );
    let (code, out, _) = run(&["ctl", "-p", &pid, "mem_profiling=0", "mem_profiling"]);
    assert_eq!((code, out.as_str()), (0, "mem_profiling=0\n"));
    let (_, table, _) = run(&["allocinfo", "-p", &pid]);
    assert!(table.contains("profiling is off"), "{table}");
    drop(child.stdin.take());
    child.wait().unwrap();
}
