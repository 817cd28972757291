//! Views of a trace as tables and as JSON.

use super::Read;
use super::args::{Report, View};
use super::rows::{self, Row};
use crate::output::clean;
use memledger_formats::size::iec;
use memledger_formats::trace::Unit;
use memledger_formats::trace::stats::{Counts, Histogram, Stats};
use serde_json::{Value, json};
use std::io::{self, Write};

fn bytes(n: u64) -> String {
    iec(i64::try_from(n).unwrap_or(i64::MAX))
}

/// A difference of times.
fn time(ticks: u64, unit: Unit) -> String {
    match unit {
        Unit::Ticks => format!("{ticks} ticks"),
        Unit::Nanoseconds if ticks < 1000 => format!("{ticks} ns"),
        Unit::Nanoseconds if ticks < 1_000_000 => format!("{} us", ticks / 1000),
        Unit::Nanoseconds if ticks < 1_000_000_000 => format!("{:.1} ms", ticks as f64 / 1e6),
        Unit::Nanoseconds => format!("{:.3} s", ticks as f64 / 1e9),
    }
}

fn head(out: &mut impl Write, title: &str) -> io::Result<()> {
    writeln!(
        out,
        "{:>9} {:>10} {:>10} {:>10} {:>10} {:>8} {:>7}  {title}",
        "hits", "requested", "given", "waste", "live", "objects", "x-cpu"
    )
}

fn line(out: &mut impl Write, name: &str, c: &Counts) -> io::Result<()> {
    writeln!(
        out,
        "{:>9} {:>10} {:>10} {:>10} {:>10} {:>8} {:>7}  {}",
        c.allocs,
        bytes(c.requested),
        bytes(c.given),
        bytes(c.waste()),
        bytes(c.live()),
        c.live_objects(),
        c.cross_cpu,
        clean(name)
    )
}

const CLASSES: [&str; 3] = ["kmalloc", "caches", "pages"];
const BEHIND: [&str; 2] = ["  of these, behind slabs", "  of these, behind kmalloc"];

fn totals(out: &mut impl Write, read: &Read) -> io::Result<()> {
    let s = &read.stats;
    head(out, "allocator")?;
    for (name, counts) in CLASSES.iter().zip(&s.classes) {
        line(out, name, counts)?;
    }
    for (name, counts) in BEHIND.iter().zip(&s.behind) {
        line(out, name, counts)?;
    }
    line(out, "together, without pages behind objects", &s.together())?;
    let span = s.span.map_or(0, |(a, b)| b - a);
    let others: u64 = s.others.values().sum();
    writeln!(
        out,
        "{} allocations and frees in {}; {others} other events; {} frees of what was not seen allocated, {} of nothing; {} failed",
        s.events,
        time(span, read.unit),
        s.unknown_frees,
        s.null_frees,
        s.failed
    )?;
    if s.no_ptr > 0 {
        writeln!(
            out,
            "{} events do not tell their pointer: frees cannot be matched, and live bytes are too many",
            s.no_ptr
        )?;
    }
    Ok(())
}

/// Prints a view.
pub(super) fn view(out: &mut impl Write, read: &Read, args: &Report, view: View) -> io::Result<()> {
    let top = if args.top == 0 { usize::MAX } else { args.top };
    match view {
        View::Totals => totals(out, read)?,
        View::Live => live(out, read, top)?,
        View::Leaks => leaks(out, read, top)?,
        View::Sizes => histogram(out, "size requested", &read.stats.sizes, bytes)?,
        View::Lifetimes => histogram(out, "lifetime", &read.stats.lifetimes, |n| {
            time(n, read.unit)
        })?,
        View::Timeline => timeline(out, read)?,
        View::Others => {
            let mut all: Vec<_> = read
                .stats
                .others
                .iter()
                .map(|(w, n)| (*n, read.labels().word(*w)))
                .collect();
            all.sort_by(|a, b| b.cmp(a));
            for (n, name) in all.iter().take(top) {
                writeln!(out, "{n:>9}  {}", clean(name))?;
            }
        }
        table => {
            let mut rows = rows::rows(table, &read.stats, read.labels());
            rows::sort(&mut rows, args.sort);
            head(out, &format!("{table:?}").to_lowercase())?;
            for row in rows.iter().take(top) {
                line(out, &row.name, &row.counts)?;
            }
            if rows.len() > top {
                writeln!(out, "{:>9} {} more", "", rows.len() - top)?;
            }
        }
    }
    writeln!(out)
}

