//! The tracer of programs: `memledger trace record`, `stat` and `print`.
//!
//! All is done from outside: the process's control words are written, its rings and tables are read.

mod print;
mod record;
mod stat;

use crate::args::Symbols;
use crate::{Failure, Result};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use memledger_abi::trace::{TRACER_CACHES, TRACER_EVENTS, TRACER_OBJECTS, TRACER_SITES};
use memledger_formats::size::parse_size;
use memledger_formats::trace::Source;
use memledger_formats::trace::own::{MAGIC, OwnTrace};
use memledger_inspect::trace::Options;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

const RECORD_EXAMPLES: &str = "\
Examples:
  memledger trace record -p 1234 -o trace.ml --seconds 10
  memledger trace record -p 1234 -o big.ml --min-size 64K        large objects only
  memledger trace record -p 1234 -o first.ml --already           what MEMLEDGER=trace=on has kept since the start
  memledger trace print first.ml --style minimalistic | less

Exit codes:
  0  done
  1  done, but events were lost; stderr says how many
  2  wrong usage or failure";

/// What can be done with a tracer.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Record the allocations and frees of a running process into a file
    Record(Record),
    /// Show the sums that the tracer of a process keeps: by site, by cache, histograms, live objects
    Stat(Stat),
    /// Print a recorded file as kmemtrace printed it
    Print(Print),
}

/// Which events are traced.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct What {
    /// The process
    #[arg(long, short, value_name = "PID")]
    pub(crate) pid: u32,
    /// How long to trace, in seconds (default: until Ctrl-C, or the end of the process)
    #[arg(long, short, value_name = "N")]
    pub(crate) seconds: Option<f64>,
    /// Leave the tracer as it was found: read what it does already, and do not switch it off
    #[arg(long)]
    pub(crate) already: bool,
    /// Bytes of a thread's ring of events, for threads that have none yet (4K to 1G)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) ring_size: Option<u64>,
    /// What a full ring does
    #[arg(long, value_enum, default_value_t = Mode::Overwrite, value_name = "MODE")]
    pub(crate) mode: Mode,
    /// Only objects of at least so many bytes (as given)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) min_size: Option<u64>,
    /// Only objects of at most so many bytes (as given)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_size: Option<u64>,
    /// Only this site or tag, by the number that `trace stat --numbers` shows (16 at the most)
    #[arg(long, value_name = "NUMBER")]
    pub(crate) site: Vec<u32>,
    /// Not this cache, by its number (80 and less: size classes; 127: whole pages)
    #[arg(long, value_name = "NUMBER")]
    pub(crate) exclude_cache: Vec<u32>,
    /// Only one site in N
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) sample: u32,
}

/// Full rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// New events overwrite the oldest
    Overwrite,
    /// New events are dropped until the ring has been read
    Stop,
}

/// `memledger trace record`.
#[derive(Debug, ClapArgs)]
#[command(after_help = RECORD_EXAMPLES)]
pub(crate) struct Record {
    #[command(flatten)]
    pub(crate) what: What,
    /// The file
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// `memledger trace stat`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Stat {
    #[command(flatten)]
    pub(crate) what: What,
    /// Rows to show of each table; 0 = all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
    /// Show the numbers of sites
    #[arg(long)]
    pub(crate) numbers: bool,
    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// `memledger trace print`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Print {
    /// A file that `memledger trace record` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// As which of kmemtrace's texts
    #[arg(long, value_enum, default_value_t = Text::Minimalistic, value_name = "STYLE")]
    pub(crate) style: Text,
}

/// kmemtrace's texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Text {
    /// type_id, call_site, ptr, bytes_req, bytes_alloc, gfp_flags, node
    Raw,
    /// The table of the option kmem_minimalistic
    Minimalistic,
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    parse_size(text).map_err(|e| e.to_string())
}

/// Does what was asked for.
pub(crate) fn run(command: &Command) -> Result<u8> {
    match command {
        Command::Record(record) => record::run(record),
        Command::Stat(stat) => stat::run(stat),
        Command::Print(print) => print::run(print),
    }
}

impl What {
    /// What the tracer is to be told.
    fn options(&self, sums: bool) -> Result<Options> {
        if self.site.len() > 16 {
            return Err(Failure::Message("--site: 16 at the most".to_owned()));
        }
        let tracers = match sums {
            true => TRACER_SITES | TRACER_CACHES | TRACER_OBJECTS,
            false => TRACER_EVENTS,
        };
        Ok(Options {
            tracers,
            stop: self.mode == Mode::Stop,
            ring_bytes: self.ring_size,
            min_bytes: self.min_size,
            max_bytes: self.max_size,
            sites: self.site.clone(),
            caches_off: self.exclude_cache.clone(),
            sample: self.sample,
        })
    }
}

/// Whether a file is one that `memledger trace record` wrote.
pub(crate) fn is_own(path: &Path) -> bool {
    let mut start = [0; 8];
    File::open(path).is_ok_and(|mut f| f.read_exact(&mut start).is_ok()) && start == *MAGIC
}

/// Such a file as a source, with the names of its sites.
pub(crate) fn source(path: &Path) -> Result<Box<dyn Source>> {
    let open = || {
        File::open(path)
            .map(|f| BufReader::with_capacity(256 << 10, f))
            .map_err(|e| Failure::Message(format!("{}: {e}", path.display())))
    };
    let mut trace = OwnTrace::new(open()?);
    trace.learn(open()?)?;
    Ok(Box::new(trace))
}
