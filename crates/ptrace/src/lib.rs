//! Safe wrappers of ptrace(2), waitpid(2) and signal dispositions, as a tracer of whole processes needs them.
//!
//! The usual crates have no `PTRACE_LISTEN`, and know signals as an enumeration without the real-time ones, which the C library
//! itself sends (thread cancellation, `setuid` in a threaded program): a tracer that cannot pass those on breaks the program.
//! Here signals are plain numbers and every request is one that touches only the memory of the tracee or registers of the kernel,
//! so nothing that a caller passes can break the memory safety of the tracer.
//!
//! Tracing starts with [`seize`] (`PTRACE_SEIZE`): no stop is sent to the tracee, and group-stops can be told from
//! signal-delivery-stops. All requests for one tracee must come from the thread that seized it.
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

/// Report fork(2), see [`Event::Fork`].
pub const TRACE_FORK: i32 = libc::PTRACE_O_TRACEFORK;
/// Report vfork(2), see [`Event::Vfork`].
pub const TRACE_VFORK: i32 = libc::PTRACE_O_TRACEVFORK;
/// Report clone(2) of threads, see [`Event::Clone`].
pub const TRACE_CLONE: i32 = libc::PTRACE_O_TRACECLONE;
/// Report execve(2), see [`Event::Exec`].
pub const TRACE_EXEC: i32 = libc::PTRACE_O_TRACEEXEC;
/// Stop tasks while they exit and still have their memory, see [`Event::Exit`].
pub const TRACE_EXIT: i32 = libc::PTRACE_O_TRACEEXIT;

/// What a traced or child task did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The process is gone; its exit code.
    Exited(i32),
    /// The process is gone, killed by this signal.
    Killed(i32),
    /// A signal is about to be delivered: pass it on with [`cont`]. Of a child that is not traced: it was stopped by this signal.
    Signal(i32),
    /// The task takes part in a stop of its whole process by this signal: answer with [`listen`].
    GroupStop(i32),
    /// A stop of ptrace itself (first stop of a new tracee, [`interrupt`], end of a group-stop): [`cont`] with signal 0.
    Trap,
    /// The task forked; [`event_message`] is the new pid.
    Fork,
    /// The task called vfork; [`event_message`] is the new pid, which shares the memory until it executes a program.
    Vfork,
    /// The task made a thread (or a process with another exit signal than SIGCHLD); [`event_message`] is its id.
    Clone,
    /// A new program was executed; the old memory is gone. [`event_message`] is the former thread id.
    Exec,
    /// The task exits; its memory can still be read. [`event_message`] is the wait status.
    Exit,
    /// The process continues (children that are not traced).
    Continued,
}

fn request(what: libc::c_uint, tid: i32, data: usize) -> io::Result<()> {
    // SAFETY: the requests that reach this private function (SEIZE, CONT, LISTEN, INTERRUPT, DETACH) take no pointer: address is
    // ignored or must be 0, data is an integer. The kernel writes no memory of the caller.
    let rc = unsafe {
        libc::ptrace(
            what,
            tid,
            null_mut::<libc::c_void>(),
            data as *mut libc::c_void,
        )
    };
    if rc == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Attaches to the task without stopping it. `options` are `TRACE_*` bits. Errors: EPERM (not allowed, or traced by another),
/// ESRCH (gone).
pub fn seize(tid: i32, options: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, options as usize)
}

/// Lets a stopped tracee run, with `signal` delivered to it if not 0. Error ESRCH: it is gone or not stopped.
pub fn cont(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, signal as usize)
}

/// Leaves a tracee in its group-stop, from which SIGCONT wakes it. Errors as [`cont`].
pub fn listen(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// Stops a running tracee; the stop is reported as [`Event::Trap`].
pub fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Lets a stopped tracee go for good, with `signal` delivered if not 0.
pub fn detach(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, signal as usize)
}

/// The message of the event at which the tracee is stopped (`PTRACE_GETEVENTMSG`).
pub fn event_message(tid: i32) -> io::Result<u64> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: GETEVENTMSG writes one unsigned long to `data`, which points to one that lives until the call returns.
    let rc = unsafe {
        libc::ptrace(
            libc::PTRACE_GETEVENTMSG,
            tid,
            null_mut::<libc::c_void>(),
            &raw mut message,
        )
    };
    if rc == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(message)
    }
}

/// The next change of any child or tracee, thread or process, without blocking; `None` when there is none now.
/// Error ECHILD: nobody is left to wait for.
pub fn wait_any() -> io::Result<Option<(i32, Event)>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a live int that the call may write.
        let tid = unsafe {
            libc::waitpid(
                -1,
                &raw mut status,
                libc::__WALL | libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED,
            )
        };
        match tid {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(Some((tid, decode(status)))),
        }
    }
}

