//! What can be typed after `memledger trace`.

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  memledger trace report trace.txt
  memledger trace report --by cache --by migrate per_cpu/cpu*/trace_pipe_raw --events /sys/kernel/tracing/events
  memledger trace report trace.txt --flame live.svg --weight live
  memledger trace check trace.txt
";

const NOTES: &str = "\
Files: what tracefs prints in trace or trace_pipe, under any option; raw pages of per_cpu/cpuN/trace_pipe_raw (a name with \
trace_pipe_raw in it, or --raw), all processors of one run together; trace.dat of trace-cmd (versions 6 and 7); perf.data. Files may be packed with xz. Raw pages need the \
descriptions in events/ (--events; default: events beside the file) and, for names, kallsyms and saved_cmdlines, which are \
looked for beside the file too.

Pages and objects: a slab is pages and a large kmalloc is pages, and the kernel traces both. The line \"together\" leaves \
pages behind objects out.

Leak candidates are objects that are older than any object of their site that was freed. The confidence is the share of \
events that were not lost, halved if an unknown number was lost, and halved for sites of which nothing was ever freed.

Exit codes:
  0  done
  1  done, but events were lost or could not be read; trace check: or something was found
  2  wrong usage or failure";

/// `memledger trace`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Trace {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what the allocations in a trace add up to
    Report(Report),
    /// Look for events that contradict each other
    Check(Check),
    #[command(flatten)]
    Tracer(crate::tracer::Command),
}

/// Which traces.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Input {
    /// Traces of one run
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Descriptions of events, as in tracefs, for raw pages
    #[arg(long, value_name = "DIR")]
    pub(crate) events: Option<PathBuf>,
    /// Symbols of the kernel
    #[arg(long, value_name = "FILE")]
    pub(crate) kallsyms: Option<PathBuf>,
    /// Names of tasks, as in saved_cmdlines
    #[arg(long, value_name = "FILE")]
    pub(crate) comms: Option<PathBuf>,
    /// The files are raw pages of the ring buffer, of processors 0, 1, ... where their names do not tell
    #[arg(long)]
    pub(crate) raw: bool,
    /// Size of a page of the traced machine, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    pub(crate) page_size: u64,
    /// Most live objects that are followed; an object takes about 150 bytes
    #[arg(long, value_name = "N", default_value_t = 4 << 20)]
    pub(crate) max_live: usize,
}

/// `memledger trace report`.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{NOTES}"))]
pub(crate) struct Report {
    #[command(flatten)]
    pub(crate) input: Input,
    /// What to show (default: totals, site, leaks)
    #[arg(long, value_enum, value_name = "VIEW")]
    pub(crate) by: Vec<View>,
    /// Rows of each view; 0 = all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
    /// Order of the rows
    #[arg(long, short, value_enum, default_value_t = Sort::Given, value_name = "KEY")]
    pub(crate) sort: Sort,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["flame", "folded"])]
    pub(crate) json: bool,
    /// Write a flame graph to FILE (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) flame: Option<PathBuf>,
    /// Write folded stacks to FILE, as flame graph programs read them; - = stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<PathBuf>,
    /// What the width of a frame is
    #[arg(long, value_enum, default_value_t = Weight::Live, value_name = "WHAT")]
    pub(crate) weight: Weight,
}

/// `memledger trace check`.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = NOTES)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) input: Input,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Sums, by allocator and together
    Totals,
    /// By call site
    Site,
    /// By cache
    Cache,
    /// By task
    Task,
    /// By flags of the request
    Flags,
    /// By migrate type of pages
    Migrate,
    /// The live objects, oldest first
    Live,
    /// Leak candidates
    Leaks,
    /// Histogram of the sizes asked for
    Sizes,
    /// Histogram of lifetimes
    Lifetimes,
    /// Live bytes over time
    Timeline,
    /// Other events
    Others,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Bytes given
    Given,
    /// Number of allocations
    Hits,
    /// Bytes given beyond those asked for
    Waste,
    /// Live bytes
    Live,
    /// Frees on another processor
    Cross,
}

/// A weight of stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Weight {
    /// Live bytes
    Live,
    /// Bytes allocated
    Allocated,
    /// Number of allocations
    Hits,
}
