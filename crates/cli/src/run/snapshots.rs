//! What is kept of each process: its largest snapshot, and the one of its end.
//!
//! Snapshots are compacted before they are kept, since a tree may have thousands of processes: of the context trie only
//! the nodes that live memory is charged to, and those they hang from, are needed for a report.

use memledger_inspect::{Error, Ledger, Snapshot};
use nix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time from the start to the first snapshot.
const FIRST: Duration = Duration::from_millis(5);
/// Longest time between snapshots that are cheap.
const LONGEST: Duration = Duration::from_millis(200);
/// A reading may take one part in so many of the time.
const SHARE: u32 = 40;

/// When to take the next snapshot.
#[derive(Debug)]
pub(crate) struct Schedule {
    next: Instant,
    interval: Duration,
}

impl Schedule {
    /// Begins now.
    pub(crate) fn new() -> Self {
        Schedule {
            next: Instant::now() + FIRST,
            interval: FIRST,
        }
    }

    /// Time left until the next snapshot is due; `None` if it is due.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.next
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }

    /// Plans the next one, after one that took `cost`.
    pub(crate) fn taken(&mut self, cost: Duration) {
        self.interval = (self.interval * 3 / 2).min(LONGEST);
        self.next = Instant::now() + self.interval.max(cost * SHARE);
    }

    /// Something is about to happen: look again soon.
    pub(crate) fn soon(&mut self) {
        self.next = self.next.min(Instant::now() + Duration::from_millis(2));
    }
}

/// A snapshot that is kept.
#[derive(Debug)]
pub(crate) struct Seen {
    /// What was read.
    pub(crate) snapshot: Snapshot,
    /// When, since the start of the program.
    pub(crate) at: Duration,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It executed another program.
    Exec,
    /// It still ran when the command itself had ended.
    Running,
}

/// One program that a process ran, from execve (or fork) to the next execve or its end.
#[derive(Debug)]
pub(crate) struct Image {
    /// Process id.
    pub(crate) pid: i32,
    /// Name of the task.
    pub(crate) comm: String,
    /// Command line.
    pub(crate) arguments: Vec<String>,
    /// When it began.
    pub(crate) started: Instant,
    /// How long it lived.
    pub(crate) lived: Duration,
    /// The snapshot with the most bytes.
    pub(crate) peak: Option<Seen>,
    /// The last one; also the peak, if `peak` is `None`.
    pub(crate) exit: Option<Seen>,
    /// `exit` was taken while the process ended, not just some time before.
    pub(crate) exit_is_end: bool,
    /// Why the last reading failed, if no reading succeeded.
    pub(crate) problem: Option<String>,
    /// How it ended.
    pub(crate) end: Option<End>,
    /// Snapshots read.
    pub(crate) readings: u32,
}

impl Image {
    /// The program that process `pid` runs now.
    pub(crate) fn new(pid: i32) -> Self {
        let mut image = Image {
            pid,
            comm: String::new(),
            arguments: Vec::new(),
            started: Instant::now(),
            lived: Duration::ZERO,
            peak: None,
            exit: None,
            exit_is_end: false,
            problem: None,
            end: None,
            readings: 0,
        };
        image.name();
        image
    }

    /// Reads name and command line, if they can be read.
    fn name(&mut self) {
        if let Ok(comm) = std::fs::read(format!("/proc/{}/comm", self.pid)) {
            self.comm = String::from_utf8_lossy(comm.trim_ascii_end()).into_owned();
        }
        if let Ok(line) = std::fs::read(format!("/proc/{}/cmdline", self.pid)) {
            let line = line.strip_suffix(b"\0").unwrap_or(&line);
            if !line.is_empty() {
                self.arguments = line
                    .split(|b| *b == 0)
                    .map(|a| String::from_utf8_lossy(a).into_owned())
                    .collect();
            }
        }
    }

    /// Reads the ledger through task `tid` of the process and keeps it if it is the largest, or the last. Returns what
    /// it took.
    pub(crate) fn read(&mut self, tid: i32, last: bool) -> Duration {
        let begin = cpu_time();
        let at = self.started.elapsed();
        match Snapshot::read(tid.unsigned_abs()) {
            Ok(snapshot) => self.keep(Seen { snapshot, at }, last),
            Err(Error::NotReady { .. } | Error::Dying { .. } | Error::NoSuchProcess { .. })
                if self.problem.is_some() => {}
            Err(error) => self.problem = Some(without_pid(&error.to_string())),
        }
        cpu_time().saturating_sub(begin)
    }

