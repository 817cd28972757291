//! `memledger trace stat`.

use super::Stat;
use super::record::{StopSignals, describe};
use crate::Result;
use crate::output::Resolver;
use memledger_abi::trace::{CACHE_EARLY, CACHE_LARGE};
use memledger_inspect::trace::{Clock, Sums, Tracing};
use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

/// Traces for a while, unless the tracer is left as it is, and prints the sums.
pub(crate) fn run(stat: &Stat) -> Result<u8> {
    let what = &stat.what;
    let options = what.options(true)?;
    let mut tracing = Tracing::open(what.pid)?;
    let stop = StopSignals::block()?;
    let clock = Clock::measure(Duration::from_millis(30));
    if !what.already {
        tracing.configure(&options)?;
        tracing.set(true)?;
    }
    let end = what
        .seconds
        .map(|s| Instant::now() + Duration::from_secs_f64(s.max(0.0)));
    let wait = !what.already || what.seconds.is_some();
    while wait && end.is_none_or(|e| Instant::now() < e) && !stop.came() && tracing.on().is_some() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let gone = tracing.on().is_none();
    if !what.already && !gone {
        tracing.set(false)?;
    }
    let sums = tracing.sums();
    let now = memledger_inspect::trace::now();
    let mut resolver = Resolver::new(&stat.symbols)?;
    let mut out = BufWriter::new(io::stdout().lock());
    sites(&mut out, stat, &tracing, &mut resolver, &sums)?;
    caches(&mut out, &sums)?;
    histogram(&mut out, "sizes asked for, in bytes", &sums.sizes, |n| n)?;
    let nanos = |ticks| clock.duration(ticks);
    histogram(
        &mut out,
        "lifetimes, in nanoseconds",
        &sums.lifetimes,
        nanos,
    )?;
    objects(&mut out, &sums, &clock, now)?;
    let lost = losses(&mut out, &sums)?;
    out.flush()?;
    if gone {
        eprintln!("memledger: the process has gone");
    }
    Ok(u8::from(lost || gone))
}

fn sites(
    out: &mut dyn Write,
    stat: &Stat,
    tracing: &Tracing,
    resolver: &mut Resolver,
    sums: &Sums,
) -> io::Result<()> {
    let mut rows: Vec<_> = sums.sites.iter().collect();
    let live = |s: &memledger_abi::trace::SiteStat| s.given.saturating_sub(s.freed);
    rows.sort_by_key(|(index, s)| (std::cmp::Reverse((live(s), s.given)), **index));
    let shown = if stat.top == 0 { rows.len() } else { stat.top };
    let rest = rows.len().saturating_sub(shown);
    rows.truncate(shown);
    let indexes: Vec<u32> = rows.iter().map(|(index, _)| **index).collect();
    let names = tracing
        .tables()
        .map(|t| resolver.sites(&t, &indexes))
        .unwrap_or_default();
    writeln!(
        out,
        "{:>12} {:>9} {:>12} {:>12} {:>10} {:>9} {:>9}  site",
        "live", "hits", "requested", "given", "waste", "frees", "cross-cpu"
    )?;
    for (i, (index, s)) in rows.iter().enumerate() {
        let text = names
            .get(i)
            .map_or_else(|| format!("#{index}"), |row| describe(**index, row).text());
        let number = match stat.numbers {
            true => format!("#{index} "),
            false => String::new(),
        };
        writeln!(
            out,
            "{:>12} {:>9} {:>12} {:>12} {:>10} {:>9} {:>9}  {number}{text}",
            live(s),
            s.allocs,
            s.requested,
            s.given,
            s.given.saturating_sub(s.requested),
            s.frees,
            s.cross
        )?;
    }
    if rest > 0 {
        writeln!(out, "({rest} more sites)")?;
    }
    Ok(())
}

fn caches(out: &mut dyn Write, sums: &Sums) -> io::Result<()> {
    writeln!(
        out,
        "\n{:>12} {:>9} {:>12} {:>12} {:>10} {:>9} {:>9}  cache",
        "live", "hits", "requested", "given", "waste", "frees", "cross-cpu"
    )?;
    for (i, c) in sums.caches.iter().enumerate() {
        if c.allocs == 0 && c.frees == 0 {
            continue;
        }
        let name = match (i, sums.cache_bytes.get(i)) {
            _ if sums.cache_names.contains_key(&i) => format!("{i} {}", sums.cache_names[&i]),
            (_, Some(bytes)) => format!("{i} (slots of {bytes})"),
            (CACHE_LARGE, _) => format!("{i} (whole pages)"),
            (CACHE_EARLY, _) => format!("{i} (early)"),
            _ => i.to_string(),
        };
        writeln!(
            out,
            "{:>12} {:>9} {:>12} {:>12} {:>10} {:>9} {:>9}  {name}",
            c.given.saturating_sub(c.freed),
            c.allocs,
            c.requested,
            c.given,
            c.given.saturating_sub(c.requested),
            c.frees,
            c.cross
        )?;
    }
    Ok(())
}

fn histogram(
    out: &mut dyn Write,
    what: &str,
    counts: &[u64],
    scale: impl Fn(u64) -> u64,
) -> io::Result<()> {
    let most = counts.iter().copied().max().unwrap_or(0);
    if most == 0 {
        return Ok(());
    }
    writeln!(out, "\n{what}:")?;
    for (i, n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
        let below = scale(1u64.checked_shl(i as u32).unwrap_or(u64::MAX));
        let bar = "#".repeat((n.saturating_mul(40) / most).max(1) as usize);
        writeln!(out, "  below {below:>14} {n:>12} {bar}")?;
    }
    Ok(())
}

fn objects(out: &mut dyn Write, sums: &Sums, clock: &Clock, now: u64) -> io::Result<()> {
    if sums.object_slots == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "\nobject table: {} of {} slots in use, {} objects found no room",
        sums.objects.len(),
        sums.object_slots,
        sums.object_overflow
    )?;
    let mut oldest: Vec<_> = sums.objects.iter().collect();
    oldest.sort_by_key(|o| o.time);
    for o in oldest.iter().take(5) {
        let age = clock.duration(now.saturating_sub(o.time)) / 1_000_000;
        writeln!(
            out,
            "  {:#x}: {} bytes, {age} ms old, site #{}",
            o.ptr, o.requested, o.who as u32
        )?;
    }
    Ok(())
}

fn losses(out: &mut dyn Write, sums: &Sums) -> io::Result<bool> {
    let lost = [
        ("events of sites beyond the table", sums.site_overflow),
        ("events without a ring", sums.lost_no_ring),
        ("events inside the tracer", sums.lost_nested),
    ];
    for (what, n) in lost.iter().filter(|(_, n)| *n > 0) {
        writeln!(out, "lost: {n} {what}")?;
    }
    Ok(lost.iter().any(|(_, n)| *n > 0) || sums.object_overflow > 0)
}
