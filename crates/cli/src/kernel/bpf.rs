//! Sums by BPF programs: where the fields are comes from the kernel's descriptions.

use super::args::Stat;
use super::session::End;
use super::stat::{Report, Row};
use super::tracefs::Tracefs;
use crate::{Failure, Result};
use memledger_bpf::{AllocLayout, FreeLayout, Kind, Select, Snapshot, Tracepoint, Tracker};
use memledger_formats::kallsyms::Kallsyms;
use memledger_formats::trace::ring::EventFormat;
use std::time::Duration;

/// Counts as asked for.
pub(crate) fn stat(args: &Stat, tracefs: &Tracefs, kallsyms: &Kallsyms) -> Result<Report> {
    let mut end = End::new()?;
    let select = Select {
        pid: args.filters.pid,
        min: args.filters.min_size,
        max: args.filters.max_size,
        sites: args.filters.ranges(Some(kallsyms))?,
    };
    let points = tracepoints(tracefs)?;
    let mut tracker = Tracker::start(&points, &select, args.sites, args.objects)
        .map_err(|error| Failure::Message(format!("BPF: {error}")))?;
    end.start(&args.span)?;
    while !end.wait(Duration::from_millis(50))? {}
    tracker.stop();
    Ok(report(&tracker.read()?, kallsyms))
}

/// The tracepoints of slab memory, with the layouts that the kernel tells.
pub(crate) fn tracepoints(tracefs: &Tracefs) -> Result<Vec<Tracepoint>> {
    let mut all = Vec::new();
    for (name, kind) in [
        ("kmalloc", Kind::Kmalloc),
        ("kmem_cache_alloc", Kind::Cache),
        ("kmalloc_node", Kind::Kmalloc),
        ("kmem_cache_alloc_node", Kind::Cache),
    ] {
        // The last two are of kernels before 6.1.
        if name.ends_with("_node") && !tracefs.has(name) {
            continue;
        }
        let format = tracefs.format(name)?;
        let layout = AllocLayout {
            call_site: offset(&format, "call_site")?,
            ptr: offset(&format, "ptr")?,
            requested: offset(&format, "bytes_req")?,
            given: offset(&format, "bytes_alloc")?,
        };
        let id = u32::from(format.id);
        all.push(Tracepoint::Alloc { id, kind, layout });
    }
    for name in ["kfree", "kmem_cache_free"] {
        let format = tracefs.format(name)?;
        let ptr = offset(&format, "ptr")?;
        let id = u32::from(format.id);
        let layout = FreeLayout { ptr };
        all.push(Tracepoint::Free { id, layout });
    }
    Ok(all)
}

fn offset(format: &EventFormat, name: &str) -> Result<i16> {
    let field = format.field(name).filter(|field| field.size == 8);
    field
        .and_then(|field| i16::try_from(field.offset).ok())
        .ok_or_else(|| {
            Failure::Message(format!("event {}: no field {name} of 8 bytes", format.name))
        })
}

fn report(snapshot: &Snapshot, kallsyms: &Kallsyms) -> Report {
    let rows = snapshot.sites.iter().map(|site| Row {
        name: kallsyms.name(site.address),
        hits: site.hits,
        requested: site.requested,
        given: site.given,
        live: site.live,
        live_bytes: site.live_bytes,
    });
    let counts = snapshot.counts;
    Report {
        by: "bpf",
        rows: rows.collect(),
        losses: vec![
            (
                "events without a run of the program",
                counts.missed.unwrap_or(0),
            ),
            (
                "allocations by call sites beyond the table",
                counts.sites_full,
            ),
            (
                "live objects beyond the table (a larger --objects may help)",
                counts.objects_full,
            ),
            (super::stat::SILENT_FREES, counts.stale),
        ],
        unknown_frees: counts.unknown_frees,
    }
}
