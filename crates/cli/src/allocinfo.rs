//! `memledger allocinfo`: rows of a process, a file or the kernel, selected, sorted and printed.

use crate::args::{Allocinfo, Colour};
use crate::output::{
    Entry, Resolver, Table, Target, counted, guess_note, row_json, total_json, wrappers_json,
};
use crate::{Failure, Result};
use memledger_abi::loss;
use memledger_formats::allocinfo::{self as format, BadLine, Total, Version};
use memledger_inspect::{Snapshot, Wrapper};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::Path;

/// Rows of a table if nothing else is said.
const TABLE_ROWS: usize = 20;
/// Bad lines that are shown in full.
const BAD_LINES: usize = 20;

/// What was read.
#[derive(Debug, Default)]
struct Input {
    entries: Vec<Entry>,
    version: Option<Version>,
    bad: Vec<BadLine>,
    /// It comes from a kernel, which counts slab memory twice.
    kernel: bool,
    /// What was lost, one line each.
    notes: Vec<String>,
    /// Functions that were guessed to be allocator wrappers.
    wrappers: Vec<Wrapper>,
    /// Findings beside the bad lines.
    lost: bool,
}

/// Reads and prints.
pub(crate) fn run(args: &Allocinfo, colour: Colour) -> Result<u8> {
    if args.raw
        && args.sort.is_none()
        && args.top.is_none()
        && args.filter.is_empty()
        && let Some(reader) = text_source(args)?
    {
        return copy(reader);
    }
    let mut input = read(args)?;
    let findings = input.lost || !input.bad.is_empty();
    report_bad(&input.bad);
    let all: Total = input.entries.iter().map(|entry| &entry.row).collect();
    let net = input
        .kernel
        .then(|| format::kernel_total(input.entries.iter().map(|entry| &entry.row)));
    let matching = select(&mut input, args)?;
    let mut target = Target::stdout(colour);
    if args.raw {
        raw(&mut target, &input)?;
    } else if args.json {
        json_out(&mut target, args, &input, &all, net.as_ref())?;
    } else {
        table(&mut target, args, &input, &all, net.as_ref(), matching)?;
    }
    target.out.flush()?;
    Ok(u8::from(findings))
}

/// Opens the text to read; `None` if a process was asked for.
fn text_source(args: &Allocinfo) -> Result<Option<Box<dyn BufRead>>> {
    let source = &args.source;
    if source.kernel || source.kernel_file.is_some() {
        let path = source
            .kernel_file
            .as_deref()
            .unwrap_or(Path::new("/proc/allocinfo"));
        return Ok(Some(Box::new(open_kernel(path)?)));
    }
    match &source.file {
        None => Ok(None),
        Some(path) if path.as_os_str() == "-" => Ok(Some(Box::new(BufReader::new(io::stdin())))),
        Some(path) => {
            let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
                true => Err(io::Error::from(ErrorKind::IsADirectory)),
                false => Ok(file),
            });
            let file =
                file.map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
            Ok(Some(Box::new(BufReader::with_capacity(1 << 16, file))))
        }
    }
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
        Failure::Message(format!("{}: {what}", path.display()))
    })
}

/// Passes text through unchanged while it is parsed.
fn copy(reader: Box<dyn BufRead>) -> Result<u8> {
    let out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut tee = BufReader::with_capacity(1 << 16, Tee { reader, out });
    let mut bad = Vec::new();
    for item in format::Reader::new(&mut tee) {
        if let format::Item::Bad(line) = item? {
            bad.push(line);
        }
    }
    tee.into_inner().out.flush()?;
    report_bad(&bad);
    Ok(u8::from(!bad.is_empty()))
}

/// Writes all that is read.
struct Tee<R, W> {
    reader: R,
    out: W,
}

impl<R: Read, W: Write> Read for Tee<R, W> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buf)?;
        self.out.write_all(&buf[..count])?;
        Ok(count)
    }
}

fn read(args: &Allocinfo) -> Result<Input> {
    if let Some(pid) = args.source.pid {
        return read_process(args, pid);
    }
    let reader =
        text_source(args)?.ok_or_else(|| Failure::Message("nothing to read".to_owned()))?;
    let text = format::read(reader)?;
    let kernel = args.source.kernel
        || args.source.kernel_file.is_some()
        || text.rows.iter().any(format::is_backing);
    Ok(Input {
        entries: text.rows.into_iter().map(Entry::from).collect(),
        version: text.version,
        bad: text.bad,
        kernel,
        ..Input::default()
    })
}