/// Live objects, oldest first.
fn oldest(read: &Read) -> Vec<(u64, memledger_formats::trace::stats::Live)> {
    let end = read.stats.span.map_or(0, |s| s.1);
    let mut all: Vec<_> = read
        .stats
        .live
        .values()
        .map(|l| (end.saturating_sub(l.time), *l))
        .collect();
    let key = |(age, l): &(u64, memledger_formats::trace::stats::Live)| {
        (
            std::cmp::Reverse(*age),
            std::cmp::Reverse(l.given),
            read.labels().site(l.site),
            l.cpu,
            l.pid,
        )
    };
    all.sort_by_cached_key(key);
    all
}

fn live(out: &mut impl Write, read: &Read, top: usize) -> io::Result<()> {
    writeln!(
        out,
        "{:>12} {:>10} {:>4}  {:<8} {:<24} site",
        "age", "bytes", "cpu", "type", "task"
    )?;
    for (age, l) in oldest(read).iter().take(top) {
        let task = format!("{}-{}", clean(&read.labels().word(l.comm)), l.pid);
        writeln!(
            out,
            "{:>12} {:>10} {:>4}  {:<8} {task:<24} {}",
            time(*age, read.unit),
            bytes(l.given),
            l.cpu,
            l.class.name(),
            clean(&read.labels().site(l.site))
        )?;
    }
    Ok(())
}

fn leaks(out: &mut impl Write, read: &Read, top: usize) -> io::Result<()> {
    writeln!(
        out,
        "{:>10} {:>9} {:>10} {:>12}  leak candidates",
        "confidence", "objects", "bytes", "oldest"
    )?;
    for leak in rows::leaks(&read.stats, read.labels()).iter().take(top) {
        writeln!(
            out,
            "{:>9.1}% {:>9} {:>10} {:>12}  {}",
            leak.confidence * 100.0,
            leak.objects,
            bytes(leak.bytes),
            time(leak.oldest, read.unit),
            clean(&leak.site)
        )?;
    }
    Ok(())
}

fn histogram(
    out: &mut impl Write,
    title: &str,
    values: &Histogram,
    label: impl Fn(u64) -> String,
) -> io::Result<()> {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    writeln!(out, "{:>12} {:>9}  {title}", "below", "number")?;
    for (bits, n) in values.iter().enumerate().filter(|(_, n)| **n > 0) {
        let below = 1_u64.checked_shl(bits as u32).unwrap_or(u64::MAX);
        let bar = "#".repeat((*n as f64 / most as f64 * 50.0).ceil() as usize);
        writeln!(out, "{:>12} {n:>9}  {bar}", label(below))?;
    }
    Ok(())
}

fn timeline(out: &mut impl Write, read: &Read) -> io::Result<()> {
    let line = &read.stats.timeline;
    writeln!(
        out,
        "{:>12} {:>9} {:>9} {:>12}  (live: since the trace began)",
        "from", "allocs", "frees", "live"
    )?;
    let mut live = 0_i128;
    for (i, slice) in line.slices.iter().enumerate() {
        live += slice.change;
        let from = time(line.width.saturating_mul(i as u64), read.unit);
        writeln!(
            out,
            "{from:>12} {:>9} {:>9} {:>12}",
            slice.allocs,
            slice.frees,
            iec(i64::try_from(live).unwrap_or(i64::MAX))
        )?;
    }
    Ok(())
}

/// What was lost, if anything was.
pub(super) fn losses(err: &mut impl Write, s: &Stats) -> io::Result<()> {
    if s.lost > 0 || s.lost_places > 0 {
        let mut cpus: Vec<_> = s.lost_cpus.iter().collect();
        cpus.sort();
        let cpus: Vec<String> = cpus
            .iter()
            .map(|(c, n)| {
                c.map_or_else(|| format!("{n} on any CPU"), |c| format!("{n} on CPU {c}"))
            })
            .collect();
        writeln!(
            err,
            "lost: {} events, and an unknown number at {} places ({}): live objects may be freed ones",
            s.lost,
            s.lost_places,
            cpus.join(", ")
        )?;
    }
    if s.untracked > 0 {
        writeln!(
            err,
            "lost: {} allocations were not followed, as more objects were live than --max-live",
            s.untracked
        )?;
    }
    if s.bad.0 > 0 {
        writeln!(err, "could not read {} places:", s.bad.0)?;
        for bad in &s.bad.1 {
            writeln!(err, "  at {}: {}", bad.at, clean(&bad.what))?;
        }
    }
    Ok(())
}

