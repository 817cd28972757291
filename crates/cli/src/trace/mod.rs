//! `memledger trace report` and `check`: what the allocations in a trace add up to, and what contradicts itself.

pub(crate) mod args;
mod flame;
mod open;
mod print;
mod rows;

use crate::{Failure, Result};
use args::{Check, Command, Input, Report, View};
use memledger_formats::trace::stats::{Options, Stats};
use memledger_formats::trace::{Names, Source, Unit};
use rows::Labels;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Runs it. The exit code.
pub(crate) fn run(trace: &args::Trace) -> Result<u8> {
    match &trace.command {
        Command::Report(report) => self::report(report),
        Command::Check(check) => self::check(check),
        Command::Tracer(command) => crate::tracer::run(command),
    }
}

/// A trace that was read.
pub(crate) struct Read {
    pub(crate) stats: Stats,
    pub(crate) names: Names,
    pub(crate) symbols: memledger_formats::kallsyms::Kallsyms,
    pub(crate) unit: Unit,
    pub(crate) hashed: bool,
}

impl Read {
    pub(crate) fn labels(&self) -> Labels<'_> {
        Labels {
            names: &self.names,
            symbols: &self.symbols,
        }
    }
}

fn read(input: &Input, detail: bool, check: bool) -> Result<Read> {
    let mut opened = open::sources(input)?;
    let mut names = Names::new();
    // What a kernel prints has microseconds. Raw pages have more, but the same reports must come of both.
    let quantum = if opened.source.info().unit == Unit::Nanoseconds {
        1000
    } else {
        1
    };
    let mut stats = Stats::new(Options {
        max_live: input.max_live,
        quantum,
        detail,
        check,
    });
    while let Some(item) = opened.source.next_item(&mut names)? {
        stats.add(item, &names);
    }
    let info = opened.source.info();
    Ok(Read {
        stats,
        names,
        symbols: opened.symbols,
        unit: info.unit,
        hashed: info.hashed,
    })
}

fn report(args: &Report) -> Result<u8> {
    // Without a view that needs more, only the sums by site are kept, which is several times as fast.
    let few = |view: &View| matches!(view, View::Totals | View::Site | View::Leaks | View::Others);
    let detail = args.flame.is_some() || args.folded.is_some() || !args.by.iter().all(few);
    let read = read(&args.input, detail, false)?;
    let stats = &read.stats;
    if let Some(path) = &args.folded {
        let stacks = rows::folded(stats, read.labels(), args.weight);
        write_to(path, |out| flame::write_folded(out, &stacks))?;
    }
    if let Some(path) = &args.flame {
        let stacks = rows::folded(stats, read.labels(), args.weight);
        let title = format!("{:?}", args.weight).to_lowercase();
        write_to(path, |out| flame::write_svg(out, &stacks, &title))?;
    }
    let mut views = args.by.clone();
    if views.is_empty() && args.folded.is_none() && args.flame.is_none() {
        views = vec![View::Totals, View::Site, View::Leaks];
    }
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &print::json(&read, args, &views))?;
        writeln!(out)?;
    } else {
        for view in &views {
            print::view(&mut out, &read, args, *view)?;
        }
    }
    out.flush()?;
    print::losses(&mut io::stderr().lock(), stats)?;
    Ok(u8::from(stats.incomplete()))
}

fn write_to(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let fail = |e: io::Error| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ => Failure::Message(format!("{}: {e}", path.display())),
    };
    let mut out: Box<dyn Write> = match path == Path::new("-") {
        true => Box::new(io::stdout().lock()),
        false => Box::new(File::create(path).map_err(fail)?),
    };
    let mut buffered = BufWriter::new(&mut out);
    write(&mut buffered).map_err(fail)?;
    buffered.flush().map_err(fail)
}

fn check(args: &Check) -> Result<u8> {
    let read = read(&args.input, false, true)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &print::check_json(&read))?;
        writeln!(out)?;
    } else {
        print::check(&mut out, &read)?;
    }
    out.flush()?;
    print::losses(&mut io::stderr().lock(), &read.stats)?;
    let found = read.stats.problems.values().any(|(n, _)| *n > 0);
    Ok(u8::from(found || read.stats.incomplete()))
}
