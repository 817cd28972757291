//! Following the command to its end.
//!
//! One loop waits for three things: changes of children and tracees (SIGCHLD), signals to pass on, and the time of the next
//! snapshot. All signals in question are blocked and read from a signalfd, so nothing interrupts anything.
//!
//! The leader of the command is seized with `PTRACE_O_TRACEEXIT`: it stops while it exits, whatever ends it (return from main,
//! `_exit`, a signal, SIGKILL in the usual case), with its memory still there. Other threads are not traced; when one ends
//! the process, the leader is killed and stops all the same. If the leader ends alone (`pthread_exit` in main), the
//! others are seized then. With `--children` processes and threads are followed from birth, since any thread may fork.
//!
//! Signals are reinjected as they come, and group-stops kept with `PTRACE_LISTEN`, so job control works. If nothing can be
//! seized, only periodic snapshots are left.

use super::launch::SIGSTOP;
use super::snapshots::{End, Image, Schedule, cpu_time};
use crate::{Failure, Result};
use memledger_ptrace::{self as ptrace, Event};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::process::Child;
use std::time::{Duration, Instant};

/// Signals that are passed on to the command.
const FORWARDED: [Signal; 8] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
];

/// How long to wait whether a signal that came to us came to the command too, being sent to the whole group.
const GROUP_SIGNAL: Duration = Duration::from_millis(20);

/// `si_code` of signals that the kernel sent, such as those of terminal keys, which go to the whole group.
const SI_KERNEL: i32 = 0x80;

/// What is followed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Processes that the command makes, too.
    pub(crate) children: bool,
    /// Do not trace, do not read: only pass things on.
    pub(crate) blind: bool,
}

/// A process that is followed.
#[derive(Debug)]
struct Process {
    image: Image,
    /// At least the leader is traced.
    traced: bool,
    /// The leader has passed its exit stop.
    leader_exited: bool,
    /// A vfork child that still uses its parent's memory.
    borrowed: bool,
    /// It is in a group-stop.
    stopped: bool,
    /// It is still the shim, before the command is executed.
    shim: bool,
    /// It has executed a program since it was made.
    executed: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How the command ended.
    pub(crate) end: End,
    /// The command was never executed.
    pub(crate) not_started: bool,
    /// All programs that were run, in order of their end.
    pub(crate) images: Vec<Image>,
    /// Why tracing was not possible.
    pub(crate) untraced: Option<String>,
}

/// The tracer.
#[derive(Debug)]
pub(crate) struct Tracer {
    options: Options,
    main: i32,
    signals: SignalFd,
    processes: BTreeMap<i32, Process>,
    /// Process of each traced task.
    tasks: HashMap<i32, i32>,
    images: Vec<Image>,
    schedule: Schedule,
    untraced: Option<String>,
    /// Signals to pass on, and when, unless the command gets them by itself.
    pending: Vec<(Signal, Instant)>,
    /// When the command last got a signal.
    delivered: HashMap<i32, Instant>,
    end: Option<End>,
}

/// Blocks the signals that the loop reads, for this thread and those it makes; must be called before the command is started.
/// Returns where to read them, and those that were not blocked before, which must not be in the command.
pub(crate) fn block_signals() -> Result<(SignalFd, Vec<i32>)> {
    let failure = |error| Failure::Message(format!("cannot block signals: {error}"));
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGCONT]
        .into_iter()
        .chain(FORWARDED)
    {
        // An ignored signal stays ignored (nohup), and so it is in the command.
        if !ptrace::is_ignored(signal as i32) {
            set.add(signal);
        }
    }
    let before = SigSet::thread_get_mask().map_err(failure)?;
    set.thread_block().map_err(failure)?;
    let added = set
        .iter()
        .filter(|signal| !before.contains(*signal))
        .map(|signal| signal as i32)
        .collect();
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(failure)?;
    Ok((signals, added))
}

impl Tracer {
    /// Follows `child`, a shim that has not stopped itself yet.
    pub(crate) fn new(child: &Child, signals: SignalFd, options: Options) -> Self {
        let main = child.id().cast_signed();
        let process = Process {
            image: Image::new(main),
            traced: false,
            leader_exited: false,
            borrowed: false,
            stopped: false,
            shim: true,
            executed: false,
        };
        Tracer {
            options,
            main,
            signals,
            processes: BTreeMap::from([(main, process)]),
            tasks: HashMap::new(),
            images: Vec::new(),
            schedule: Schedule::new(),
            untraced: None,
            pending: Vec::new(),
            delivered: HashMap::new(),
            end: None,
        }
    }

