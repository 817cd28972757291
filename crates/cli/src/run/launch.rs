//! Starting the command: which library, which environment, and a start that waits until we watch.
//!
//! The command is started by a second instance of this program (the shim), which stops itself before it executes the command:
//! so that it can be seized before the first instruction of the command, however short that lives. A library in `LD_PRELOAD`
//! must not get into the shim, so the shim is told its value and sets it for the command only.

use crate::Failure;
use memledger_ptrace as ptrace;
use nix::sys::signal::{SigSet, Signal};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Number of SIGSTOP.
pub(crate) const SIGSTOP: i32 = Signal::SIGSTOP as i32;
/// Number of SIGCHLD.
pub(crate) const SIGCHLD: i32 = Signal::SIGCHLD as i32;

/// First argument by which this program knows that it is the shim. What follows: value of `LD_PRELOAD` (empty = leave
/// it), value of `MEMLEDGER` (empty = leave it), `i` if SIGCHLD shall be ignored, signals to unblock, then the command.
const SHIM: &str = "--memledger-shim";

/// Exit code: command not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Exit code: command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;

/// What the command gets in its environment.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// `LD_PRELOAD`; `None` = as it is.
    pub(crate) preload: Option<OsString>,
    /// `MEMLEDGER`; `None` = as it is.
    pub(crate) memledger: Option<OsString>,
}

/// If this process was started as the shim: becomes the command, or returns the exit code that says why not.
pub(crate) fn shim() -> Option<u8> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != SHIM {
        return None;
    }
    let (preload, memledger, ignore) = (args.next()?, args.next()?, args.next()?);
    let blocked = args.next()?;
    let name = args.next()?;
    let mut command = Command::new(&name);
    command.args(args);
    if !preload.is_empty() {
        command.env("LD_PRELOAD", preload);
    }
    if !memledger.is_empty() {
        command.env("MEMLEDGER", memledger);
    }
    let pid = i32::try_from(std::process::id()).ok()?;
    let stopped = ptrace::kill(pid, SIGSTOP);
    if ignore == "i" {
        let _ = ptrace::set_ignored(SIGCHLD, true);
    }
    unblock(&blocked);
    let error = if let Err(error) = stopped {
        error
    } else {
        command.exec()
    };
    eprintln!(
        "memledger: {}: {}",
        Path::new(&name).display(),
        reason(&error)
    );
    Some(if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    })
}

/// Unblocks the signals of a list: they were blocked for the loop that follows the command.
fn unblock(list: &OsStr) {
    let mut set = SigSet::empty();
    for number in list.to_str().unwrap_or_default().split(',') {
        if let Some(signal) = number
            .parse()
            .ok()
            .and_then(|n: i32| Signal::try_from(n).ok())
        {
            set.add(signal);
        }
    }
    let _ = set.thread_unblock();
}

/// An error of the system as the shell words it, without the number.
fn reason(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::NotFound {
        return "command not found".to_owned();
    }
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Starts the shim for `command`; it stops itself by SIGSTOP before it becomes the command.
pub(crate) fn spawn(
    command: &[OsString],
    environment: &Environment,
    ignore_sigchld: bool,
    blocked: &[i32],
) -> Result<Child, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::Message(format!("cannot find this program itself: {error}")))?;
    Command::new(own)
        .arg(SHIM)
        .arg(environment.preload.as_deref().unwrap_or_default())
        .arg(environment.memledger.as_deref().unwrap_or_default())
        .arg(if ignore_sigchld { "i" } else { "" })
        .arg(
            blocked
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(","),
        )
        .args(command)
        .spawn()
        .map_err(|error| Failure::Message(format!("cannot start a process: {error}")))
}

/// `LD_PRELOAD` with `library` before what the user has in it.
pub(crate) fn preload_value(library: &Path, old: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(old) = old.filter(|old| !old.is_empty()) {
        value.push(":");
        value.push(old);
    }
    value
}

/// `MEMLEDGER` for the command: the user's own words stay; `depth` is added.
pub(crate) fn memledger_value(old: Option<&OsStr>, depth: Option<u32>) -> OsString {
    let mut value = match old {
        Some(old) if !old.is_empty() => old.to_owned(),
        _ => OsString::from("1"),
    };
    if let Some(depth) = depth {
        value.push(format!(",depth={depth}"));
    }
    value
}

/// Names of the library: as installed, and as cargo builds it.
const NAMES: [&str; 2] = ["libmemledger.so", "libmemledger_preload.so"];

/// Finds the library to preload: `given`, else beside this program, in `../lib/memledger`, `../lib`, or where cargo puts it.
pub(crate) fn find_library(given: Option<&Path>) -> Result<PathBuf, String> {
    let found = match given {
        Some(path) => path
            .canonicalize()
            .map_err(|error| format!("{}: {}", path.display(), reason_of_file(&error)))?,
        None => search().ok_or(
            "libmemledger.so was found neither beside this program nor in ../lib/memledger; \
             use --lib FILE or MEMLEDGER_LIB",
        )?,
    };
    if found
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|b| matches!(b, b' ' | b':' | b'\t' | b'\n'))
    {
        return Err(format!(
            "{}: the loader takes no path with blanks or colons in LD_PRELOAD; move it",
            found.display()
        ));
    }
    Ok(found)
}

fn reason_of_file(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

fn search() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?.canonicalize().ok()?;
    let dir = own.parent()?;
    let up = dir.parent().unwrap_or(dir);
    let places = [
        dir.to_owned(),
        up.join("lib/memledger"),
        up.join("lib"),
        dir.join("deps"),
        up.to_owned(),
    ];
    places
        .iter()
        .flat_map(|place| NAMES.iter().map(move |name| place.join(name)))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_preload_is_kept() {
        let lib = Path::new("/x/libmemledger.so");
        assert_eq!(preload_value(lib, None), "/x/libmemledger.so");
        assert_eq!(
            preload_value(lib, Some(OsStr::new(""))),
            "/x/libmemledger.so"
        );
        assert_eq!(
            preload_value(lib, Some(OsStr::new("a.so b.so"))),
            "/x/libmemledger.so:a.so b.so"
        );
    }

    #[test]
    fn the_users_mode_is_kept() {
        assert_eq!(memledger_value(None, None), "1");
        assert_eq!(memledger_value(None, Some(8)), "1,depth=8");
        assert_eq!(memledger_value(Some(OsStr::new("0")), Some(2)), "0,depth=2");
    }
}
