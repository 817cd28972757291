//! What `/proc` tells of a process, and why it may refuse to.

use crate::error::{DeniedReason, Error, NoLedgerReason, Result};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One line of `/proc/PID/maps`, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// End address.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Readable.
    pub readable: bool,
    /// Path as the process sees it, without ` (deleted)`; empty if anonymous. One outside of its root is as the reader sees it.
    pub path: String,
    /// The file has been deleted or replaced.
    pub deleted: bool,
}

/// Identity of a process at the time it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id; 0 if it is not a live process (core file).
    pub pid: u32,
    /// Name of the task (15 characters at most).
    pub comm: String,
    /// Path of the executable, in the same terms; empty if unknown.
    pub exe: PathBuf,
    /// Start time in clock ticks since boot; tells a process from a later one of the same id.
    pub start_time: u64,
    /// Its root directory as the reader sees it; empty for `/`, and if unknown. (That of a process in another mount namespace
    /// is mostly `/`, too.)
    pub root: PathBuf,
    /// Its mappings.
    pub mappings: Vec<Mapping>,
}

impl Process {
    /// Reads it from `/proc`.
    ///
    /// # Errors
    /// No such process, permission denied, dying, kernel thread.
    pub fn read(pid: u32) -> Result<Self> {
        let Some(start_time) = start_time(pid) else {
            return Err(Error::NoSuchProcess { pid });
        };
        let text = fs::read(format!("/proc/{pid}/maps")).map_err(|e| failure(pid, "maps", e))?;
        let mut mappings = parse_maps(&text);
        if mappings.is_empty() {
            return Err(no_memory(pid));
        }
        let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let exe = match exe.to_str().and_then(|s| s.strip_suffix(" (deleted)")) {
            Some(path) => PathBuf::from(path),
            None => exe,
        };
        let root = fs::read_link(format!("/proc/{pid}/root")).unwrap_or_default();
        let root = if root == Path::new("/") {
            PathBuf::new()
        } else {
            root
        };
        for m in &mut mappings {
            m.path = inside(&root, &m.path).to_owned();
        }
        let exe = match exe.to_str() {
            Some(path) => PathBuf::from(inside(&root, path)),
            None => exe,
        };
        let comm = String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned();
        Ok(Process {
            pid,
            comm,
            exe,
            start_time,
            root,
            mappings,
        })
    }

    /// Is this very process (not another one of the same id) still there?
    pub fn alive(&self) -> bool {
        self.pid != 0 && start_time(self.pid) == Some(self.start_time)
    }

    /// The mapping that holds `addr`.
    pub fn mapping(&self, addr: u64) -> Option<&Mapping> {
        let i = self.mappings.partition_point(|m| m.end <= addr);
        self.mappings.get(i).filter(|m| m.start <= addr)
    }
}

/// A path as the reader sees it, as a process whose root is `root` does; as it is if it is not below that.
fn inside<'a>(root: &Path, path: &'a str) -> &'a str {
    let rest = root.to_str().and_then(|root| path.strip_prefix(root));
    match rest {
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// Parses the text of `/proc/PID/maps`; lines that make no sense are left out.
pub(crate) fn parse_maps(text: &[u8]) -> Vec<Mapping> {
    text.split(|&b| b == b'\n')
        .filter_map(parse_mapping)
        .collect()
}

fn parse_mapping(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let mut rest: &str = &line;
    let mut word = || {
        rest = rest.trim_start_matches(' ');
        let end = rest.find(' ').unwrap_or(rest.len());
        let w = &rest[..end];
        rest = &rest[end..];
        w
    };
    let (range, perms, offset, _dev, _inode) = (word(), word(), word(), word(), word());
    let (start, end) = range.split_once('-')?;
    let path = rest.trim_start_matches(' ');
    let (path, deleted) = match path.strip_suffix(" (deleted)") {
        Some(p) => (p, true),
        None => (path, false),
    };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        readable: perms.starts_with('r'),
        // The kernel escapes only the newline.
        path: path.replace("\\012", "\n"),
        deleted,
    })
}

/// Field 22 of `/proc/PID/stat`.
fn start_time(pid: u32) -> Option<u64> {
    stat_field(pid, 22)?.parse().ok()
}

/// A field of `/proc/PID/stat` from the third on, numbered as in proc(5).
fn stat_field(pid: u32, n: usize) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after = stat.iter().rposition(|&b| b == b')')?;
    let text = String::from_utf8_lossy(&stat[after + 1..]).into_owned();
    text.split_ascii_whitespace().nth(n - 3).map(str::to_owned)
}

/// Why a process without mappings has none.
fn no_memory(pid: u32) -> Error {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let flags: u64 = stat_field(pid, 9).and_then(|f| f.parse().ok()).unwrap_or(0);
    if flags & PF_KTHREAD != 0 {
        return Error::NoLedger {
            pid,
            reason: NoLedgerReason::KernelThread,
        };
    }
    if start_time(pid).is_none() {
        Error::NoSuchProcess { pid }
    } else {
        Error::Dying { pid }
    }
}

