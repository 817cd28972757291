//! What the tests share.
#![allow(dead_code, reason = "not all tests use all of it")]

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The program, without what the caller's environment would change.
pub(crate) fn memledger() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memledger"));
    for name in [
        "NO_COLOR",
        "CLICOLOR_FORCE",
        "MEMLEDGER",
        "MEMLEDGER_LIB",
        "MEMLEDGER_HELPERS",
        "LD_PRELOAD",
    ] {
        command.env_remove(name);
    }
    command
}

/// Exit code (128 + signal if killed), output, errors.
pub(crate) fn text(output: &Output) -> (i32, String, String) {
    let code = output
        .status
        .code()
        .unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    (
        code,
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Runs the program.
pub(crate) fn output(args: &[&str]) -> (i32, String, String) {
    text(&memledger().args(args).output().unwrap())
}

/// A path for a temporary file of this test process.
pub(crate) fn temporary(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

/// A folder of the shared data; says so if it is not there.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("MEMLEDGER_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = root.join(name);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!(
        "skipped: {} is not there (MEMLEDGER_SHARED)",
        path.display()
    );
    None
}

/// The library to preload, if it has been built: `MEMLEDGER_TEST_LIB`, or beside the program.
pub(crate) fn library() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("MEMLEDGER_TEST_LIB") {
        return Some(PathBuf::from(path));
    }
    let dir = Path::new(env!("CARGO_BIN_EXE_memledger")).parent()?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release");
    let found = [dir, &dir.join("../release"), &workspace]
        .iter()
        .map(|dir| dir.join("libmemledger_preload.so"))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: libmemledger_preload.so has not been built (MEMLEDGER_TEST_LIB)");
    }
    found
}

/// A shared object that can be preloaded into anything and does nothing: one that this process has loaded itself.
pub(crate) fn harmless_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains("/libc.so"));
    PathBuf::from(path.expect("the tests are linked with the C library dynamically"))
}
