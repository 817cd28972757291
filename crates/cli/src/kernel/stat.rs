//! `memledger kernel stat`: sums by call site or cache, from either source.

use super::args::{By, Group, Order, Stat};
use super::bpf;
use super::reader::Reader;
use super::session::{End, Session, kallsyms};
use super::trace::site;
use super::tracefs::Tracefs;
use crate::output::clean;
use crate::{Failure, Result};
use memledger_formats::kallsyms::Kallsyms;
use memledger_formats::trace::stats::{Counts, Options, Stats};
use memledger_formats::trace::{Class, Event, Item, Names, Op, SiteId, WordId};
use serde::Serialize;
use std::io::{self, Write};

/// Objects that were allocated again without an event of a free: the kernel frees some in bulk without one. Not a loss of ours.
pub(crate) const SILENT_FREES: &str = "objects were freed without an event (bulk frees have none); others like them still count as live";

/// A row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// Call site or cache.
    pub(crate) name: String,
    /// Allocations.
    pub(crate) hits: u64,
    /// Bytes asked for.
    pub(crate) requested: u64,
    /// Bytes given.
    pub(crate) given: u64,
    /// Objects that were allocated since the start and are live.
    pub(crate) live: u64,
    /// Their bytes.
    pub(crate) live_bytes: u64,
}

/// Rows, and what they do not have.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// `tracefs` or `bpf`.
    pub(crate) by: &'static str,
    /// The rows, in no order.
    pub(crate) rows: Vec<Row>,
    /// Losses: what, and how many; those of 0 too.
    pub(crate) losses: Vec<(&'static str, u64)>,
    /// Frees of what was allocated before the start, or was not selected.
    pub(crate) unknown_frees: u64,
}

/// Does it.
pub(crate) fn run(args: &Stat) -> Result<u8> {
    let tracefs = Tracefs::find()?;
    let kallsyms = kallsyms()?;
    let only_tracefs = args.group == Group::Cache || !args.filters.event.is_empty();
    let permitted = memledger_bpf::permitted();
    let report = match args.by {
        By::Bpf if only_tracefs => {
            return Err(Failure::Message(
                "--event and --group cache need --by tracefs".to_owned(),
            ));
        }
        By::Bpf => {
            permitted.map_err(|error| Failure::Message(format!("BPF: {error}")))?;
            bpf::stat(args, &tracefs, &kallsyms)?
        }
        By::Auto if !only_tracefs && permitted.is_ok() => bpf::stat(args, &tracefs, &kallsyms)?,
        By::Auto | By::Tracefs => by_tracefs(args, &tracefs, &kallsyms)?,
    };
    print(args, report)
}

fn by_tracefs(args: &Stat, tracefs: &Tracefs, kallsyms: &Kallsyms) -> Result<Report> {
    let mut end = End::new()?;
    let session = Session::new(tracefs, &args.filters, Some(kallsyms), false)?;
    let mut reader = Reader::new(tracefs, &session)?;
    let mut stats = Stats::new(Options {
        max_live: args.objects as usize,
        ..Options::default()
    });
    let mut seen = Seen::default();
    end.follow(&session, &args.span, |ended| {
        reader.round(ended, |item, names| {
            if let Item::Event(event) = &item {
                seen.event(event);
            }
            stats.add(item, names);
            Ok(())
        })
    })?;
    let lost = session.lost().max(stats.lost + stats.lost_places);
    Ok(Report {
        by: "tracefs",
        rows: rows(args.group, &stats, &seen, &reader.names, kallsyms),
        losses: vec![
            (
                "events lost in the buffers (a larger --buffer may help)",
                lost,
            ),
            ("places that could not be read", stats.bad.0),
            (
                "live objects beyond the table (a larger --objects may help)",
                stats.untracked,
            ),
        ],
        unknown_frees: stats.unknown_frees,
    })
}

fn row(name: String, counts: &Counts) -> Row {
    Row {
        name,
        hits: counts.allocs,
        requested: counts.requested,
        given: counts.given,
        live: counts.live_objects(),
        live_bytes: counts.live(),
    }
}

/// The names that rows of the sums are for.
#[derive(Debug, Default)]
struct Seen {
    sites: Vec<SiteId>,
    caches: Vec<WordId>,
}

impl Seen {
    fn event(&mut self, event: &Event) {
        if event.op == Op::Alloc {
            put(&mut self.sites, event.site.index(), event.site);
            put(&mut self.caches, event.cache.index(), event.cache);
        }
    }
}

fn put<T: Default + Copy>(list: &mut Vec<T>, at: usize, value: T) {
    if list.len() <= at {
        list.resize(at + 1, T::default());
    }
    list[at] = value;
}

fn rows(group: Group, stats: &Stats, seen: &Seen, names: &Names, kallsyms: &Kallsyms) -> Vec<Row> {
    let mut rows: Vec<Row> = if group == Group::Cache {
        let named = seen.caches.iter().filter(|cache| !cache.is_none());
        let named = named.filter_map(|cache| {
            let counts = stats.caches.get(cache.index())?;
            Some(row(names.text(*cache).to_owned(), counts))
        });
        let others = [(Class::Kmalloc, "(kmalloc)"), (Class::Pages, "(pages)")];
        let others =
            others.map(|(class, name)| row(name.to_owned(), &stats.classes[class as usize]));
        named.chain(others).collect()
    } else {
        let sites = seen.sites.iter().enumerate();
        // Places between are not of a name that was seen.
        let sites = sites.filter(|(place, id)| *place == id.index());
        let rows = sites.filter_map(|(_, id)| {
            let counts = stats.sites.get(id.index())?;
            Some(row(site(kallsyms, names, names.get_site(*id)), counts))
        });
        rows.collect()
    };
    rows.retain(|row| row.hits > 0);
    rows
}

fn print(args: &Stat, mut report: Report) -> Result<u8> {
    let key = |row: &Row| match args.sort {
        Order::Hits => row.hits,
        Order::Bytes => row.given,
        Order::Live => row.live_bytes,
        Order::Waste => row.given.saturating_sub(row.requested),
    };
    report
        .rows
        .sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
    let all = report.rows.len();
    if args.top > 0 {
        report.rows.truncate(args.top);
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        writeln!(
            out,
            "{:>10} {:>14} {:>14} {:>9} {:>12}  {}",
            "hits",
            "requested",
            "given",
            "live",
            "live bytes",
            if args.group == Group::Cache {
                "cache"
            } else {
                "call site"
            }
        )?;
        for row in &report.rows {
            writeln!(
                out,
                "{:>10} {:>14} {:>14} {:>9} {:>12}  {}",
                row.hits,
                row.requested,
                row.given,
                row.live,
                row.live_bytes,
                clean(&row.name)
            )?;
        }
        writeln!(
            out,
            "{} of {all} rows, by {}; {} frees of what was not seen allocated",
            report.rows.len(),
            report.by,
            report.unknown_frees
        )?;
    }
    out.flush()?;
    let mut code = 0;
    for (what, number) in report.losses.iter().filter(|(_, number)| *number > 0) {
        eprintln!("memledger: {number} {what}");
        code |= u8::from(*what != SILENT_FREES);
    }
    Ok(code)
}
