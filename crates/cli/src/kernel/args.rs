//! What can be typed after `memledger kernel`.

use super::session::EVENTS;
use super::tracefs::Tracefs;
use crate::{Failure, Result};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use memledger_formats::kallsyms::Kallsyms;
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "\
Examples:
  sudo memledger kernel stat -- find / -xdev -newer /etc/passwd
  sudo memledger kernel stat --by bpf --seconds 60 --sort live --top 30
  sudo memledger kernel trace --event kmalloc --min-size 8192 --seconds 5
  sudo memledger kernel trace --site alloc_inode -p 1234
  sudo memledger kernel check                     what this machine permits
  sudo memledger kernel record -o trace.dat --stacks -- make
";

const NOTES: &str = "\
All need root, and tracefs: mount -t tracefs nodev /sys/kernel/tracing. They end with the command, after --seconds, or at ^C.

tracefs: an instance of its own is used, so that other users of tracing are not disturbed; it is removed at the end, \
however that comes. Events that did not fit into the buffers are counted and shown.
bpf: the kernel itself adds up by call site, and keeps a table of live objects. Losses of both tables are shown.

--pid follows threads and children with tracefs, and is the process alone with bpf. With tracefs it selects frees too, so \
that objects freed by others count as live.

Exit codes:
  0  done
  1  done, but events were lost; stderr says how many
  2  wrong usage or failure";

/// `memledger kernel`.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{NOTES}"))]
pub(crate) struct Kernel {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print allocations and frees of the kernel as they come
    Trace(Trace),
    /// Add up allocations of the kernel by call site
    Stat(Stat),
    /// Record them to a file in the form of trace.dat
    Record(Record),
    /// Say what this machine has for that, what not, and why
    Check,
}

/// `memledger kernel trace`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Trace {
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) span: Span,
}

/// `memledger kernel stat`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Stat {
    /// How to count (auto: bpf, if the kernel permits it and nothing is asked for that only tracefs has)
    #[arg(long, value_enum, default_value_t = By::Auto, value_name = "HOW")]
    pub(crate) by: By,
    /// What rows are for
    #[arg(long, value_enum, default_value_t = Group::Site, value_name = "WHAT")]
    pub(crate) group: Group,
    /// Order of the rows, largest first
    #[arg(long, value_enum, default_value_t = Order::Hits, value_name = "KEY")]
    pub(crate) sort: Order,
    /// Rows to show; 0 = all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) top: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Objects that fit into the table of live ones (about 80 bytes of kernel memory each with bpf)
    #[arg(long, value_name = "N", default_value_t = 1 << 18, value_parser = clap::value_parser!(u32).range(1..=1 << 26))]
    pub(crate) objects: u32,
    /// Call sites that fit into the table (bpf)
    #[arg(long, value_name = "N", default_value_t = 1 << 14, value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub(crate) sites: u32,
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) span: Span,
}

/// `memledger kernel record`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Record {
    /// The file to write
    #[arg(long, short, value_name = "FILE", default_value = "trace.dat")]
    pub(crate) output: PathBuf,
    /// Record the call stack of each event
    #[arg(long)]
    pub(crate) stacks: bool,
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Auto,
    Tracefs,
    Bpf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Call sites
    Site,
    /// Slab caches (tracefs only; kmalloc and pages are one row each)
    Cache,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    Hits,
    Bytes,
    Live,
    Waste,
}

/// When to end.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Span {
    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,
    /// Run a command, and end with it
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..1e9).contains(&s) => Ok(s),
        _ => Err("expected a number of seconds".to_owned()),
    }
}

/// Which events.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct Filters {
    /// Only this event of the kmem group, as in kmalloc; may be repeated (default: allocations and frees of slabs and pages)
    #[arg(long, value_name = "NAME")]
    pub(crate) event: Vec<String>,
    /// Only allocations of at least so many bytes given
    #[arg(long, value_name = "BYTES")]
    pub(crate) min_size: Option<u64>,
    /// Only allocations of at most so many bytes given
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_size: Option<u64>,
    /// Only allocations called for by this function of the kernel; may be repeated
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) site: Vec<String>,
    /// Only those by this process
    #[arg(long, short, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Buffer of each processor (tracefs)
    #[arg(long, value_name = "KIB", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(8..=1 << 22))]
    pub(crate) buffer: u64,
}

impl Filters {
    /// The events to switch on, of those that the kernel has.
    pub(crate) fn events(&self, tracefs: &Tracefs) -> Result<Vec<String>> {
        if let Some(missing) = self
            .event
            .iter()
            .find(|e| e.contains('/') || !tracefs.has(e))
        {
            return Err(Failure::Message(format!(
                "this kernel has no event kmem:{missing}"
            )));
        }
        if !self.event.is_empty() {
            let mut events = self.event.clone();
            events.sort();
            events.dedup();
            return Ok(events);
        }
        let known = EVENTS.iter().filter(|event| tracefs.has(event));
        Ok(known.map(|event| (*event).to_owned()).collect())
    }

    /// Address ranges of `--site`.
    pub(crate) fn ranges(&self, kallsyms: Option<&Kallsyms>) -> Result<Vec<(u64, u64)>> {
        let mut all = Vec::new();
        for name in &self.site {
            let ranges = kallsyms.map_or_else(Vec::new, |kallsyms| kallsyms.ranges(name));
            if ranges.is_empty() {
                return Err(Failure::Message(format!(
                    "the kernel has no function {name}"
                )));
            }
            all.extend(ranges);
        }
        Ok(all)
    }

    /// The kernel's filter for an event. Sizes and call sites are of allocations; frees have no size, and are all seen.
    pub(crate) fn expression(
        &self,
        event: &str,
        kallsyms: Option<&Kallsyms>,
    ) -> Result<Option<String>> {
        if !matches!(event, "kmalloc" | "kmem_cache_alloc" | "mm_page_alloc") {
            return Ok(None);
        }
        let mut terms = Vec::new();
        let page = event == "mm_page_alloc";
        if page && (self.min_size.is_some() || self.max_size.is_some()) {
            let orders = (0..=20u32).filter(|order| {
                let bytes = 4096u64 << order;
                self.min_size.is_none_or(|min| bytes >= min)
                    && self.max_size.is_none_or(|max| bytes <= max)
            });
            let orders: Vec<_> = orders.map(|order| format!("order == {order}")).collect();
            // An order that does not occur, if no size fits.
            terms.push(if orders.is_empty() {
                "order == 99".to_owned()
            } else {
                format!("({})", orders.join(" || "))
            });
        }
        if !page {
            terms.extend(self.min_size.map(|min| format!("bytes_alloc >= {min}")));
            terms.extend(self.max_size.map(|max| format!("bytes_alloc <= {max}")));
        }
        if !self.site.is_empty() {
            let ranges = self.ranges(kallsyms)?.into_iter();
            let sites: Vec<_> = ranges
                .map(|(low, high)| format!("(call_site >= {low:#x} && call_site < {high:#x})"))
                .collect();
            // Page events have no call site: none of them is selected.
            terms.push(if page {
                "order == 99".to_owned()
            } else {
                format!("({})", sites.join(" || "))
            });
        }
        Ok((!terms.is_empty()).then(|| terms.join(" && ")))
    }
}
