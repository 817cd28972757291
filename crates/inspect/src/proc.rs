//! What `/proc` tells of a process.

use std::path::PathBuf;

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
    /// Path as the process sees it, without ` (deleted)`; empty if anonymous.
    pub path: String,
    /// The file has been deleted or replaced.
    pub deleted: bool,
}

/// Identity of a process at the time it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Name of the task (15 characters at most).
    pub comm: String,
    /// Path of the executable; empty if unknown.
    pub exe: PathBuf,
    /// Start time in clock ticks since boot; tells a process from a later one of the same id.
    pub start_time: u64,
    /// Its mappings.
    pub mappings: Vec<Mapping>,
}

impl Process {
    /// Reads it from `/proc`.
    pub fn read(_pid: u32) -> crate::Result<Self> {
        todo!()
    }
}