    /// Follows the command until it has ended.
    pub(crate) fn follow(mut self) -> Result<Outcome> {
        loop {
            self.reap()?;
            if let Some(end) = self.end {
                return Ok(self.finish(end));
            }
            self.read_signals();
            self.forward_pending();
            if !self.options.blind && self.schedule.wait().is_none() {
                self.tick();
            }
            self.sleep()?;
        }
    }

    /// Waits for a signal, or until something is due.
    fn sleep(&self) -> Result<()> {
        let mut wait = Duration::from_secs(3600);
        if !self.options.blind {
            wait = wait.min(self.schedule.wait().unwrap_or_default());
        }
        for (_, due) in &self.pending {
            wait = wait.min(due.saturating_duration_since(Instant::now()));
        }
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        // Rounded up, so that a wait under a millisecond is not a busy loop.
        let timeout = i32::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        match poll(
            &mut fds,
            PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX),
        ) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(Failure::Message(format!("poll: {error}"))),
        }
    }

    /// Handles all changes of children and tracees.
    fn reap(&mut self) -> Result<()> {
        loop {
            match ptrace::wait_any() {
                Ok(Some((tid, event))) => self.event(tid, event),
                Ok(None) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ECHILD as i32) => {
                    // Cannot be while the command is there; a lost child must not make us wait for ever.
                    self.end.get_or_insert(End::Code(0));
                    return Ok(());
                }
                Err(error) => return Err(Failure::Message(format!("waitpid: {error}"))),
            }
        }
    }

    fn event(&mut self, tid: i32, event: Event) {
        match event {
            Event::Exited(code) => self.gone(tid, End::Code(code)),
            Event::Killed(signal) => self.gone(tid, End::Signal(signal)),
            Event::Continued => {
                if let Some(process) = self.processes.get_mut(&tid) {
                    process.stopped = false;
                }
            }
            Event::Signal(signal) if !self.tasks.contains_key(&tid) => {
                self.child_stopped(tid, signal)
            }
            _ => self.stopped(tid, event),
        }
    }

    /// A child that is not traced stopped: the shim, at its start, or the command where nothing can be traced.
    fn child_stopped(&mut self, tid: i32, signal: i32) {
        let Some(process) = self.processes.get_mut(&tid) else {
            return;
        };
        if process.shim && signal == SIGSTOP {
            self.start(tid);
        } else {
            process.stopped = true;
            self.stop_too(tid, signal);
        }
    }

    /// The shim is ready: seize it and let it become the command.
    fn start(&mut self, tid: i32) {
        if !self.options.blind {
            match ptrace::seize(tid, self.trace_options()) {
                Ok(()) => {
                    self.tasks.insert(tid, tid);
                }
                Err(error) => self.untraced = Some(error.to_string()),
            }
        }
        if let Some(process) = self.processes.get_mut(&tid) {
            process.traced = self.tasks.contains_key(&tid);
            if !process.traced {
                process.shim = false;
                process.image.started = Instant::now();
            }
        }
        let _ = ptrace::kill(tid, Signal::SIGCONT as i32);
    }

    fn trace_options(&self) -> i32 {
        let mut options = ptrace::TRACE_EXIT | ptrace::TRACE_EXEC;
        if self.options.children {
            options |= ptrace::TRACE_FORK | ptrace::TRACE_VFORK | ptrace::TRACE_CLONE;
        }
        options
    }

    /// A tracee is in a stop: deal with it and let it go on. Failures mean that it was killed, which is reported next.
    fn stopped(&mut self, tid: i32, event: Event) {
        let pid = self.adopt(tid);
        let _ = match event {
            Event::Signal(signal) => {
                if pid == self.main {
                    self.delivered.insert(signal, Instant::now());
                }
                ptrace::cont(tid, signal)
            }
            Event::GroupStop(signal) => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.stopped = true;
                }
                let listening = ptrace::listen(tid);
                self.stop_too(tid, signal);
                listening
            }
            Event::Fork | Event::Vfork => {
                if let Ok(new) = ptrace::event_message(tid) {
                    self.born(i32::try_from(new).unwrap_or(0), event == Event::Vfork);
                }
                ptrace::cont(tid, 0)
            }
            Event::Exec => {
                self.executed(tid);
                ptrace::cont(tid, 0)
            }
            Event::Exit => {
                self.exits(tid, pid);
                ptrace::cont(tid, 0)
            }
            _ => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.stopped = false;
                }
                ptrace::cont(tid, 0)
            }
        };
    }

    /// The process of a traced task, which may be new: its first stop can be seen before its parent's event.
    fn adopt(&mut self, tid: i32) -> i32 {
        if let Some(pid) = self.tasks.get(&tid) {
            return *pid;
        }
        let pid = status_field(tid, "Tgid:").unwrap_or(tid);
        self.tasks.insert(tid, pid);
        if pid == tid {
            self.born(tid, false);
        }
        pid
    }

    /// A new process is followed.
    fn born(&mut self, pid: i32, borrowed: bool) {
        if pid == 0 {
            return;
        }
        self.tasks.insert(pid, pid);
        let process = self.processes.entry(pid).or_insert_with(|| Process {
            image: Image::new(pid),
            traced: true,
            leader_exited: false,
            borrowed,
            stopped: false,
            shim: false,
            executed: false,
        });
        // The parent's event may come after the child has gone on.
        process.borrowed |= borrowed && !process.executed;
    }

    /// The process of `tid` (the leader now) executed a program.
    fn executed(&mut self, tid: i32) {
        if let Ok(former) = ptrace::event_message(tid)
            && former != u64::from(tid.cast_unsigned())
        {
            self.tasks.remove(&i32::try_from(former).unwrap_or(0));
        }
        let Some(process) = self.processes.get_mut(&tid) else {
            return;
        };
        let mut old = std::mem::replace(&mut process.image, Image::new(tid));
        let drop = process.shim || process.borrowed || old.largest().is_none();
        process.shim = false;
        process.borrowed = false;
        process.executed = true;
        process.leader_exited = false;
        if tid == self.main && drop {
            self.schedule = Schedule::new();
        }
        if !drop {
            old.lived = old.started.elapsed();
            old.end = Some(End::Exec);
            self.images.push(old);
        }
        self.schedule.soon();
    }

    /// Task `tid` exits, and its memory can still be read.
    fn exits(&mut self, tid: i32, pid: i32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.shim || process.borrowed || (tid != pid && !process.leader_exited) {
            return;
        }
        process.image.read(tid, true);
        process.image.exit_is_end = true;
        process.leader_exited = true;
        self.schedule.soon();
    }

    /// Task `tid` is gone.
    fn gone(&mut self, tid: i32, end: End) {
        self.tasks.remove(&tid);
        let Some(mut process) = self.processes.remove(&tid) else {
            return;
        };
        if tid == self.main {
            self.end = Some(end);
        }
        // A vfork child that ended without executing a program never had memory of its own.
        if !process.borrowed && !process.shim {
            process.image.lived = process.image.started.elapsed();
            process.image.end = Some(end);
            self.images.push(process.image);
        } else if tid == self.main && process.shim {
            self.images.clear();
        }
    }

    /// Periodic snapshots.
    fn tick(&mut self) {
        let begin = cpu_time();
        let pids: Vec<i32> = self.processes.keys().copied().collect();
        for pid in pids {
            self.look(pid);
        }
        self.schedule.taken(cpu_time().saturating_sub(begin));
    }

    fn look(&mut self, pid: i32) {
        let options = self.trace_options();
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if process.shim || process.borrowed {
            return;
        }
        if !process.leader_exited {
            // Without tracing this may be the last one.
            process.image.read(pid, !process.traced);
            return;
        }
        // The leader is past its exit stop but the process is still there: other threads go on, or one of them has executed
        // a program and is the leader now.
        let Some(tid) = living_thread(pid) else {
            return;
        };
        if tid == pid && status_field(pid, "TracerPid:") == Some(0) {
            let new = Image::new(pid);
            let mut old = std::mem::replace(&mut process.image, new);
            old.lived = old.started.elapsed();
            old.end = Some(End::Exec);
            self.images.push(old);
            process.leader_exited = false;
            if ptrace::seize(pid, options).is_ok() {
                self.tasks.insert(pid, pid);
            }
            return;
        }
        if tid == pid {
            return;
        }
        process.image.read(tid, true);
        process.image.exit_is_end = false;
        for other in threads(pid) {
            if !self.tasks.contains_key(&other) && ptrace::seize(other, options).is_ok() {
                self.tasks.insert(other, pid);
            }
        }
    }

    /// If the terminal stopped the command, stop as well: the shell waits for us.
    fn stop_too(&self, tid: i32, signal: i32) {
        let terminal = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];
        if tid == self.main && terminal.iter().any(|s| *s as i32 == signal) {
            let _ = ptrace::kill(std::process::id().cast_signed(), SIGSTOP);
        }
    }

    /// Reads the signals that came to us.
    fn read_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            self.signal(&info);
        }
    }

    fn signal(&mut self, info: &siginfo) {
        let Ok(signal) = Signal::try_from(info.ssi_signo.cast_signed()) else {
            return;
        };
        if signal == Signal::SIGCHLD || info.ssi_code == SI_KERNEL {
            return;
        }
        let traced = self
            .processes
            .get(&self.main)
            .is_some_and(|main| main.traced);
        if signal == Signal::SIGCONT {
            if self
                .processes
                .get(&self.main)
                .is_some_and(|main| main.stopped)
            {
                let _ = ptrace::kill(self.main, signal as i32);
            }
        } else if traced {
            self.pending.push((signal, Instant::now() + GROUP_SIGNAL));
        } else {
            let _ = ptrace::kill(self.main, signal as i32);
        }
    }

    /// Passes signals on that only we got.
    fn forward_pending(&mut self) {
        let now = Instant::now();
        let (due, later): (Vec<_>, Vec<_>) =
            self.pending.drain(..).partition(|(_, due)| *due <= now);
        self.pending = later;
        for (signal, due) in due {
            // In the time of the wait, or just as long before it.
            let own = self
                .delivered
                .get(&(signal as i32))
                .is_some_and(|at| *at + 2 * GROUP_SIGNAL >= due);
            if !own {
                let _ = ptrace::kill(self.main, signal as i32);
            }
        }
    }

    /// The command has ended; what still runs of its tree goes on without us.
    fn finish(mut self, end: End) -> Outcome {
        let mut not_started = false;
        if self.images.is_empty() && self.processes.is_empty() && !self.options.blind {
            not_started = self.untraced.is_none();
        }
        for (pid, mut process) in std::mem::take(&mut self.processes) {
            if process.borrowed {
                continue;
            }
            process.image.read(pid, true);
            process.image.lived = process.image.started.elapsed();
            process.image.end = Some(End::Running);
            self.images.push(process.image);
        }
        Outcome {
            end,
            not_started,
            images: self.images,
            untraced: self.untraced,
        }
    }
}

