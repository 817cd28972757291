//! Builds and runs the C fixtures.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fixture's source file.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixture")
        .join(name)
}

/// A directory of this test's own.
pub(crate) fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "inspect-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Runs a command that must succeed.
pub(crate) fn run(program: &str, args: &[&str]) {
    let status = Command::new(program)
        .args(args)
        .status()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(status.success(), "{program} {args:?}: {status}");
}

/// Compiles a fixture with these options; returns the program.
pub(crate) fn compile(name: &str, options: &[&str]) -> PathBuf {
    let out = scratch().join("prog");
    let compiler = if name.ends_with(".cc") { "c++" } else { "cc" };
    let source = source(name);
    let mut args = vec!["-o", out.to_str().unwrap(), source.to_str().unwrap()];
    args.extend(options);
    run(compiler, &args);
    out
}

/// A running fixture; ends when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    /// Starts it and waits for its first line, which is returned.
    pub(crate) fn start(command: &mut Command) -> (Self, String) {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("the fixture says something").unwrap();
        (Running { child, lines }, first)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it without waiting: it stays a zombie.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the ledger fixture in a mode.
pub(crate) fn ledger(program: &Path, mode: &str) -> Running {
    let (running, first) = Running::start(Command::new(program).arg(mode));
    assert_eq!(first, "ready");
    running
}
