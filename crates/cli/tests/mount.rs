//! `memledger mount`: real mounts, read and written by the tools that users have. Needs /dev/fuse, the right to mount, and the
//! preload library; says so if they are not there.

mod common;

use common::{library, memledger, temporary};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A mount that ends with the test.
struct Mounted {
    dir: PathBuf,
    server: Child,
}

fn mounted(dir: &Path) -> bool {
    let parent = dir.parent().unwrap();
    fs::metadata(dir).unwrap().dev() != fs::metadata(parent).unwrap().dev()
}

fn wait(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(30), "no {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn mount(name: &str) -> Option<Mounted> {
    if fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_err()
        || !nix::unistd::geteuid().is_root()
    {
        eprintln!("skipped: /dev/fuse cannot be opened, or not root");
        return None;
    }
    let dir = temporary(name);
    fs::create_dir_all(&dir).unwrap();
    let server = memledger().arg("mount").arg(&dir).spawn().unwrap();
    let mount = Mounted { dir, server };
    wait("mount", || mounted(&mount.dir));
    Some(mount)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.try_wait().is_ok_and(|done| done.is_none()) {
            signal(self.server.id(), "TERM");
            let _ = self.server.wait();
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// A process with a ledger: `sort`, which waits for the end of its input.
fn program(lib: &Path, mode: &str) -> Child {
    Command::new("sort")
        .env("LD_PRELOAD", lib)
        .env("MEMLEDGER", mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn shell(script: &str) -> (bool, String, String) {
    let out = Command::new("bash")
        .args(["-o", "pipefail", "-c", script])
        .output()
        .unwrap();
    (
        out.status.success(),
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

#[test]
fn files_as_the_kernels() {
    let (Some(lib), Some(mount)) = (library(), mount("mount")) else {
        return;
    };
    let mut child = program(&lib, "1");
    let pid = child.id();
    let dir = mount.dir.join(pid.to_string());
    wait("process", || dir.join("allocinfo").exists());
    let allocinfo = dir.join("allocinfo");
    let meta = fs::metadata(&allocinfo).unwrap();
    assert_eq!((meta.permissions().mode() & 0o7777, meta.len()), (0o400, 0));

    // The kernel's documented example.
    let (ok, out, err) = shell(&format!(
        "sort -g {} | tail | numfmt --to=iec",
        allocinfo.display()
    ));
    assert!(ok, "{err}");
    assert!(out.lines().count() > 1 && out.contains("func:"), "{out}");
    let last = out.lines().last().unwrap();
    assert!(
        last.split_whitespace()
            .next()
            .unwrap()
            .chars()
            .all(|c| c.is_ascii_digit() || ".KMG".contains(c)),
        "{last}"
    );

    // It is the text that `memledger allocinfo` reads from the process and parses without a loss.
    let text = fs::read_to_string(&allocinfo).unwrap();
    assert!(text.starts_with("allocinfo - version: 2.0\n"), "{text}");
    let direct = memledger()
        .args(["allocinfo", "--raw", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let sum = |text: &str| -> i64 {
        text.lines()
            .skip(2)
            .map(|line| {
                line.split_whitespace()
                    .next()
                    .unwrap()
                    .parse::<i64>()
                    .unwrap()
            })
            .sum()
    };
    assert!(sum(&text) > 0);
    assert_eq!(sum(&text), sum(&String::from_utf8(direct.stdout).unwrap()));

    switch(&dir.join("mem_profiling"));
    let (_, out, _) = shell(&format!("ls {}", mount.dir.display()));
    assert!(out.lines().any(|name| name == pid.to_string()), "{out}");
    assert!(
        !out.lines()
            .any(|name| name == mount.server.id().to_string()),
        "it has no ledger"
    );
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(!dir.exists(), "a process that ended is gone");
    let (_, out, _) = shell(&format!("ls {}", mount.dir.display()));
    assert!(!out.lines().any(|name| name == pid.to_string()), "{out}");
}

/// Reads and writes the switch as a user does.
fn switch(file: &Path) {
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o7777,
        0o644
    );
    let at = file.display();
    assert_eq!(
        shell(&format!(
            "cat {at}; echo 0 > {at} && cat {at}; echo 1 > {at} && cat {at}"
        ))
        .1,
        "1\n0\n1\n"
    );
    for bad in ["2", "never", "-1", "''"] {
        let (ok, _, err) = shell(&format!("echo {bad} > {at}"));
        assert!(!ok && err.contains("Invalid argument"), "{bad}: {err}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "1\n");
}

#[test]
fn never_has_a_switch_that_nothing_moves_and_no_report() {
    let (Some(lib), Some(mount)) = (library(), mount("mount-never")) else {
        return;
    };
    let mut child = program(&lib, "never");
    let dir = mount.dir.join(child.id().to_string());
    wait("process", || dir.join("mem_profiling").exists());
    assert!(!dir.join("allocinfo").exists());
    let at = dir.join("mem_profiling");
    assert_eq!(fs::read_to_string(&at).unwrap(), "0\n");
    let (ok, _, err) = shell(&format!("echo 1 > {}", at.display()));
    assert!(!ok && err.contains("Invalid argument"), "{err}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn signals_unmount_it() {
    for name in ["INT", "TERM"] {
        let Some(mut mount) = mount(&format!("mount-{name}")) else {
            return;
        };
        signal(mount.server.id(), name);
        assert_eq!(mount.server.wait().unwrap().code(), Some(0));
        assert!(!mounted(&mount.dir));
    }
}
