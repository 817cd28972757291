//! `memledger trace record`.

use super::Record;
use crate::output::Resolver;
use crate::{Failure, Result};
use memledger_formats::trace::own::{Raw, SiteFrame, SiteInfo, Writer};
use memledger_inspect::trace::{Batch, Clock, Tracing};
use memledger_inspect::{Row, RowKind, Snapshot};
use nix::sys::signal::{SigSet, Signal};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufWriter;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two looks at the rings.
const PAUSE: Duration = Duration::from_millis(2);
/// How long the counter is compared with the clock at the start.
const MEASURE: Duration = Duration::from_millis(30);

/// Records until the time is over, Ctrl-C or SIGTERM comes, or the process ends.
pub(crate) fn run(record: &Record) -> Result<u8> {
    let what = &record.what;
    let options = what.options(false)?;
    let mut tracing = Tracing::open(what.pid)?;
    let clock = Clock::measure(MEASURE);
    let file = File::create(&record.output)
        .map_err(|e| Failure::Message(format!("{}: {e}", record.output.display())))?;
    let writer = Writer::new(BufWriter::new(file), &about(&tracing))?;
    let stop = StopSignals::block()?;
    if !what.already {
        tracing.configure(&options)?;
        tracing.skip();
        tracing.set(true)?;
    }
    let mut recorder = Recorder {
        writer,
        clock,
        held: Vec::new(),
        seen: BTreeSet::new(),
        fresh: 0,
        tables: None,
    };
    let end = what
        .seconds
        .map(|s| Instant::now() + Duration::from_secs_f64(s.max(0.0)));
    loop {
        let last = end.is_some_and(|end| Instant::now() >= end) || stop.came();
        if last && !what.already && tracing.on().is_some() {
            tracing.set(false)?;
        }
        let before = memledger_inspect::trace::now();
        let batch = tracing.poll();
        let empty = batch.records.is_empty();
        recorder.take(&tracing, batch, before)?;
        if last || tracing.on().is_none() {
            break;
        }
        if empty {
            std::thread::sleep(PAUSE);
        }
    }
    recorder.finish(&tracing, &mut Resolver::new(&record.symbols)?)
}

fn about(tracing: &Tracing) -> Vec<(&'static str, String)> {
    let real = SystemTime::now().duration_since(UNIX_EPOCH);
    let real = real.map_or(0, |d| d.as_nanos());
    let mono = u128::from(memledger_inspect::trace::now_nanos());
    vec![
        ("pid", tracing.process.pid.to_string()),
        ("comm", tracing.process.comm.clone()),
        ("exe", tracing.process.exe.display().to_string()),
        (
            "realtime_minus_monotonic_ns",
            real.saturating_sub(mono).to_string(),
        ),
        ("arch", std::env::consts::ARCH.to_owned()),
        ("recorder", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

struct Recorder {
    writer: Writer<BufWriter<File>>,
    clock: Clock,
    /// Events that may still have earlier ones behind them in rings that were read before.
    held: Vec<Raw>,
    /// Indexes that occurred.
    seen: BTreeSet<u32>,
    /// How many of them the tables were read for.
    fresh: usize,
    tables: Option<Snapshot>,
}

impl Recorder {
    /// Takes what a look gave, and writes what is older than the moment before it.
    fn take(&mut self, tracing: &Tracing, batch: Batch, before: u64) -> Result<()> {
        for r in &batch.records {
            let e = r.event;
            self.seen.insert(e.index);
            self.held.push(Raw {
                time: self.clock.nanos(e.time),
                ptr: e.ptr,
                op: e.op,
                kind: e.kind,
                flags: e.flags,
                index: e.index,
                cpu: e.cpu,
                tid: r.tid,
                requested: e.requested,
                given: e.given,
            });
        }
        for (ring, tid, n) in batch.lost {
            self.writer.lost(ring, tid, n)?;
        }
        // What explains the indexes is read while the process has it.
        if self.seen.len() > self.fresh
            && let Some(tables) = tracing.tables()
        {
            self.tables = Some(tables);
            self.fresh = self.seen.len();
        }
        self.held.sort_by_key(|e| e.time);
        let until = self.clock.nanos(before);
        let n = self.held.partition_point(|e| e.time < until);
        self.writer.events(&self.held[..n])?;
        self.held.drain(..n);
        Ok(())
    }

    fn finish(mut self, tracing: &Tracing, resolver: &mut Resolver) -> Result<u8> {
        self.writer.events(&self.held)?;
        if let Some(tables) = tracing.tables().or(self.tables.take()) {
            let indexes: Vec<u32> = self.seen.iter().copied().collect();
            let rows = resolver.sites(&tables, &indexes);
            let sites: Vec<SiteInfo> = indexes
                .iter()
                .zip(&rows)
                .map(|(&index, row)| describe(index, row))
                .collect();
            self.writer.sites(&sites)?;
        }
        let (events, lost) = self.writer.counts();
        self.writer.finish()?;
        eprintln!(
            "memledger: {events} events of {} sites, {lost} lost",
            self.seen.len()
        );
        Ok(u8::from(lost > 0))
    }
}

/// A row in the form of the file.
pub(crate) fn describe(index: u32, row: &Row) -> SiteInfo {
    let kind = match row.kind {
        RowKind::Site => 0,
        RowKind::Tag => 1,
        _ => 2,
    };
    let frames: Vec<SiteFrame> = row
        .frames
        .iter()
        .map(|f| SiteFrame {
            func: f.func.clone().unwrap_or_default(),
            file: f.file.clone().unwrap_or_default(),
            line: f.line,
            module: f.object_name().to_owned(),
            addr: f.addr,
        })
        .collect();
    if !frames.is_empty() {
        return SiteInfo {
            index,
            kind,
            charged: row.charged as u32,
            frames,
        };
    }
    let only = SiteFrame {
        func: row.func.clone(),
        file: row.file.clone(),
        line: row.line,
        module: row.module.clone().unwrap_or_default(),
        addr: 0,
    };
    SiteInfo {
        index,
        kind,
        charged: 0,
        frames: vec![only],
    }
}

/// SIGINT and SIGTERM, blocked, so that the tracer is switched off and the file ended before.
pub(super) struct StopSignals;

impl StopSignals {
    pub(super) fn block() -> Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.thread_block()
            .map_err(|e| Failure::Message(e.to_string()))?;
        Ok(StopSignals)
    }

    /// Whether one has come (it stays pending, so that each call says so).
    pub(super) fn came(&self) -> bool {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let pending = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name));
            line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok())
        };
        let bits = 1 << (Signal::SIGINT as u64 - 1) | 1 << (Signal::SIGTERM as u64 - 1);
        ["SigPnd:", "ShdPnd:"]
            .iter()
            .any(|n| pending(n).is_some_and(|p| p & bits != 0))
    }
}
