//! `memledger allocinfo`: rows of a process, a core file, saved text or the kernel, selected, sorted and printed.

use crate::args::{Allocinfo, Colour};
use crate::output::{
    Entry, Table, Target, core_json, counted, guess_note, row_json, total_json, wrappers_json,
};
use crate::source::{Input, Source, report_bad};
use crate::{Failure, Result};
use memledger_formats::allocinfo::{self as format, Total, Version};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};

/// Rows of a table if nothing else is said.
const TABLE_ROWS: usize = 20;

/// Reads and prints.
pub(crate) fn run(args: &Allocinfo, colour: Colour) -> Result<u8> {
    let source = args.source.source();
    if args.raw
        && args.sort.is_none()
        && args.top.is_none()
        && !args.metadata
        && args.filter.is_empty()
        && let Some(reader) = source.open_text()?
    {
        return copy(reader);
    }
    let mut input = source.read(&args.symbols, args.frames)?;
    let findings = input.findings();
    if !args.metadata
        && !matches!(source, Source::Process(_) | Source::Core(_))
        && !input.metadata.is_empty()
    {
        let rows = counted(
            i64::try_from(input.metadata.len()).unwrap_or(i64::MAX),
            "row",
        );
        input.notes.push(format!(
            "{rows} of memledger's own memory left out (--metadata)"
        ));
    }
    report_bad(&input.bad);
    let all: Total = input.entries.iter().map(|entry| &entry.row).collect();
    let net = input
        .kernel
        .then(|| format::kernel_total(input.entries.iter().map(|entry| &entry.row)));
    let matching = select(&mut input, args)?;
    let mut target = Target::stdout(colour);
    if args.raw {
        raw(&mut target, args, &input)?;
    } else if args.json {
        json_out(&mut target, args, &input, &all, net.as_ref())?;
    } else {
        table(&mut target, args, &input, &all, net.as_ref(), matching)?;
    }
    target.out.flush()?;
    Ok(u8::from(findings))
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

/// Rows of memledger's own memory, if they are wanted.
fn own<'a>(input: &'a Input, args: &Allocinfo) -> impl Iterator<Item = &'a Entry> {
    input.metadata.iter().filter(|_| args.metadata)
}

/// Prints them apart from the others, with their own sum.
fn own_table(target: &mut Target, args: &Allocinfo, input: &Input, table: &Table) -> Result<()> {
    if !args.metadata {
        return Ok(());
    }
    let palette = target.palette;
    let rows: Vec<Entry> = own(input, args).cloned().collect();
    writeln!(
        target.out,
        "{0}memledger itself, in no total above:{0:#}",
        palette.strong
    )?;
    table.rows(&mut target.out, &rows)?;
    let sum: Total = rows.iter().map(|entry| &entry.row).collect();
    let calls = crate::output::grouped(sum.calls);
    writeln!(
        target.out,
        "{:>14} {calls:>12}  of its own",
        table.size(sum.bytes)
    )?;
    Ok(())
}

fn raw(target: &mut Target, args: &Allocinfo, input: &Input) -> Result<()> {
    format::write(
        &mut target.out,
        input.version.unwrap_or(Version::V2_0),
        input
            .entries
            .iter()
            .chain(own(input, args))
            .map(|entry| &entry.row),
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
        return own_table(target, args, input, &table);
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
        "metadata": input.metadata.iter().map(|entry| row_json(entry, None)).collect::<Vec<Value>>(),
        "total": total_json(all),
        "notes": input.notes,
        "bad_lines": bad,
    });
    if let Some(core) = &input.core {
        value["core"] = core_json(core);
    }
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
