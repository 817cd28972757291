//! Saved dumps: plain or packed, from files or standard input, with progress on a terminal.

use crate::{Failure, Result};
use std::fs::File;
use std::io::{self, Cursor, ErrorKind, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

/// An error with the file it is about.
pub(super) fn named(path: &Path, error: &io::Error) -> Failure {
    Failure::Message(format!("{}: {error}", path.display()))
}

/// Opens a dump; `-` is standard input. What is packed with xz, gzip or zstd, known by its first bytes, is unpacked.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let (from, size): (Box<dyn Read>, u64) = if path.as_os_str() == "-" {
        (Box::new(io::stdin()), 0)
    } else {
        let file = File::open(path).map_err(|error| named(path, &error))?;
        let meta = file.metadata().map_err(|error| named(path, &error))?;
        if meta.is_dir() {
            return Err(named(path, &ErrorKind::IsADirectory.into()));
        }
        (Box::new(file), meta.len())
    };
    let progress = Progress {
        from,
        size,
        read: 0,
        last: io::stderr().is_terminal().then(Instant::now),
        shown: false,
    };
    unpack(progress).map_err(|error| named(path, &error))
}

fn unpack(mut from: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut start = Vec::new();
    from.by_ref().take(6).read_to_end(&mut start)?;
    let xz = start == b"\xfd7zXZ\0";
    let (gzip, zstd) = (
        start.starts_with(b"\x1f\x8b"),
        start.starts_with(b"\x28\xb5\x2f\xfd"),
    );
    let whole = Cursor::new(start).chain(from);
    Ok(if xz {
        Box::new(liblzma::read::XzDecoder::new_multi_decoder(whole))
    } else if gzip {
        Box::new(flate2::read::MultiGzDecoder::new(whole))
    } else if zstd {
        Box::new(zstd::stream::read::Decoder::new(whole)?)
    } else {
        Box::new(whole)
    })
}

/// Says on standard error how far it is, if that is a terminal.
struct Progress {
    from: Box<dyn Read>,
    /// 0 = not known.
    size: u64,
    read: u64,
    last: Option<Instant>,
    shown: bool,
}

impl Read for Progress {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(buf)?;
        self.read += n as u64;
        if self.last.is_some_and(|last| last.elapsed() >= EVERY) {
            self.last = Some(Instant::now());
            self.shown = true;
            let mib = self.read >> 20;
            let _ = match self.size >> 20 {
                0 => write!(io::stderr(), "\rread {mib} MiB"),
                size => write!(io::stderr(), "\rread {mib} of {size} MiB"),
            };
        }
        Ok(n)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            // Back, and the rest of the line gone.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