fn read_process(args: &Allocinfo, pid: u32) -> Result<Input> {
    let snapshot = Snapshot::read(pid)?;
    let (entries, wrappers) = Resolver::new(&args.symbols)?.entries(&snapshot, args.frames);
    let notes = notes(&snapshot);
    Ok(Input {
        entries,
        version: Some(Version::V2_0),
        lost: snapshot.torn_units() > 0,
        notes,
        wrappers,
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
    match snapshot.torn_units() {
        0 => {}
        torn => notes.push(format!(
            "{} kept changing while they were read, and are not in the sums",
            counted(i64::try_from(torn).unwrap_or(i64::MAX), "unit")
        )),
    }
    if snapshot.ledgers.iter().any(|ledger| ledger.never) {
        notes.push("profiling is disabled for good (MEMLEDGER=never)".to_owned());
    } else if !snapshot.enabled() {
        notes.push("profiling is off: memory allocated since then is not accounted".to_owned());
    }
    notes
}

/// Counts of losses that are not 0, by name.
pub(crate) fn named_losses(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, u64)> {
    loss::NAMES
        .into_iter()
        .zip(snapshot.losses())
        .filter(|(name, count)| *count > 0 && !name.is_empty())
}

fn report_bad(bad: &[BadLine]) {
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

/// Filters, sorts and cuts the rows; returns the sum of those that match.
fn select(input: &mut Input, args: &Allocinfo) -> Result<Total> {
    let filter = args
        .filter()
        .map_err(|error| Failure::Message(error.to_string()))?;
    // The kernel's text has rows without memory, and so has the raw output, unless rows are picked.
    let zero = args.zero || (args.raw && args.top.is_none());
    input
        .entries
        .retain(|entry| (zero || !entry.row.is_zero()) && filter.matches(&entry.row));
    let matching = input.entries.iter().map(|entry| &entry.row).collect();
    if let Some(sort) = &args.sort {
        input.entries.sort_by(|a, b| sort.compare(&a.row, &b.row));
    } else if !args.raw || args.top.is_some() {
        let sort = format::SortSpec::default();
        input.entries.sort_by(|a, b| sort.compare(&a.row, &b.row));
    }
    let default = if args.raw || args.json { 0 } else { TABLE_ROWS };
    match args.top.unwrap_or(default) {
        0 => {}
        top => input.entries.truncate(top),
    }
    Ok(matching)
}

fn raw(target: &mut Target, input: &Input) -> Result<()> {
    format::write(
        &mut target.out,
        input.version.unwrap_or(Version::V2_0),
        input.entries.iter().map(|entry| &entry.row),
    )?;
    for note in &input.notes {
        eprintln!("memledger: {note}");
    }
    Ok(())
}

fn table(
    target: &mut Target,
    args: &Allocinfo,
    input: &Input,
    all: &Total,
    net: Option<&format::KernelTotal>,
    matching: Total,
) -> Result<()> {
    let table = Table {
        exact: args.bytes,
        frames: args.frames.then_some(args.depth.unwrap_or(usize::MAX)),
        palette: target.palette,
    };
    table.print(&mut target.out, &input.entries)?;
    let shown: Total = input.entries.iter().map(|entry| &entry.row).collect();
    let (strong, warn) = (target.palette.strong, target.palette.warn);
    let sum = |total: &Total, name: &str| {
        format!(
            "{:>14} {:>12}  {name}",
            table.size(total.bytes),
            crate::output::grouped(total.calls)
        )
    };
    let rows = |total: &Total| counted(i64::try_from(total.rows).unwrap_or(i64::MAX), "row");
    if shown.rows != matching.rows {
        writeln!(
            target.out,
            "{}",
            sum(&shown, &format!("in the {} shown", rows(&shown)))
        )?;
    }
    if !args.filter.is_empty() {
        writeln!(
            target.out,
            "{}",
            sum(&matching, &format!("in {} that match", rows(&matching)))
        )?;
    }
    let live = counted(i64::try_from(all.live_rows).unwrap_or(i64::MAX), "row");
    let Some(kernel) = net else {
        writeln!(
            target.out,
            "{strong}{}{strong:#}",
            sum(all, &format!("total of {live}"))
        )?;
        if let Some(note) = guess_note(&input.entries, &input.wrappers) {
            writeln!(target.out, "{note}")?;
        }
        for note in &input.notes {
            writeln!(target.out, "{warn}{note}{warn:#}")?;
        }
        return Ok(());
    };
    writeln!(
        target.out,
        "{strong}{}{strong:#}",
        sum(
            &kernel.net,
            &format!("total of {live}, without pages that hold objects of other rows")
        )
    )?;
    writeln!(
        target.out,
        "{}",
        sum(
            &kernel.backing,
            "such pages (slab, percpu), charged twice in the plain sum"
        )
    )?;
    writeln!(target.out, "{}", sum(&kernel.gross, "plain sum"))?;
    if all.inaccurate_rows > 0 {
        let count = counted(
            i64::try_from(all.inaccurate_rows).unwrap_or(i64::MAX),
            "row",
        );
        writeln!(
            target.out,
            "{warn}{count} with accurate:no lack some memory{warn:#}"
        )?;
    }
    Ok(())
}

fn json_out(
    target: &mut Target,
    args: &Allocinfo,
    input: &Input,
    all: &Total,
    net: Option<&format::KernelTotal>,
) -> Result<()> {
    let depth = args.frames.then_some(args.depth.unwrap_or(usize::MAX));
    let rows: Vec<Value> = input
        .entries
        .iter()
        .map(|entry| row_json(entry, depth))
        .collect();
    let bad: Vec<Value> = input
        .bad
        .iter()
        .map(|line| json!({"line": line.number, "problem": line.kind.to_string(), "text": line.text}))
        .collect();
    let mut value = json!({
        "version": input.version.map(|version| version.to_string()),
        "guessed_wrappers": wrappers_json(&input.wrappers),
        "rows": rows,
        "total": total_json(all),
        "notes": input.notes,
        "bad_lines": bad,
    });
    if let Some(kernel) = net {
        value["kernel_total"] = json!({
            "gross": total_json(&kernel.gross),
            "backing": total_json(&kernel.backing),
            "net": total_json(&kernel.net),
        });
    }
    serde_json::to_writer_pretty(&mut target.out, &value)?;
    writeln!(target.out)?;
    Ok(())
}
