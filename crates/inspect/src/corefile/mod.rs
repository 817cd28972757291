//! Memory of a process that is gone, as a core file holds it.
//!
//! A core file may be larger than this machine's memory and may be cut off at any place, so it is neither mapped nor read as a
//! whole: each piece is read where it is wanted. What a dump leaves out on purpose (`/proc/PID/coredump_filter`, and the
//! like in gdb's `gcore`) is code and constants of object files; that is read from the files, if they are the very ones that
//! were mapped: same build-id, or same ELF headers where there is none. Pages that a program could write are never taken
//! from a file: they may have been different.

mod elf;

use crate::decode::{u16_at, u32_at, u64_at};
use crate::error::{Error, Result};
use crate::files;
use crate::find;
use crate::mem::Memory;
use crate::proc::{Mapping, Process};
use elf::Segment;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

/// Bytes that can be read by offset, without a cursor.
pub(crate) trait ReadAt: std::fmt::Debug {
    /// Fills `buf` from offset `at` on; `UnexpectedEof` if the end comes before.
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()>;
    /// Number of bytes.
    fn size(&self) -> u64;
}

impl ReadAt for File {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buf, at)
    }

    fn size(&self) -> u64 {
        self.metadata().map_or(0, |m| m.len())
    }
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).ok();
        let bytes = at.and_then(|at| self.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }
}

/// What a core file tells of itself and its process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreInfo {
    /// Process id, in the namespace of the process; 0 if not known.
    pub pid: u32,
    /// Name of the task (15 characters at most).
    pub comm: String,
    /// Start of the command line (80 bytes at most).
    pub args: String,
    /// Signal that ended it, or at which it was stopped; 0 = none.
    pub signal: Option<u32>,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes that it would have if it were whole.
    pub wanted_size: u64,
    /// Object files whose bytes were used although nothing in the core file tells whether they are the right ones.
    pub unverified: Vec<String>,
}

impl CoreInfo {
    /// Bytes that are missing at its end.
    pub fn truncated(&self) -> u64 {
        self.wanted_size.saturating_sub(self.size)
    }
}

/// An object file that stands in for what the core lacks.
#[derive(Debug)]
struct Backing {
    file: File,
    /// Page-rounded ranges of the file that were mapped read-only.
    constant: Vec<(u64, u64)>,
}

/// Memory of a core file.
#[derive(Debug)]
pub struct CoreMemory {
    file: Box<dyn ReadAt>,
    modified: Option<SystemTime>,
    segments: Vec<Segment>,
    mappings: Vec<Mapping>,
    sysroot: Option<PathBuf>,
    backing: RefCell<HashMap<String, Option<Rc<Backing>>>>,
    unverified: RefCell<BTreeSet<String>>,
}

impl CoreMemory {
    /// Opens a core file; object files are looked for below `sysroot` first. With the memory comes what is known of the
    /// process (its [`Process::pid`] is 0) and of the file.
    ///
    /// # Errors
    /// It cannot be read, is no core file, or is cut off in its headers or notes.
    pub fn open(path: &Path, sysroot: Option<&Path>) -> Result<(Self, Process, CoreInfo)> {
        let io = |e| Error::io("cannot be opened", e);
        let meta = std::fs::metadata(path).map_err(io)?;
        if !meta.is_file() {
            let what =
                "a core file is read in any order: it must be a regular file, not a pipe or folder";
            return Err(Error::Core { what: what.into() });
        }
        let file = File::open(path).map_err(io)?;
        let (mut mem, process, info) = Self::from_bytes(Box::new(file), sysroot)?;
        mem.modified = meta.modified().ok();
        Ok((mem, process, info))
    }

    pub(crate) fn from_bytes(
        file: Box<dyn ReadAt>,
        sysroot: Option<&Path>,
    ) -> Result<(Self, Process, CoreInfo)> {
        let parsed = elf::parse(&*file)?;
        let mem = CoreMemory {
            file,
            modified: None,
            segments: parsed.segments,
            mappings: parsed.mappings,
            sysroot: sysroot.map(Path::to_owned),
            backing: RefCell::default(),
            unverified: RefCell::default(),
        };
        let process = Process {
            comm: parsed.info.comm.clone(),
            exe: parsed.exe,
            mappings: mem.all_mappings(),
            ..Process::default()
        };
        Ok((mem, process, parsed.info))
    }

    /// Those of `NT_FILE`, and segments that begin as an object file does and are in none of them: the note may be left out.
    fn all_mappings(&self) -> Vec<Mapping> {
        let mut all = self.mappings.clone();
        for s in &self.segments {
            let mut magic = [0; 4];
            if self.mapping(s.start).is_none()
                && self.read_core(s.start, &mut magic).is_some_and(|n| n == 4)
                && magic == *b"\x7fELF"
            {
                all.push(Mapping {
                    start: s.start,
                    end: s.end,
                    offset: 0,
                    readable: true,
                    path: "?".into(),
                    deleted: false,
                });
            }
        }
        all.sort_by_key(|m| m.start);
        all
    }

    /// Object files that were used without proof that they are the right ones.
    pub(crate) fn unverified(&self) -> Vec<String> {
        self.unverified.borrow().iter().cloned().collect()
    }

    fn mapping(&self, addr: u64) -> Option<&Mapping> {
        let i = self.mappings.partition_point(|m| m.end <= addr);
        self.mappings.get(i).filter(|m| m.start <= addr)
    }

