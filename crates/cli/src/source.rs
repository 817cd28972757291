//! Where rows come from: a process, a core file, the kernel, a kernel's log, saved text. All that was lost on the way comes with them.

use crate::args::Symbols;
use crate::output::{Entry, Resolver, counted};
use crate::{Failure, Result};
use memledger_abi::loss;
use memledger_formats::allocinfo::{self as format, BadLine, Version};
use memledger_formats::oom;
use memledger_inspect::{CoreInfo, Snapshot, Wrapper};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// Bad lines that are shown in full.
const BAD_LINES: usize = 20;
/// The kernel's report.
const KERNEL: &str = "/proc/allocinfo";

/// A source of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A running process.
    Process(u32),
    /// A core file.
    Core(PathBuf),
    /// The running kernel.
    Kernel,
    /// What a kernel printed.
    KernelFile(PathBuf),
    /// A log with the largest rows when memory ran out; `-` is standard input.
    Oom(PathBuf),
    /// Text in the kernel's form; `-` is standard input.
    Text(PathBuf),
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub(crate) entries: Vec<Entry>,
    /// Rows of memledger's own memory, which are in no sum.
    pub(crate) metadata: Vec<Entry>,
    pub(crate) version: Option<Version>,
    pub(crate) bad: Vec<BadLine>,
    /// It comes from a kernel, which counts slab memory twice.
    pub(crate) kernel: bool,
    /// What was lost, one line each.
    pub(crate) notes: Vec<String>,
    /// Functions that were guessed to be allocator wrappers.
    pub(crate) wrappers: Vec<Wrapper>,
    /// Findings beside the bad lines.
    pub(crate) lost: bool,
    /// What a core file tells of itself.
    pub(crate) core: Option<CoreInfo>,
}

impl Source {
    /// Opens the text to read; `None` if the source is no text of rows alone.
    pub(crate) fn open_text(&self) -> Result<Option<Box<dyn BufRead>>> {
        let path = match self {
            Source::Process(_) | Source::Core(_) | Source::Oom(_) => return Ok(None),
            Source::Kernel => return Ok(Some(Box::new(open_kernel(Path::new(KERNEL))?))),
            Source::KernelFile(path) => return Ok(Some(Box::new(open_kernel(path)?))),
            Source::Text(path) => path,
        };
        open_text(path).map(Some)
    }

    /// Reads all rows; of a process or core one for each stack if `stacks`.
    pub(crate) fn read(&self, symbols: &Symbols, stacks: bool) -> Result<Input> {
        match self {
            Source::Process(pid) => from_snapshot(Snapshot::read(*pid)?, symbols, stacks),
            Source::Core(path) => {
                let snapshot = Snapshot::read_core(path, symbols.sysroot.as_deref());
                let snapshot = snapshot.map_err(|error| named(path, error))?;
                from_snapshot(snapshot, symbols, stacks)
            }
            Source::Oom(path) => read_oom(path),
            _ => self.read_text(),
        }
    }

    fn read_text(&self) -> Result<Input> {
        let reader = self
            .open_text()?
            .ok_or_else(|| Failure::Message("nothing to read".to_owned()))?;
        let text = format::read(reader)?;
        let kernel = matches!(self, Source::Kernel | Source::KernelFile(_))
            || text.rows.iter().any(format::is_backing);
        let (metadata, rows): (Vec<_>, Vec<_>) =
            text.rows.into_iter().partition(format::is_metadata);
        Ok(Input {
            entries: rows.into_iter().map(Entry::from).collect(),
            metadata: metadata.into_iter().map(Entry::from).collect(),
            version: text.version,
            bad: text.bad,
            kernel,
            ..Input::default()
        })
    }
}

impl Input {
    /// Something was lost, or could not be parsed.
    pub(crate) fn findings(&self) -> bool {
        self.lost || !self.bad.is_empty()
    }
}

/// A failure that names the file.
fn named(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Message(format!("{}: {error}", path.display()))
}

fn open(path: &Path) -> Result<BufReader<File>> {
    let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(io::Error::from(ErrorKind::IsADirectory)),
        false => Ok(file),
    });
    file.map(|file| BufReader::with_capacity(1 << 16, file))
        .map_err(|error| named(path, error))
}

/// Opens a file of text; `-` is standard input.
fn open_text(path: &Path) -> Result<Box<dyn BufRead>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let mut file = open(path)?;
    if is_elf(&mut file) {
        return Err(named(
            path,
            "an ELF file, not text; a core file is read with --core",
        ));
    }
    Ok(Box::new(file))
}