fn counts_json(c: &Counts) -> Value {
    json!({"hits": c.allocs, "requested": c.requested, "given": c.given, "waste": c.waste(), "frees": c.frees, "freed": c.freed, "live": c.live(), "live_objects": c.live_objects(), "cross_cpu_frees": c.cross_cpu})
}

fn row_json(row: &Row) -> Value {
    let mut value = counts_json(&row.counts);
    value["name"] = json!(row.name);
    value
}

fn lost_json(s: &Stats) -> Value {
    json!({"events": s.lost, "places_of_unknown_number": s.lost_places, "untracked": s.untracked, "unreadable": s.bad.0})
}

/// All views as one value.
pub(super) fn json(read: &Read, args: &Report, views: &[View]) -> Value {
    let s = &read.stats;
    let top = if args.top == 0 { usize::MAX } else { args.top };
    let mut all = json!({"events": s.events, "unknown_frees": s.unknown_frees, "null_frees": s.null_frees, "failed": s.failed, "without_pointer": s.no_ptr, "hashed_pointers": read.hashed, "lost": lost_json(s), "confidence": s.confidence()});
    for view in views {
        let value = match view {
            View::Totals => json!({"kmalloc": counts_json(&s.classes[0]), "caches": counts_json(&s.classes[1]), "pages": counts_json(&s.classes[2]), "behind_slabs": counts_json(&s.behind[0]), "behind_kmalloc": counts_json(&s.behind[1]), "together": counts_json(&s.together())}),
            View::Live => oldest(read).iter().take(top).map(|(age, l)| json!({"age": age, "bytes": l.given, "type": l.class.name(), "cpu": l.cpu, "pid": l.pid, "comm": read.labels().word(l.comm), "site": read.labels().site(l.site)})).collect(),
            View::Leaks => rows::leaks(s, read.labels()).iter().take(top).map(|l| json!({"site": l.site, "objects": l.objects, "bytes": l.bytes, "oldest": l.oldest, "confidence": l.confidence})).collect(),
            View::Sizes => json!(s.sizes.to_vec()),
            View::Lifetimes => json!(s.lifetimes.to_vec()),
            View::Timeline => json!({"width": s.timeline.width, "slices": s.timeline.slices.iter().map(|x| json!({"allocs": x.allocs, "frees": x.frees, "change": x.change as i64})).collect::<Vec<_>>()}),
            View::Others => s.others.iter().map(|(w, n)| (read.labels().word(*w), json!(n))).collect::<serde_json::Map<_, _>>().into(),
            table => {
                let mut rows = rows::rows(*table, s, read.labels());
                rows::sort(&mut rows, args.sort);
                rows.iter().take(top).map(row_json).collect()
            }
        };
        all[format!("{view:?}").to_lowercase()] = value;
    }
    all
}

/// Prints what contradicts itself.
pub(super) fn check(out: &mut impl Write, read: &Read) -> io::Result<()> {
    let mut kinds: Vec<_> = read.stats.problems.iter().collect();
    kinds.sort_by_key(|(kind, _)| **kind);
    for (kind, (count, examples)) in kinds {
        writeln!(out, "{count} {}", kind.text())?;
        for p in examples {
            let e = &p.event;
            let before = p.before.map_or_else(String::new, |b| {
                format!(
                    ", {} after the event before",
                    time(e.time.saturating_sub(b), read.unit)
                )
            });
            writeln!(
                out,
                "  at {}: {} {:#x}, {} bytes, by {}-{} on CPU {}, {}{before}",
                e.time,
                e.class.name(),
                e.ptr,
                e.given,
                clean(&read.labels().word(e.comm)),
                e.pid,
                e.cpu,
                clean(&read.labels().site(e.site))
            )?;
        }
    }
    if read.hashed {
        writeln!(
            out,
            "pointers are hashes: overlaps cannot be seen, and two pointers may have one hash"
        )?;
    }
    writeln!(
        out,
        "{} events checked; confidence {:.1}%",
        read.stats.events,
        read.stats.confidence() * 100.0
    )
}

/// The same as JSON.
pub(super) fn check_json(read: &Read) -> Value {
    let problems: serde_json::Map<String, Value> = read
        .stats
        .problems
        .iter()
        .map(|(kind, (n, _))| (kind.text().to_owned(), json!(n)))
        .collect();
    json!({"events": read.stats.events, "problems": problems, "lost": lost_json(&read.stats), "confidence": read.stats.confidence()})
}