    /// Reads from the core itself as much as lies together at `addr`; `None` if it has nothing there.
    fn read_core(&self, addr: u64, buf: &mut [u8]) -> Option<usize> {
        let i = self.segments.partition_point(|s| s.end <= addr);
        let s = self.segments.get(i).filter(|s| s.start <= addr)?;
        let skip = addr - s.start;
        let n = s.have.checked_sub(skip).filter(|&n| n > 0)?;
        let n = usize::try_from(n).map_or(buf.len(), |n| n.min(buf.len()));
        let at = s.offset.checked_add(skip)?;
        self.file.read_exact_at(&mut buf[..n], at).ok()?;
        Some(n)
    }

    /// Where the core has bytes again, above `addr`.
    fn next_core(&self, addr: u64) -> u64 {
        let i = self.segments.partition_point(|s| s.start <= addr);
        let next = self.segments[i..].iter().find(|s| s.have > 0);
        next.map_or(u64::MAX, |s| s.start)
    }

    /// Reads constants of an object file that the core lacks.
    fn read_object(&self, addr: u64, buf: &mut [u8]) -> Option<usize> {
        let m = self.mapping(addr)?;
        let backing = self.backing(m)?;
        let at = m.offset.checked_add(addr - m.start)?;
        let (_, end) = *backing
            .constant
            .iter()
            .find(|(start, end)| (*start..*end).contains(&at))?;
        let room = (end - at)
            .min(m.end - addr)
            .min(self.next_core(addr) - addr);
        let n = usize::try_from(room).map_or(buf.len(), |n| n.min(buf.len()));
        FileExt::read_exact_at(&backing.file, &mut buf[..n], at).ok()?;
        Some(n)
    }

    fn backing(&self, m: &Mapping) -> Option<Rc<Backing>> {
        if let Some(known) = self.backing.borrow().get(&m.path) {
            return known.clone();
        }
        let found = self.find_backing(m).map(Rc::new);
        let mut all = self.backing.borrow_mut();
        all.insert(m.path.clone(), found.clone());
        found
    }

    fn find_backing(&self, m: &Mapping) -> Option<Backing> {
        let base = self.mappings[..self.mappings.partition_point(|o| o.start <= m.start)]
            .iter()
            .rfind(|o| o.offset == 0 && o.path == m.path);
        let core = CoreOnly(self);
        let id = base.and_then(|b| find::build_id(&core, b.start));
        let head = base.and_then(|b| {
            let mut head = vec![0; 64];
            core.read(b.start, &mut head).ok()?;
            head.resize(64 + usize::from(u16_at(&head, 56)).min(64) * 56, 0);
            core.read(b.start, &mut head).ok().map(|()| head)
        });
        let path = Path::new(&m.path);
        for candidate in files::below_sysroot(self.sysroot.as_deref(), path) {
            let Ok(file) = files::open_regular(&candidate) else {
                continue;
            };
            let Some(constant) = constant_ranges(&file) else {
                continue;
            };
            let right = match (&id, &head) {
                (Some(id), _) => files::info(&candidate).is_some_and(|i| i.build_id == *id),
                (None, Some(head)) => {
                    let mut own = vec![0; head.len()];
                    FileExt::read_exact_at(&file, &mut own, 0).is_ok() && own == *head
                }
                (None, None) => {
                    self.older(&file) && {
                        self.unverified.borrow_mut().insert(m.path.clone());
                        true
                    }
                }
            };
            if right {
                return Some(Backing { file, constant });
            }
        }
        None
    }

    /// Was the file there, as it is, when the core was written?
    fn older(&self, file: &File) -> bool {
        let theirs = file.metadata().and_then(|m| m.modified()).ok();
        matches!((theirs, self.modified), (Some(a), Some(b)) if a <= b)
    }
}

/// Ranges of an object file that are mapped without the right to write. `None` if it is no ELF file.
fn constant_ranges(file: &File) -> Option<Vec<(u64, u64)>> {
    const PAGE: u64 = 4096;
    let mut head = [0; 64];
    FileExt::read_exact_at(file, &mut head, 0).ok()?;
    if !head.starts_with(b"\x7fELF\x02\x01") || u16_at(&head, 54) != 56 {
        return None;
    }
    let mut table = vec![0; usize::from(u16_at(&head, 56)) * 56];
    FileExt::read_exact_at(file, &mut table, u64_at(&head, 32)).ok()?;
    let loads = table
        .chunks_exact(56)
        .filter(|p| u32_at(p, 0) == 1 && u32_at(p, 4) & 2 == 0);
    let size = file.size();
    let range = |p: &[u8]| {
        let (offset, len) = (u64_at(p, 8), u64_at(p, 32));
        let end = offset.saturating_add(len).checked_next_multiple_of(PAGE)?;
        Some((offset & !(PAGE - 1), end.min(size)))
    };
    Some(loads.filter_map(range).collect())
}

impl Memory for CoreMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let part = &mut buf[done..];
            let n = addr
                .checked_add(done as u64)
                .and_then(|at| {
                    self.read_core(at, part)
                        .or_else(|| self.read_object(at, part))
                })
                .filter(|&n| n > 0)
                .ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
            done += n;
        }
        Ok(())
    }
}

/// What is in the core itself, without the object files.
struct CoreOnly<'a>(&'a CoreMemory);

impl Memory for CoreOnly<'_> {
    fn read(&self, addr: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = addr.checked_add(done as u64);
            let n = at.and_then(|at| self.0.read_core(at, &mut buf[done..]));
            done += n.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