/// Reads a wait status of a child or of a tracee that was attached with [`seize`].
fn decode(status: i32) -> Event {
    if libc::WIFEXITED(status) {
        return Event::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Event::Killed(libc::WTERMSIG(status));
    }
    if libc::WIFCONTINUED(status) {
        return Event::Continued;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 => Event::Signal(signal),
        libc::PTRACE_EVENT_FORK => Event::Fork,
        libc::PTRACE_EVENT_VFORK => Event::Vfork,
        libc::PTRACE_EVENT_CLONE => Event::Clone,
        libc::PTRACE_EVENT_EXEC => Event::Exec,
        libc::PTRACE_EVENT_EXIT => Event::Exit,
        PTRACE_EVENT_STOP if signal != libc::SIGTRAP => Event::GroupStop(signal),
        _ => Event::Trap,
    }
}

/// `PTRACE_EVENT_STOP`, from linux/ptrace.h.
const PTRACE_EVENT_STOP: i32 = 128;

/// Whether this process ignores the signal.
pub fn is_ignored(signal: i32) -> bool {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with a null new action sigaction only writes the old one to `old`, which has room for it.
    let rc = unsafe { libc::sigaction(signal, null(), old.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a valid sigaction (null handler = SIG_DFL), so it is initialised whether the call wrote it or not.
    rc == 0 && unsafe { old.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Sets the signal's disposition to the default, or to be ignored. Error EINVAL: no such signal, or SIGKILL or SIGSTOP.
pub fn set_ignored(signal: i32, ignored: bool) -> io::Result<()> {
    let disposition = if ignored {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    };
    // SAFETY: no handler function is installed, only one of the two constants, so no code of this process will run for it.
    let rc = unsafe { libc::signal(signal, disposition) };
    if rc == libc::SIG_ERR {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Sends `signal` to the process `pid` (as kill(2) does, so that negative numbers mean groups). Errors: ESRCH, EPERM, EINVAL.
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes and returns integers; what it does to this process is what its dispositions say.
    let rc = unsafe { libc::kill(pid, signal) };
    if rc == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        assert_eq!(decode(7 << 8), Event::Exited(7));
        assert_eq!(decode(libc::SIGKILL), Event::Killed(libc::SIGKILL));
        assert_eq!(decode(libc::SIGSEGV | 0x80), Event::Killed(libc::SIGSEGV));
        assert_eq!(decode((34 << 8) | 0x7f), Event::Signal(34));
        assert_eq!(
            decode((128 << 16) | (libc::SIGTSTP << 8) | 0x7f),
            Event::GroupStop(libc::SIGTSTP)
        );
        assert_eq!(
            decode((128 << 16) | (libc::SIGTRAP << 8) | 0x7f),
            Event::Trap
        );
        assert_eq!(decode((6 << 16) | (libc::SIGTRAP << 8) | 0x7f), Event::Exit);
        assert_eq!(decode(0xffff), Event::Continued);
    }

    #[test]
    fn dispositions() {
        assert!(!is_ignored(libc::SIGUSR2));
        set_ignored(libc::SIGUSR2, true).unwrap();
        assert!(is_ignored(libc::SIGUSR2));
        kill(std::process::id() as i32, libc::SIGUSR2).unwrap();
        set_ignored(libc::SIGUSR2, false).unwrap();
        assert!(!is_ignored(libc::SIGUSR2));
        assert!(set_ignored(libc::SIGKILL, true).is_err());
    }

    #[test]
    #[expect(clippy::zombie_processes, reason = "wait_any reaps it")]
    fn a_child_is_seen_at_its_exit_with_memory() {
        let child = std::process::Command::new("sleep")
            .arg("0.2")
            .spawn()
            .unwrap();
        let tid = child.id() as i32;
        seize(tid, TRACE_EXIT).unwrap();
        let mut seen = Vec::new();
        loop {
            match wait_any() {
                Ok(None) => std::thread::sleep(std::time::Duration::from_millis(5)),
                Ok(Some((who, event))) => {
                    assert_eq!(who, tid);
                    seen.push(event);
                    match event {
                        Event::Exit => {
                            assert_eq!(event_message(tid).unwrap(), 0);
                            let maps =
                                std::fs::read_to_string(format!("/proc/{tid}/maps")).unwrap();
                            assert!(!maps.is_empty());
                            cont(tid, 0).unwrap();
                        }
                        Event::Exited(_) => break,
                        _ => cont(tid, 0).unwrap(),
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(seen, [Event::Exit, Event::Exited(0)]);
    }
}
