//! `memledger mount`: the ledgers of all processes as files, by FUSE.
//!
//! `PID/allocinfo` and `PID/mem_profiling` have the text, permissions and rules of the kernel's files. A file's text is made when it
//! is opened, so that all reads of one open file are of one moment. Nothing is cached, here or in the kernel: a process that
//! ends is gone from the next look-up. Sizes are 0, as in /proc, and reads go past the page cache.
//!
//! Files belong to the owner of the process (root, where the process may not be dumped), and the kernel checks their
//! permissions; so a mount by root, which others may use, shows nobody more than a debugger would.

mod files;

use crate::args::{Mount, Symbols};
use crate::{Failure, Result};
use files::{FILES, ProcFile};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, SessionACL,
};
use memledger_inspect::{Error, control};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A node's number is the process id shifted by this, plus 1 + the number of the file; the folder itself has 0.
const SHIFT: u32 = 6;
/// Nothing is cached.
const TTL: Duration = Duration::ZERO;

/// Mounts, and serves until a signal comes or somebody unmounts it.
pub(crate) fn run(args: &Mount) -> Result<u8> {
    let fail = |error| Failure::Message(format!("{}: {error}", args.dir.display()));
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    // Before there are threads, which take the mask over.
    signals
        .thread_block()
        .map_err(|error| Failure::Message(error.to_string()))?;
    let signal = SignalFd::new(&signals).map_err(|error| Failure::Message(error.to_string()))?;
    if fs::metadata("/dev/fuse").is_err() {
        return Err(Failure::Message(
            "/dev/fuse is not there: the kernel needs CONFIG_FUSE_FS (modprobe fuse)".to_owned(),
        ));
    }
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("memledger".to_owned()),
        MountOption::Subtype("memledger".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
    ];
    if nix::unistd::geteuid().is_root() {
        config.acl = SessionACL::All;
    }
    let session =
        fuser::spawn_mount(Ledgers::new(args.symbols.clone()), &args.dir, &config).map_err(fail)?;
    loop {
        let mut fds = [PollFd::new(signal.as_fd(), PollFlags::POLLIN)];
        let ready = poll(&mut fds, PollTimeout::from(200_u16));
        if session.guard.is_finished() {
            break;
        }
        if ready.is_ok_and(|count| count > 0) {
            break;
        }
    }
    session.umount_and_join().map_err(fail)?;
    Ok(0)
}

/// The file system.
struct Ledgers {
    symbols: Symbols,
    open: Mutex<HashMap<u64, Arc<Vec<u8>>>>,
    next: AtomicU64,
}

/// What a node's number stands for.
#[derive(Clone, Copy)]
enum Node {
    Root,
    Process(u32),
    File(u32, usize),
}

impl Node {
    fn of(ino: INodeNo) -> Option<Self> {
        let number = u64::from(ino);
        if number == 1 {
            return Some(Node::Root);
        }
        let pid = u32::try_from(number >> SHIFT).ok()?;
        match (number & ((1 << SHIFT) - 1)) as usize {
            0 => Some(Node::Process(pid)),
            n => FILES.get(n - 1).map(|_| Node::File(pid, n - 1)),
        }
    }

    fn number(self) -> INodeNo {
        INodeNo(match self {
            Node::Root => 1,
            Node::Process(pid) => u64::from(pid) << SHIFT,
            Node::File(pid, i) => (u64::from(pid) << SHIFT) + 1 + i as u64,
        })
    }

