//! Whose numbers `/proc` speaks.
//!
//! A `/proc` shows processes by the numbers of the pid namespace that it was mounted for; system calls take those of the
//! caller's own namespace. The two differ where a container has the host's `/proc`, after `unshare --pid` without
//! `--mount-proc`, and after `nsenter --mount` alone. Then a number from `/proc` must never be passed to a system call: it is
//! another process, or none.

use std::fs;

/// Is `/proc` that of another pid namespace than this process's? Also true if there is no `/proc` at all.
pub fn proc_is_foreign() -> bool {
    let Ok(status) = fs::read_to_string("/proc/self/status") else {
        // No such link: this process is not in the namespace of that `/proc`.
        return true;
    };
    match status.lines().find_map(|line| line.strip_prefix("NSpid:")) {
        Some(pids) => is_foreign(pids),
        // Before Linux 4.1.
        None => own_pid() != std::process::id(),
    }
}

/// `NSpid` has a number for each namespace from that of `/proc` down to the process's own.
fn is_foreign(pids: &str) -> bool {
    pids.split_ascii_whitespace().count() != 1
}

/// The number of this process in `/proc`; that of its own namespace if it has none there.
pub(crate) fn own_pid() -> u32 {
    let link = fs::read_link("/proc/self").ok();
    let number = link.as_ref().and_then(|path| path.to_str()?.parse().ok());
    number.unwrap_or_else(std::process::id)
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_number_is_ours() {
        assert!(!super::is_foreign("\t1234"));
        assert!(super::is_foreign("\t1234\t1"));
        assert!(super::is_foreign("\t1234\t77\t1"));
    }
}
