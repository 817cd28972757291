//! The files of a process under the mount, one type each. A new file is a type with [`ProcFile`] and a line in [`FILES`].

use crate::args::Symbols;
use crate::output::Resolver;
use fuser::Errno;
use memledger_formats::allocinfo::{Version, write};
use memledger_inspect::{Error, Snapshot, control};

/// A file in the folder of each process.
pub(super) trait ProcFile: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Its permissions, those of the kernel's file.
    fn mode(&self) -> u16;
    /// Is it there for a process that was started with `never`?
    fn under_never(&self) -> bool;
    /// All of its text at this moment.
    fn read(&self, pid: u32, symbols: &Symbols) -> Result<Vec<u8>, Errno>;
    /// Takes what was written in one call.
    fn write(&self, _pid: u32, _data: &[u8]) -> Result<(), Errno> {
        Err(Errno::EACCES)
    }
}

/// All of them, in the order of a listing.
pub(super) static FILES: [&dyn ProcFile; 2] = [&Allocinfo, &MemProfiling];

/// What a failed inspection is to who reads or writes a file.
fn errno(error: Error) -> Errno {
    match error {
        Error::NoSuchProcess { .. } | Error::Dying { .. } | Error::NoLedger { .. } => Errno::ENOENT,
        Error::Denied { .. } => Errno::EACCES,
        Error::Never { .. } => Errno::EINVAL,
        Error::NotReady { .. } => Errno::EAGAIN,
        _ => Errno::EIO,
    }
}

/// `/proc/allocinfo` of a process. What could not be read is not left out silently: the read fails.
struct Allocinfo;

impl ProcFile for Allocinfo {
    fn name(&self) -> &'static str {
        "allocinfo"
    }

    fn mode(&self) -> u16 {
        0o400
    }

    fn under_never(&self) -> bool {
        false
    }

    fn read(&self, pid: u32, symbols: &Symbols) -> Result<Vec<u8>, Errno> {
        let snapshot = Snapshot::read(pid).map_err(errno)?;
        if snapshot.torn_units() > 0 {
            return Err(Errno::EAGAIN);
        }
        let mut resolver = Resolver::new(symbols).map_err(|_| Errno::EIO)?;
        let (entries, _) = resolver.entries(&snapshot, false);
        let mut text = Vec::new();
        write(&mut text, Version::V2_0, entries.iter().map(|e| &e.row)).map_err(|_| Errno::EIO)?;
        Ok(text)
    }
}

/// `/proc/sys/vm/mem_profiling` of a process: prints 0 or 1, takes 0 or 1; all else is `EINVAL`, and so is any write to a
/// process that was started with `never` (as in Linux 7.3).
struct MemProfiling;

impl ProcFile for MemProfiling {
    fn name(&self) -> &'static str {
        "mem_profiling"
    }

    fn mode(&self) -> u16 {
        0o644
    }

    fn under_never(&self) -> bool {
        true
    }

    fn read(&self, pid: u32, _: &Symbols) -> Result<Vec<u8>, Errno> {
        let on = match control::get(pid) {
            Ok(all) => all.into_iter().any(|on| on),
            Err(Error::Never { .. }) => false,
            Err(error) => return Err(errno(error)),
        };
        Ok(format!("{}\n", u8::from(on)).into_bytes())
    }

    fn write(&self, pid: u32, data: &[u8]) -> Result<(), Errno> {
        let on = match data.trim_ascii() {
            b"0" => false,
            b"1" => true,
            _ => return Err(Errno::EINVAL),
        };
        control::set(pid, on).map(drop).map_err(errno)
    }
}