/// The last block of the largest rows in a log.
fn read_oom(path: &Path) -> Result<Input> {
    let (mut last, mut blocks) = (None, 0_u64);
    for block in oom::Reader::new(open_text(path)?) {
        last = Some(block?);
        blocks += 1;
    }
    let block = last.ok_or_else(|| {
        named(
            path,
            "no \"Memory allocations:\" in it: the kernel logs that when memory runs out, if it profiles allocations",
        )
    })?;
    let mut notes = vec![format!(
        "only the {} largest rows, as logged at line {}; sizes are rounded to three digits",
        block.rows.len(),
        block.line
    )];
    if blocks > 1 {
        notes.push(format!("the last of {blocks} such blocks"));
    }
    if block.profiling == Some(false) {
        notes.push("profiling was off".to_owned());
    }
    Ok(Input {
        entries: block.rows.into_iter().map(Entry::from).collect(),
        bad: block.bad,
        notes,
        ..Input::default()
    })
}

fn is_elf(file: &mut BufReader<File>) -> bool {
    file.fill_buf()
        .is_ok_and(|head| head.starts_with(b"\x7fELF"))
}

fn open_kernel(path: &Path) -> Result<BufReader<File>> {
    File::open(path).map(|file| BufReader::with_capacity(1 << 16, file)).map_err(|error| {
        let what = match error.kind() {
            ErrorKind::NotFound => {
                "not there: the kernel needs CONFIG_MEM_ALLOC_PROFILING (Linux 6.10 or later) and to be booted with \
                 sysctl.vm.mem_profiling=1"
                    .to_owned()
            }
            ErrorKind::PermissionDenied => "permission denied: only root may read it (sudo)".to_owned(),
            _ => error.to_string(),
        };
        named(path, what)
    })
}

fn from_snapshot(snapshot: Snapshot, symbols: &Symbols, stacks: bool) -> Result<Input> {
    let (entries, wrappers) = Resolver::new(symbols)?.entries(&snapshot, stacks);
    let truncated = snapshot
        .core
        .as_ref()
        .is_some_and(|core| core.truncated() > 0);
    let metadata = memledger_inspect::metadata(&snapshot);
    Ok(Input {
        entries,
        metadata: metadata.into_iter().map(Entry::from).collect(),
        version: Some(Version::V2_0),
        lost: snapshot.torn_units() > 0 || snapshot.unread() > 0 || truncated,
        notes: notes(&snapshot),
        wrappers,
        core: snapshot.core,
        ..Input::default()
    })
}

/// What stands next to the numbers of a snapshot: what was lost, that profiling is off, and what memledger itself takes.
pub(crate) fn notes(snapshot: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    let losses: Vec<String> = named_losses(snapshot)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if !losses.is_empty() {
        notes.push(format!("lost: {}", losses.join(", ")));
    }
    let number = |n: u64, noun: &str| counted(i64::try_from(n).unwrap_or(i64::MAX), noun);
    if let Some(core) = &snapshot.core {
        core_notes(core, &mut notes);
    }
    match (snapshot.torn_units(), &snapshot.core) {
        (0, _) => {}
        (torn, None) => notes.push(format!(
            "{} kept changing while they were read, and are not in the sums",
            number(torn, "unit")
        )),
        (torn, Some(_)) => notes.push(format!(
            "{} of 64 KiB were changing when the process ended, or are not in the file; they are not in the sums",
            number(torn, "unit")
        )),
    }
    match snapshot.unread() {
        0 => {}
        unread => notes.push(format!(
            "{} of tags, call stacks or modules could not be read: names are missing, rows may be charged to foreign",
            number(unread, "record")
        )),
    }
    if snapshot.ledgers.iter().any(|ledger| ledger.never) {
        notes.push("profiling is disabled for good (MEMLEDGER=never)".to_owned());
    } else if !snapshot.enabled() {
        notes.push("profiling is off: memory allocated since then is not accounted".to_owned());
    }
    notes
}

fn core_notes(core: &CoreInfo, notes: &mut Vec<String>) {
    match core.truncated() {
        0 => {}
        missing => notes.push(format!(
            "the core file is truncated: it lacks the last {missing} of {} bytes",
            core.wanted_size
        )),
    }
    if !core.unverified.is_empty() {
        notes.push(format!(
            "read from files that may not be those of the process, as the core file has no build-id of them: {}",
            core.unverified.join(", ")
        ));
    }
}

/// Counts of losses that are not 0, by name.
pub(crate) fn named_losses(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, u64)> {
    loss::NAMES
        .into_iter()
        .zip(snapshot.losses())
        .filter(|(name, count)| *count > 0 && !name.is_empty())
}

/// Shows lines that are no rows.
pub(crate) fn report_bad(bad: &[BadLine]) {
    for line in bad.iter().take(BAD_LINES) {
        eprintln!("memledger: {line}");
    }
    if bad.len() > BAD_LINES {
        eprintln!(
            "memledger: {} more lines could not be parsed",
            bad.len() - BAD_LINES
        );
    }
}