/// Turns a failure to use something of a process into the error that says why.
pub(crate) fn failure(pid: u32, what: &str, e: io::Error) -> Error {
    match (e.kind(), e.raw_os_error()) {
        (_, Some(libc::ESRCH)) | (io::ErrorKind::NotFound, _) => Error::NoSuchProcess { pid },
        (io::ErrorKind::PermissionDenied, _) => Error::Denied {
            pid,
            reason: denied(pid),
        },
        _ if matches!(stat_field(pid, 3).as_deref(), None | Some("Z" | "X")) => {
            Error::Dying { pid }
        }
        _ => Error::io(format!("process {pid}: {what}"), e),
    }
}

/// Why access to `pid` is refused, as far as it can be seen.
fn denied(pid: u32) -> DeniedReason {
    let uid = |pid: &str, field: usize| -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("Uid:"))?;
        line.split_ascii_whitespace().nth(field)?.parse().ok()
    };
    let theirs = uid(&pid.to_string(), 0);
    let mine = uid("self", 1);
    if mine == Some(0) {
        return DeniedReason::Unknown;
    }
    if let (Some(theirs), Some(mine)) = (theirs, mine)
        && theirs != mine
    {
        return DeniedReason::OtherUser(theirs);
    }
    // The kernel gives the files of an undumpable process to root.
    if fs::metadata(format!("/proc/{pid}/maps")).is_ok_and(|m| Some(m.uid()) != mine) {
        return DeniedReason::NotDumpable;
    }
    match fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope")
        .ok()
        .and_then(|s| s.trim().parse().ok())
    {
        Some(n) if n > 0 => DeniedReason::PtraceScope(n),
        _ => DeniedReason::Unknown,
    }
}

/// Why a live process without a descriptor has none.
pub(crate) fn no_ledger_reason(pid: u32, has_interp: Option<bool>) -> NoLedgerReason {
    if has_interp == Some(false) {
        return NoLedgerReason::Static;
    }
    const AT_SECURE: u64 = 23;
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let preload = environ
        .split(|&b| b == 0)
        .find_map(|v| v.strip_prefix(b"LD_PRELOAD="));
    let preload = preload
        .map(|p| String::from_utf8_lossy(p).into_owned())
        .unwrap_or_default();
    let ours = preload.split([' ', ':']).find(|p| p.contains("memledger"));
    let Some(lib) = ours else {
        return NoLedgerReason::NotPreloaded;
    };
    let auxv = fs::read(format!("/proc/{pid}/auxv")).unwrap_or_default();
    let secure = auxv.chunks_exact(16).any(|e| {
        let (key, value) = e.split_at(8);
        key == AT_SECURE.to_ne_bytes() && value != [0; 8]
    });
    if secure {
        NoLedgerReason::Secure
    } else {
        NoLedgerReason::PreloadFailed(lib.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_with_odd_paths() {
        let text = b"55d0-55e0 r--p 00000000 08:01 42                 /tmp/a b (deleted)\n\
            7f00-7f10 ---p 00001000 00:00 0 \n\
            7f10-7f20 r-xp 00000000 00:01 7   /x\\012y\nnonsense\n";
        let maps = parse_maps(text);
        assert_eq!(maps.len(), 3);
        assert_eq!((maps[0].path.as_str(), maps[0].deleted), ("/tmp/a b", true));
        assert_eq!(
            (maps[1].path.as_str(), maps[1].readable, maps[1].offset),
            ("", false, 0x1000)
        );
        assert_eq!(maps[2].path, "/x\ny");
    }

    #[test]
    fn paths_below_a_root() {
        assert_eq!(inside(Path::new("/jail"), "/jail/bin/x"), "/bin/x");
        assert_eq!(inside(Path::new("/jail"), "/jailer/x"), "/jailer/x");
        assert_eq!(inside(Path::new("/jail"), "/bin/x"), "/bin/x");
        assert_eq!(inside(Path::new(""), "/bin/x"), "/bin/x");
        assert_eq!(inside(Path::new("/jail"), "[heap]"), "[heap]");
    }

    #[test]
    fn missing_process_and_kernel_thread() {
        assert!(matches!(
            Process::read(0x3fff_ffff),
            Err(Error::NoSuchProcess { .. })
        ));
        if fs::read_to_string("/proc/2/comm").is_ok_and(|c| c.trim() == "kthreadd") {
            let e = Process::read(2).unwrap_err();
            assert!(
                matches!(
                    e,
                    Error::NoLedger {
                        reason: NoLedgerReason::KernelThread,
                        ..
                    }
                ),
                "{e}"
            );
        }
    }
}
