//! What can go wrong, one clear line each, with what to do about it.

use std::fmt;
use std::io;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why access to a process was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeniedReason {
    /// It belongs to this other user.
    OtherUser(u32),
    /// Same user, but it changed its identity or capabilities (setuid, file capabilities, `PR_SET_DUMPABLE`).
    NotDumpable,
    /// Yama forbids it: value of `/proc/sys/kernel/yama/ptrace_scope`.
    PtraceScope(u32),
    /// The kernel did not say why.
    Unknown,
}

/// Why a process has no ledger, as far as it can be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoLedgerReason {
    /// The executable is statically linked: nothing can be preloaded into it.
    Static,
    /// The loader dropped `LD_PRELOAD` because the process runs in secure mode (setuid, file capabilities).
    Secure,
    /// `LD_PRELOAD` names the library, but it is not mapped (not found, or of another architecture).
    PreloadFailed(String),
    /// It was not started under memledger, nor is it linked with it.
    NotPreloaded,
    /// It has no user memory.
    KernelThread,
}

/// Failure of an inspection. The text is one line and says what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process.
    NoSuchProcess {
        /// Process id.
        pid: u32,
    },
    /// The process may not be read or written.
    Denied {
        /// Process id.
        pid: u32,
        /// Why.
        reason: DeniedReason,
    },
    /// No descriptor was found in the process.
    NoLedger {
        /// Process id.
        pid: u32,
        /// Why, if it can be seen.
        reason: NoLedgerReason,
    },
    /// A descriptor of another layout version.
    WrongVersion {
        /// Process id.
        pid: u32,
        /// The version found.
        found: u32,
    },
    /// A descriptor is there, but its runtime has not been initialised yet.
    NotReady {
        /// Process id.
        pid: u32,
    },
    /// The process is exiting, or a zombie: its memory is gone.
    Dying {
        /// Process id.
        pid: u32,
    },
    /// The runtime was started with `never`: there is no ledger and no switch.
    Never {
        /// Process id.
        pid: u32,
    },
    /// What was found makes no sense.
    Corrupt {
        /// Process id.
        pid: u32,
        /// Which value.
        what: &'static str,
    },
    /// A core file that cannot be used.
    Core {
        /// What is wrong with it, as a line.
        what: String,
    },
    /// Another failure of the system.
    Io {
        /// What was tried.
        what: String,
        /// The failure.
        source: io::Error,
    },
}

impl Error {
    /// The process that it is about, if any; 0 is that of a core file.
    fn pid(&self) -> Option<u32> {
        match self {
            Error::NoSuchProcess { pid }
            | Error::Denied { pid, .. }
            | Error::NoLedger { pid, .. }
            | Error::WrongVersion { pid, .. }
            | Error::NotReady { pid }
            | Error::Dying { pid }
            | Error::Never { pid }
            | Error::Corrupt { pid, .. } => Some(*pid),
            Error::Core { .. } | Error::Io { .. } => None,
        }
    }

    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Error::Io {
            what: what.into(),
            source,
        }
    }
}

impl fmt::Display for DeniedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeniedReason::OtherUser(uid) => {
                write!(f, "it belongs to user {uid}; run as that user or as root")
            }
            DeniedReason::NotDumpable => {
                f.write_str("it is setuid, has capabilities or is not dumpable; run as root")
            }
            DeniedReason::PtraceScope(n) => write!(
                f,
                "kernel.yama.ptrace_scope is {n}; run as root{}",
                if *n >= 3 { " after a boot with a lower value" } else { ", or: sysctl kernel.yama.ptrace_scope=0" }
            ),
            DeniedReason::Unknown => {
                f.write_str("ptrace access is refused (seccomp, LSM or container); run as root on the host, or with CAP_SYS_PTRACE")
            }
        }
    }
}

impl fmt::Display for NoLedgerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLedgerReason::Static => f.write_str(
                "the program is statically linked; link it with the memledger crate or libmemledger.a",
            ),
            NoLedgerReason::Secure => f.write_str(
                "the loader ignored LD_PRELOAD because the program is setuid or has file capabilities",
            ),
            NoLedgerReason::PreloadFailed(lib) => {
                write!(f, "LD_PRELOAD names {lib}, but the loader did not load it; check path and architecture")
            }
            NoLedgerReason::NotPreloaded => {
                f.write_str("it was not started by `memledger run` and is not linked with memledger")
            }
            NoLedgerReason::KernelThread => f.write_str("it is a kernel thread"),
        }
    }
}

/// `process PID: `; nothing for a core file (pid 0), whose path is for the caller to say.
struct Who(u32);

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            pid => write!(f, "process {pid}: "),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = Who(self.pid().unwrap_or(0));
        match self {
            Error::NoSuchProcess { .. } => write!(f, "{who}no such process"),
            Error::Denied { reason, .. } => {
                write!(f, "{who}permission denied: {reason}")
            }
            Error::NoLedger { reason, .. } => write!(f, "{who}no ledger: {reason}"),
            Error::WrongVersion { found, .. } => write!(
                f,
                "{who}its ledger has layout version {found}, this program reads {}; use the memledger it was started with",
                memledger_abi::VERSION
            ),
            Error::NotReady { pid: 0 } => {
                f.write_str("the process ended before its ledger was initialised")
            }
            Error::NotReady { .. } => {
                write!(f, "{who}its ledger is not initialised yet; try again")
            }
            Error::Dying { .. } => write!(f, "{who}it is exiting, its memory is gone"),
            Error::Never { .. } => {
                write!(
                    f,
                    "{who}started with MEMLEDGER=never: there is no ledger and nothing to switch"
                )
            }
            Error::Corrupt { what, .. } => {
                write!(f, "{who}its ledger makes no sense ({what})")
            }
            Error::Core { what } => f.write_str(what),
            Error::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
