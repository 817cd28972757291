//! A run of tracing: an instance with events, filters and open buffers, and what ends it.
//!
//! It ends when its time is over, when the command that it is for has ended, or at SIGINT, SIGTERM or SIGHUP, which
//! are read from a descriptor, so that there is no handler and everything is cleaned up in the usual way.

use super::args::{Filters, Span};
use super::tracefs::{Instance, Tracefs};
use crate::{Failure, Result};
use memledger_formats::kallsyms::Kallsyms;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The events that memory is accounted by.
pub(crate) const EVENTS: [&str; 6] = [
    "kmalloc",
    "kmem_cache_alloc",
    "kfree",
    "kmem_cache_free",
    "mm_page_alloc",
    "mm_page_free",
];

/// What ends a run.
#[derive(Debug)]
pub(crate) struct End {
    signals: SignalFd,
    until: Option<Instant>,
    command: Option<Child>,
    done: bool,
}

impl End {
    /// Takes the signals over.
    pub(crate) fn new() -> Result<End> {
        let set = signals();
        set.thread_block().map_err(io::Error::from)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(End {
            signals: SignalFd::with_flags(&set, flags).map_err(io::Error::from)?,
            until: None,
            command: None,
            done: false,
        })
    }

    /// Starts the clock, and the command if there is one. Signals reach the command as usual.
    pub(crate) fn start(&mut self, span: &Span) -> Result<()> {
        self.until = span
            .seconds
            .map(|s| Instant::now() + Duration::from_secs_f64(s));
        if let Some((name, args)) = span.command.split_first() {
            let set = signals();
            set.thread_unblock().map_err(io::Error::from)?;
            let child = Command::new(name).args(args).spawn();
            set.thread_block().map_err(io::Error::from)?;
            self.command = Some(
                child.map_err(|error| Failure::Message(format!("{}: {error}", name.display())))?,
            );
        }
        Ok(())
    }

    /// The whole of a run: events on, the clock and the command started, then `round` ten times a second, at last with `true`, when
    /// events are off again.
    pub(crate) fn follow(
        &mut self,
        session: &Session,
        span: &Span,
        mut round: impl FnMut(bool) -> Result<()>,
    ) -> Result<()> {
        session.on(true)?;
        self.start(span)?;
        loop {
            let ended = self.wait(Duration::from_millis(100))?;
            if ended {
                session.on(false)?;
            }
            round(ended)?;
            if ended {
                return Ok(());
            }
        }
    }

    /// Waits for at most `time`; true if the run has ended.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<bool> {
        let left = self
            .until
            .map(|t| t.saturating_duration_since(Instant::now()));
        let time = left.map_or(time, |left| left.min(time)).as_millis();
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, timeout).map_err(io::Error::from)?;
        let signalled = ready > 0
            && self
                .signals
                .read_signal()
                .map_err(io::Error::from)?
                .is_some();
        let over = self.until.is_some_and(|until| Instant::now() >= until);
        let ended = match &mut self.command {
            Some(child) => child.try_wait()?.is_some(),
            None => false,
        };
        self.done |= signalled || over || ended;
        Ok(self.done)
    }
}

fn signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect()
}

/// The kernel's functions; an error if their addresses are hidden.
pub(crate) fn kallsyms() -> Result<Kallsyms> {
    let read = File::open("/proc/kallsyms").and_then(|file| Kallsyms::read(BufReader::new(file)));
    let all = read.map_err(|error| Failure::Message(format!("/proc/kallsyms: {error}")))?;
    if all.is_empty() {
        return Err(Failure::Message(
            "/proc/kallsyms shows no addresses (kernel.kptr_restrict)".to_owned(),
        ));
    }
    Ok(all)
}

/// An instance with its buffers open.
#[derive(Debug)]
pub(crate) struct Session {
    /// One for each processor: its number and its raw pages. Closed before the instance is removed.
    pub(crate) buffers: Vec<(u32, File)>,
    /// The events that are on.
    pub(crate) events: Vec<String>,
    /// The instance.
    pub(crate) instance: Instance,
}

impl Session {
    /// Sets everything up; tracing is off.
    pub(crate) fn new(
        tracefs: &Tracefs,
        filters: &Filters,
        kallsyms: Option<&Kallsyms>,
        stacks: bool,
    ) -> Result<Session> {
        let instance = Instance::new(tracefs, filters.buffer)?;
        let events = filters.events(tracefs)?;
        if stacks {
            instance.set("options/stacktrace", "1")?;
        }
        if let Some(pid) = filters.pid {
            instance.set("set_event_pid", &pid.to_string())?;
            instance.set("options/event-fork", "1")?;
        }
        for event in &events {
            if let Some(text) = filters.expression(event, kallsyms)? {
                instance.set(&format!("events/kmem/{event}/filter"), &text)?;
            }
            instance.set(&format!("events/kmem/{event}/enable"), "1")?;
        }
        let open = |cpu: u32| -> Result<(u32, File)> {
            let path = instance
                .dir
                .join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let mut options = File::options();
            options
                .read(true)
                .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits());
            let file = options
                .open(&path)
                .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
            Ok((cpu, file))
        };
        let buffers = instance
            .cpus()?
            .into_iter()
            .map(open)
            .collect::<Result<_>>()?;
        Ok(Session {
            buffers,
            events,
            instance,
        })
    }

    /// Switches tracing on or off.
    pub(crate) fn on(&self, on: bool) -> Result<()> {
        self.instance.set("tracing_on", if on { "1" } else { "0" })
    }

    /// Events that were lost, on all processors.
    pub(crate) fn lost(&self) -> u64 {
        self.buffers
            .iter()
            .map(|(cpu, _)| self.instance.lost(*cpu))
            .sum()
    }
}
