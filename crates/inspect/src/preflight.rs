//! Tells before a run whether a command can be measured.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Why a command cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Not in `PATH`, or no such file.
    NotFound,
    /// A file, but not executable.
    NotExecutable,
    /// Statically linked.
    Static,
    /// Setuid, setgid or with file capabilities: the loader ignores `LD_PRELOAD`.
    Secure(&'static str),
    /// The executable defines this allocation function itself, which wins over the preloaded one.
    OwnAllocator(String),
    /// Neither ELF nor a script.
    NotElf,
    /// ELF of another class or machine.
    WrongArchitecture(String),
    /// The file may not be read, so nothing is known.
    Unreadable(String),
}

/// What is known of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The file that runs; empty if not found.
    pub path: PathBuf,
    /// The ELF file that is measured: `path`, or the interpreter of a script.
    pub elf: PathBuf,
    /// Interpreters on the way, outermost first.
    pub interpreters: Vec<PathBuf>,
    /// Why it cannot be measured; empty if it can.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Nothing stands against it.
    pub fn measurable(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Looks at `command` as `execvp` would find it with `PATH` in `env`.
pub fn preflight(_command: &OsStr, _env: &[(OsString, OsString)]) -> Report {
    todo!()
}
