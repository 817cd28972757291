//! `memledger page-owner` and `memledger rss`: who holds pages, and what resident memory is for.

mod dump;
mod input;
mod pinned;
pub(crate) mod rss;
mod sort;

use crate::Result;
use crate::args::{Colour, Symbols};
use clap::{Args as ClapArgs, Subcommand};
use memledger_inspect::Residency;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  memledger page-owner pinned -p 1234         which lines keep half-empty pages from going back to the system
  memledger page-owner sort -m dump.txt -     pages of a kernel's dump, by stack and task, the most memory first
  memledger page-owner pagetypeinfo -p 1234   how its free memory is cut up, in the kernel's text
";

/// `memledger page-owner`.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PageOwner {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Group and sort the pages of a kernel's page_owner dump
    Sort(Box<sort::Sort>),
    /// Rank lines by the free memory that their few live objects keep from going back
    Pinned(Pinned),
    /// Each block of pages with who took it, as /sys/kernel/debug/page_owner
    Dump(Dump),
    /// Stacks with their pages, as show_stacks
    Stacks(Stacks),
    /// Handles of stacks with their pages, as show_handles
    Handles(Stacks),
    /// All stacks with their handles, as show_stacks_handles
    StacksHandles(Pid),
    /// Free runs of a process by order, as /proc/buddyinfo
    Buddyinfo(Pid),
    /// The same by migrate type, and blocks by type, as /proc/pagetypeinfo
    Pagetypeinfo(Pid),
}

/// A process.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct Pid {
    /// The process
    #[arg(long, short, value_name = "PID")]
    pid: u32,
}

const DUMP_NOTES: &str = "\
The process must have been started with MEMLEDGER=page_owner=on. A run of pages is shown in blocks of 2^order pages, as the \
kernel counts them; PFN is the virtual address divided by 4096. Runs taken before the page owner was ready are early: \
register_early_stack, no flags, time 0. What was taken by a signal handler inside the allocator has register_dummy_stack, \
what has no stack register_failure_stack; a line on stderr counts them.";

/// `memledger page-owner dump`.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = DUMP_NOTES)]
pub(crate) struct Dump {
    #[command(flatten)]
    process: Pid,
    /// What to print of stacks: mode=stack, mode=handle or mode=stack_handle; nid=LIST for nodes (all is on node 0)
    #[arg(long, short, value_name = "WORD", value_parser = dump::filter)]
    filter: Vec<dump::Filter>,
    /// Start at this page frame number (0x for hexadecimal)
    #[arg(long, value_name = "PFN", value_parser = dump::number, default_value = "0")]
    seek: u64,
    /// Show who gave the pages back before, too
    #[arg(long)]
    last_free: bool,
}

/// `memledger page-owner stacks` and `handles`.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct Stacks {
    #[command(flatten)]
    process: Pid,
    /// Leave out stacks with fewer pages (0x for hexadecimal)
    #[arg(long, value_name = "N", value_parser = dump::number, default_value = "0")]
    count_threshold: u64,
}

const PINNED_NOTES: &str = "\
HELD is resident free memory in slabs that still hold an object: the slab cannot go back before its last object goes. A \
slab's free bytes are shared out over its objects, so that HELD adds up to the line \"free slots, pinned\" of memledger rss. \
ALONE is the part in slabs where no other stack has an object. FULL is how much of the slots of the slabs is live, whosever \
it is. Not shown: since when, which cells do not say.";

/// `memledger page-owner pinned`.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = PINNED_NOTES)]
pub(crate) struct Pinned {
    #[command(flatten)]
    process: Pid,
    /// Rows to show; 0 = all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    top: usize,
    /// Show the addresses of some of the objects, and the stack
    #[arg(long)]
    objects: bool,
    /// Exact numbers instead of KiB, MiB, ...
    #[arg(long)]
    bytes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    symbols: Symbols,
}

const RSS_NOTES: &str = "\
The lines add up to the resident set size as /proc/PID/smaps has it. Nothing is stopped: what changed between the readings \
is a line of its own. VmRSS of /proc/PID/status is shown beside it; the kernel lets its counters lag.

Exit codes:
  0  done
  1  done, but some memory was changing all the time and could not be told apart
  2  wrong usage or failure";

/// `memledger rss`.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = RSS_NOTES)]
pub(crate) struct Rss {
    #[command(flatten)]
    process: Pid,
    /// Lines of code to show below pinned memory; 0 = all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 5)]
    top: usize,
    /// Exact numbers instead of KiB, MiB, ...
    #[arg(long)]
    bytes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    symbols: Symbols,
}

/// Arguments of a program that is called `page_owner_sort`: those of `memledger page-owner sort`.
pub(crate) fn multi_call(args: Vec<OsString>) -> Vec<OsString> {
    let name = args.first().map(Path::new).and_then(Path::file_name);
    if name != Some("page_owner_sort".as_ref()) {
        return args;
    }
    let words = ["memledger", "page-owner", "sort"].map(OsString::from);
    words.into_iter().chain(args.into_iter().skip(1)).collect()
}

/// Does what was asked for.
pub(crate) fn run(args: &PageOwner, colour: Colour) -> Result<u8> {
    match &args.command {
        Command::Sort(sort) => sort::run(sort),
        Command::Pinned(pinned) => pinned::run(pinned, colour),
        Command::Dump(args) => dump::run(args),
        Command::Stacks(s) => dump::stacks(s.process.pid, true, false, s.count_threshold),
        Command::Handles(s) => dump::stacks(s.process.pid, false, true, s.count_threshold),
        Command::StacksHandles(p) => dump::stacks(p.pid, true, true, 0),
        Command::Buddyinfo(p) => text(p.pid, |r| r.blocks.buddyinfo()),
        Command::Pagetypeinfo(p) => text(p.pid, |r| r.blocks.pagetypeinfo()),
    }
}

fn text(pid: u32, print: impl Fn(&Residency) -> String) -> Result<u8> {
    let residency = crate::output::Resolver::new(&Symbols {
        no_guess: true,
        ..Symbols::default()
    })?
    .residency(pid)?;
    let mut out = io::stdout().lock();
    out.write_all(print(&residency).as_bytes())?;
    out.flush()?;
    Ok(u8::from(residency.arena.torn > 0))
}

/// Where a row's code is, in one line.
fn place(pin: &memledger_inspect::Pin) -> String {
    let row = &pin.row;
    let line = match row.line {
        0 => row.file.clone(),
        n => format!("{}:{n}", row.file),
    };
    let module = row
        .module
        .as_ref()
        .map_or(String::new(), |m| format!(" [{m}]"));
    crate::output::clean(&format!("{} {line}{module}", row.func))
}

fn pin_json(pin: &memledger_inspect::Pin) -> serde_json::Value {
    let row = &pin.row;
    serde_json::json!({
        "func": row.func, "file": row.file, "line": row.line, "module": row.module,
        "held": pin.held, "alone": pin.alone, "objects": pin.objects, "live": pin.live,
        "slabs": pin.slabs, "slab_live": pin.slab_live, "slab_bytes": pin.slab_bytes,
        "samples": pin.samples.iter().map(|a| format!("{a:#x}")).collect::<Vec<_>>(),
        "since": null,
    })
}