/// A number from `/proc/TID/status`.
fn status_field(tid: i32, field: &str) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))?
        .trim()
        .parse()
        .ok()
}

/// Threads of the process.
fn threads(pid: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The first thread of the process that is alive and will be.
fn living_thread(pid: i32) -> Option<i32> {
    threads(pid)
        .into_iter()
        .find(|tid| lives(pid, *tid).unwrap_or(false))
}

/// Whether a thread goes on: it is neither gone, nor exiting, nor killed as all threads are when the process ends (SIGKILL
/// is pending in each of them then).
fn lives(pid: i32, tid: i32) -> Option<bool> {
    const EXITING: u64 = 0x4; // PF_EXITING of the kernel's include/linux/sched.h
    const SIGKILL: u64 = 1 << (Signal::SIGKILL as i32 - 1);
    let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // The other fields follow the name, which is in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let pending = status
        .lines()
        .find_map(|line| line.strip_prefix("SigPnd:"))?;
    let pending = u64::from_str_radix(pending.trim(), 16).ok()?;
    Some(!matches!(state, "Z" | "X" | "x") && flags & EXITING == 0 && pending & SIGKILL == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_thread_lives() {
        let pid = std::process::id().cast_signed();
        assert_eq!(lives(pid, pid), Some(true));
        assert!(threads(pid).contains(&pid));
        assert_eq!(status_field(pid, "Tgid:"), Some(pid));
        assert_eq!(lives(pid, -1), None);
    }

    #[test]
    fn a_zombie_does_not() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        let begin = Instant::now();
        while living_thread(pid).is_some() {
            assert!(begin.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(child.wait().unwrap().success());
    }
}
