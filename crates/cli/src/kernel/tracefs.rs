//! Tracefs: where it is mounted, and an instance of our own in it.
//!
//! An instance (`instances/NAME`) has its own ring buffers and its own switches for events, so that other users of tracing are not
//! disturbed. It lives until somebody removes it, which must happen however this program ends. A second process, the keeper, sees to
//! that: it waits for the end of its standard input, which is a pipe that only this program holds open, and then removes the
//! instance. So it happens after SIGKILL too. If the keeper was killed as well, the instance is found and removed at the next
//! start: its name has the process's number and start time in it.

use crate::{Failure, Result};
use memledger_formats::trace::ring::{EventFormat, PageFormat};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// First argument by which this program knows that it is the keeper; the second is the directory of the instance.
const KEEPER: &str = "--memledger-keeper";
const PREFIX: &str = "memledger-";
/// Bytes read at once.
const BLOCK: usize = 64 << 10;

/// A mounted tracefs.
#[derive(Debug, Clone)]
pub(crate) struct Tracefs(pub(crate) PathBuf);

/// A failure with the file that it is of.
fn of(path: &Path, error: &io::Error) -> Failure {
    Failure::Message(format!("{}: {error}", path.display()))
}

impl Tracefs {
    /// Finds it. The error says what to do.
    pub(crate) fn find() -> Result<Tracefs> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounted = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (dir, kind) = (words.next()?, words.next()?);
            (kind == "tracefs").then(|| PathBuf::from(dir.replace("\\040", " ")))
        });
        let Some(dir) = mounted else {
            let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
            let why = if known.lines().any(|line| line.ends_with("\ttracefs")) {
                "tracefs is not mounted; mount it with: mount -t tracefs nodev /sys/kernel/tracing"
            } else {
                "this kernel has no tracefs (CONFIG_TRACING)"
            };
            return Err(Failure::Message(why.to_owned()));
        };
        let kmem = dir.join("events/kmem");
        match fs::read_dir(&kmem) {
            Ok(_) => Ok(Tracefs(dir)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(Failure::Message(format!(
                    "{}: {error}; only root may trace the kernel",
                    kmem.display()
                )))
            }
            Err(error) => Err(of(&kmem, &error)),
        }
    }

    /// Text of a file. Some files (`events/header_page`) give all they have to the first read, or lose the rest.
    pub(crate) fn text(&self, file: &str) -> Result<String> {
        let path = self.0.join(file);
        let read = || -> io::Result<Vec<u8>> {
            let (mut input, mut all) = (fs::File::open(&path)?, Vec::new());
            let mut block = vec![0; BLOCK];
            loop {
                match input.read(&mut block) {
                    Ok(0) => return Ok(all),
                    Ok(n) => all.extend_from_slice(&block[..n]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        };
        let bytes = read().map_err(|error| of(&path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether the kernel has an event of the kmem group.
    pub(crate) fn has(&self, event: &str) -> bool {
        self.0.join("events/kmem").join(event).is_dir()
    }

    /// How records of a kmem event look.
    pub(crate) fn format(&self, event: &str) -> Result<EventFormat> {
        let file = format!("events/kmem/{event}/format");
        EventFormat::parse(&self.text(&file)?)
            .ok_or_else(|| Failure::Message(format!("{file}: not understood")))
    }

    /// How pages of the ring buffer look.
    pub(crate) fn page(&self) -> Result<PageFormat> {
        PageFormat::parse(&self.text("events/header_page")?)
            .ok_or_else(|| Failure::Message("events/header_page: not understood".to_owned()))
    }

    /// Removes instances of processes that are gone; returns their names. One that is still in use cannot be removed, so a
    /// process in another pid namespace loses nothing.
    pub(crate) fn remove_stale(&self) -> Vec<String> {
        let mut gone = Vec::new();
        let entries = fs::read_dir(self.0.join("instances"));
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((pid, start)) = name.strip_prefix(PREFIX).and_then(|s| s.split_once('-'))
            else {
                continue;
            };
            let (Ok(pid), Ok(start)) = (pid.parse::<u32>(), start.parse::<u64>()) else {
                continue;
            };
            if start_time(pid) != Some(start) && fs::remove_dir(entry.path()).is_ok() {
                gone.push(name);
            }
        }
        gone
    }
}

/// Start time of a process, in clock ticks after the boot; `None`: there is none.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// An instance; removed when dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Its directory.
    pub(crate) dir: PathBuf,
    keeper: Option<Child>,
}

impl Instance {
    /// Makes one, with tracing off. The clock is one that is the same on all processors.
    pub(crate) fn new(tracefs: &Tracefs, buffer_kib: u64) -> Result<Instance> {
        for name in tracefs.remove_stale() {
            eprintln!("memledger: removed the trace instance {name} of a process that is gone");
        }
        let pid = std::process::id();
        let start = start_time(pid).unwrap_or(0);
        let dir = tracefs
            .0
            .join("instances")
            .join(format!("{PREFIX}{pid}-{start}"));
        let keeper = keeper(&dir)?;
        fs::create_dir(&dir).map_err(|error| of(&dir, &error))?;
        let instance = Instance {
            dir,
            keeper: Some(keeper),
        };
        instance.set("tracing_on", "0")?;
        instance.set("trace_clock", "mono")?;
        instance.set("buffer_size_kb", &buffer_kib.to_string())?;
        Ok(instance)
    }

    /// Writes to a file of it.
    pub(crate) fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value)
            .map_err(|error| Failure::Message(format!("{}: {value:?}: {error}", path.display())))
    }

    /// The processors that it has buffers of, in order.
    pub(crate) fn cpus(&self) -> Result<Vec<u32>> {
        let path = self.dir.join("per_cpu");
        let entries = fs::read_dir(&path).map_err(|error| of(&path, &error))?;
        let mut cpus: Vec<u32> = entries
            .flatten()
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_prefix("cpu")?
                    .parse()
                    .ok()
            })
            .collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// What `per_cpu/cpuN/stats` says.
    pub(crate) fn stats(&self, cpu: u32) -> String {
        fs::read_to_string(self.dir.join(format!("per_cpu/cpu{cpu}/stats"))).unwrap_or_default()
    }

    /// Events lost on a processor so far: overwritten, dropped, or not committed.
    pub(crate) fn lost(&self, cpu: u32) -> u64 {
        let stats = self.stats(cpu);
        let value = |name: &str| -> u64 {
            let line = stats.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
        };
        value("overrun:") + value("commit overrun:") + value("dropped events:")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let removed = remove(&self.dir);
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
        if !removed && self.dir.exists() {
            eprintln!("memledger: {} could not be removed", self.dir.display());
        }
    }
}

/// Removes an instance; false: it is in use.
fn remove(dir: &Path) -> bool {
    let _ = fs::write(dir.join("tracing_on"), "0");
    fs::remove_dir(dir).is_ok() || !dir.exists()
}

/// Starts the keeper, in a process group of its own so that a ^C at the terminal does not reach it.
fn keeper(dir: &Path) -> Result<Child> {
    Command::new("/proc/self/exe")
        .arg(KEEPER)
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| Failure::Message(format!("/proc/self/exe: {error}")))
}

/// If this process was started as the keeper: waits and removes, and returns the exit code.
pub(crate) fn keep() -> Option<u8> {
    let mut args = std::env::args_os().skip(1);
    if args.next()? != KEEPER {
        return None;
    }
    let dir: OsString = args.next()?;
    let mut rest = [0];
    while matches!(io::stdin().read(&mut rest), Ok(n) if n > 0) {}
    // The files of a process that was killed may take a moment to be closed.
    for _ in 0..100 {
        if remove(Path::new(&dir)) {
            return Some(0);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!("memledger: {} could not be removed", dir.display());
    Some(1)
}