    /// Its attributes, if it is there now.
    fn attr(self) -> Option<FileAttr> {
        let (kind, perm, owner) = match self {
            Node::Root => (FileType::Directory, 0o555, (0, 0)),
            Node::Process(pid) => {
                ledger(pid)?;
                (FileType::Directory, 0o555, owner(pid)?)
            }
            Node::File(pid, i) => {
                let file = visible(pid, i)?;
                (FileType::RegularFile, file.mode(), owner(pid)?)
            }
        };
        let now = SystemTime::now();
        Some(FileAttr {
            ino: self.number(),
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: owner.0,
            gid: owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

/// User and group of a process's files: root's if it may not be dumped.
fn owner(pid: u32) -> Option<(u32, u32)> {
    let meta = fs::metadata(format!("/proc/{pid}/maps")).ok()?;
    Some((meta.uid(), meta.gid()))
}

/// Has the process a ledger that can be read? Says whether it was started with `never`.
fn ledger(pid: u32) -> Option<bool> {
    match control::get(pid) {
        Ok(_) => Some(false),
        Err(Error::Never { .. }) => Some(true),
        Err(_) => None,
    }
}

/// The file, if the process has it.
fn visible(pid: u32, i: usize) -> Option<&'static dyn ProcFile> {
    let never = ledger(pid)?;
    FILES
        .get(i)
        .copied()
        .filter(|file| !never || file.under_never())
}

/// Process ids from `first` on, in order.
fn processes(first: u32) -> Vec<u32> {
    let dir = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = dir
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid >= first)
        .collect();
    pids.sort_unstable();
    pids
}

impl Ledgers {
    fn new(symbols: Symbols) -> Self {
        Ledgers {
            symbols,
            open: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    /// Opens a file for user `uid`: the handle of its text.
    fn text(&self, ino: INodeNo, uid: u32, read: bool) -> std::result::Result<u64, Errno> {
        let Some(Node::File(pid, i)) = Node::of(ino) else {
            return Err(Errno::EISDIR);
        };
        let file = visible(pid, i).ok_or(Errno::ENOENT)?;
        let before = owner(pid).ok_or(Errno::ENOENT)?;
        // The kernel has checked that; the process may be another one by now.
        if file.mode() & 0o004 == 0 && uid != 0 && uid != before.0 {
            return Err(Errno::EACCES);
        }
        let text = if read {
            file.read(pid, &self.symbols)?
        } else {
            Vec::new()
        };
        if owner(pid) != Some(before) {
            return Err(Errno::ENOENT);
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(handle, Arc::new(text));
        Ok(handle)
    }

    /// Entries of a folder: offset of the next one, node, name; those at `offset` and after.
    fn list(node: Node, offset: u64, mut add: impl FnMut(u64, Node, &str) -> bool) {
        let dots = [(1, "."), (2, "..")];
        for (next, name) in dots.into_iter().filter(|(next, _)| *next > offset) {
            if add(next, node, name) {
                return;
            }
        }
        match node {
            Node::Root => {
                // The offset after process N is N + 2, so a listing goes on where it was, whatever comes and goes.
                let first = u32::try_from(offset.saturating_sub(1)).unwrap_or(u32::MAX);
                for pid in processes(first)
                    .into_iter()
                    .filter(|pid| ledger(*pid).is_some())
                {
                    if add(u64::from(pid) + 2, Node::Process(pid), &pid.to_string()) {
                        return;
                    }
                }
            }
            Node::Process(pid) => {
                for i in 0..FILES.len() {
                    let next = i as u64 + 3;
                    let Some(file) = visible(pid, i).filter(|_| next > offset) else {
                        continue;
                    };
                    if add(next, Node::File(pid, i), file.name()) {
                        return;
                    }
                }
            }
            Node::File(..) => {}
        }
    }
}

impl Filesystem for Ledgers {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_str().unwrap_or("");
        let node = match Node::of(parent) {
            // As the kernel: no leading zeros or signs.
            Some(Node::Root) => name
                .parse()
                .ok()
                .filter(|pid: &u32| pid.to_string() == name)
                .map(Node::Process),
            Some(Node::Process(pid)) => FILES
                .iter()
                .position(|file| file.name() == name)
                .map(|i| Node::File(pid, i)),
            _ => None,
        };
        match node.and_then(Node::attr) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match Node::of(ino).and_then(Node::attr) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    // The shell's `>` truncates; nothing else can be set.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.or(uid).or(gid).is_some() {
            return reply.error(Errno::EPERM);
        }
        match Node::of(ino).and_then(Node::attr) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let read = flags.acc_mode() != OpenAccMode::O_WRONLY;
        match self.text(ino, request.uid(), read) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let text = open.get(&handle.0).cloned();
        drop(open);
        let Some(text) = text else {
            return reply.error(Errno::EBADF);
        };
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(text.len());
        let end = start.saturating_add(size as usize).min(text.len());
        reply.data(&text[start..end]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: fuser::WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let result = match Node::of(ino) {
            Some(Node::File(pid, i)) if offset == 0 => FILES[i].write(pid, data),
            _ => Err(Errno::EINVAL),
        };
        match result {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&handle.0);
        drop(open);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(node) = Node::of(ino) else {
            return reply.error(Errno::ENOENT);
        };
        Ledgers::list(node, offset, |next, node, name| {
            let kind = match node {
                Node::File(..) => FileType::RegularFile,
                _ => FileType::Directory,
            };
            reply.add(node.number(), next, kind, name)
        });
        reply.ok();
    }
}