    fn keep(&mut self, mut seen: Seen, last: bool) {
        self.readings += 1;
        self.problem = None;
        let largest = self
            .largest()
            .is_none_or(|old| seen.snapshot.total.bytes > old.snapshot.total.bytes);
        if !last && !largest {
            return;
        }
        if self.comm.is_empty() || last {
            self.name();
        }
        compact(&mut seen.snapshot);
        if !last {
            self.peak = Some(seen);
            return;
        }
        if let Some(old) = self.exit.take()
            && self.peak.is_none()
        {
            self.peak = Some(old);
        }
        if largest {
            self.peak = None;
        }
        self.exit = Some(seen);
    }

    /// The snapshot with the most bytes.
    pub(crate) fn largest(&self) -> Option<&Seen> {
        self.peak.as_ref().or(self.exit.as_ref())
    }
}

/// CPU time of this thread: what a reading really takes from others, however busy the machine is.
pub(crate) fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// The text of an error of the reader without the process id, which the report has before it.
fn without_pid(text: &str) -> String {
    match text
        .strip_prefix("process ")
        .and_then(|rest| rest.split_once(": "))
    {
        Some((pid, rest)) if pid.bytes().all(|b| b.is_ascii_digit()) => rest.to_owned(),
        _ => text.to_owned(),
    }
}

/// Drops what a report does not need.
fn compact(snapshot: &mut Snapshot) {
    for ledger in &mut snapshot.ledgers {
        compact_nodes(ledger);
    }
}

/// Keeps only nodes with live memory and their ancestors, and numbers them anew. The root stays node 0.
fn compact_nodes(ledger: &mut Ledger) {
    let mut numbers: HashMap<u32, u32> = HashMap::from([(0, 0)]);
    let mut kept = Vec::new();
    kept.extend(ledger.nodes.first().copied());
    let old = &ledger.nodes;
    let mut path = Vec::new();
    for (node, _) in &mut ledger.site_sums {
        let mut at = *node;
        // A parent is older than its child, so its number is smaller; anything else is damage and ends the path.
        while !numbers.contains_key(&at) {
            path.push(at);
            match old.get(at as usize) {
                Some(info) if info.parent < at => at = info.parent,
                _ => break,
            }
        }
        while let Some(number) = path.pop() {
            let Some(info) = old.get(number as usize) else {
                continue;
            };
            let parent = numbers.get(&info.parent).copied().unwrap_or(0);
            numbers.insert(number, u32::try_from(kept.len()).unwrap_or(0));
            kept.push(memledger_inspect::NodeInfo { parent, ..*info });
        }
        *node = numbers.get(node).copied().unwrap_or(u32::MAX);
    }
    ledger.site_sums.sort_by_key(|(node, _)| *node);
    ledger.nodes = kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use memledger_inspect::{NodeInfo, Sum};

    #[test]
    fn compacting_keeps_the_paths_of_live_nodes() {
        let node = |ra, parent| NodeInfo {
            ra,
            parent,
            ..NodeInfo::default()
        };
        let mut ledger = Ledger {
            nodes: vec![
                node(0, 0),
                node(10, 0),
                node(20, 1),
                node(30, 1),
                node(40, 3),
                node(50, 2),
            ],
            site_sums: vec![
                (4, Sum { bytes: 7, calls: 1 }),
                (1, Sum { bytes: 9, calls: 2 }),
                (77, Sum::default()),
            ],
            ..Ledger::default()
        };
        compact_nodes(&mut ledger);
        let walk = |mut at: u32| {
            let mut stack = Vec::new();
            while at != 0 {
                stack.push(ledger.nodes[at as usize].ra);
                at = ledger.nodes[at as usize].parent;
            }
            stack
        };
        assert_eq!(ledger.nodes.len(), 4); // root, 1, 3, 4
        let find = |bytes| {
            ledger
                .site_sums
                .iter()
                .find(|(_, sum)| sum.bytes == bytes)
                .unwrap()
                .0
        };
        assert_eq!(walk(find(7)), [40, 30, 10]);
        assert_eq!(walk(find(9)), [10]);
        assert_eq!(find(0), u32::MAX);
        assert!(ledger.site_sums.is_sorted_by_key(|(node, _)| *node));
    }

    #[test]
    fn the_interval_grows_and_respects_the_cost() {
        let mut schedule = Schedule::new();
        for _ in 0..20 {
            schedule.taken(Duration::from_micros(10));
        }
        let wait = schedule.wait().unwrap();
        assert!(wait <= LONGEST && wait > LONGEST / 2, "{wait:?}");
        schedule.taken(Duration::from_millis(20));
        assert!(schedule.wait().unwrap() > Duration::from_millis(700));
        schedule.soon();
        assert!(
            schedule
                .wait()
                .is_none_or(|wait| wait <= Duration::from_millis(2))
        );
    }

    #[test]
    fn errors_lose_the_pid() {
        assert_eq!(without_pid("process 12: no ledger: x"), "no ledger: x");
        assert_eq!(without_pid("process x: y"), "process x: y");
    }
}
