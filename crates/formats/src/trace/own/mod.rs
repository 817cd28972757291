//! memledger's own trace file.
//!
//! ```text
//! file  = "mltrace\n" version(u32) block*
//! block = kind(u32) length(u32) crc32(u32, of kind, length and payload) payload
//! ```
//! Integers of the frame are little-endian; in payloads they are LEB128, signed ones zigzag-coded, texts a length and UTF-8. Blocks:
//!
//! | kind | payload |
//! | --- | --- |
//! | 1 about | count, then pairs of texts: pid, comm, exe, start (`CLOCK_REALTIME` - `CLOCK_MONOTONIC`, ns), ... |
//! | 2 sites | count, then: index, kind, charged frame, frames: each function, file, line, module, address |
//! | 3 events | threads: count, ids; count, then the events, each as the difference to the one before |
//! | 4 lost | ring, thread, events |
//! | 5 end | events, lost events |
//!
//! The file is only appended to. A site may be described twice, the second time with symbols: the last one counts. Times are
//! nanoseconds of `CLOCK_MONOTONIC`. What is behind the last whole block (the recorder was killed, the disk was full) is told as bad
//! input; all before it is good, as far as the checksums say.

mod print;
mod read;
mod write;

pub use print::{Style, print};
pub use read::{Block, Blocks, OwnTrace};
pub use write::Writer;

/// First bytes of a file.
pub const MAGIC: &[u8; 8] = b"mltrace\n";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Most bytes of a block's payload.
pub const MAX_BLOCK: usize = 1 << 24;

pub(crate) const ABOUT: u32 = 1;
pub(crate) const SITES: u32 = 2;
pub(crate) const EVENTS: u32 = 3;
pub(crate) const LOST: u32 = 4;
pub(crate) const END: u32 = 5;

/// An event, as the runtime tracer has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Raw {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Address.
    pub ptr: u64,
    /// 1 = allocation, 2 = free, 3 = the table of live objects was full.
    pub op: u8,
    /// 0 = kmalloc, 1 = cache, 2 = pages.
    pub kind: u8,
    /// Bit 0 zeroed, bit 1 aligned, bit 2 part of a change of size.
    pub flags: u8,
    /// Tag or site.
    pub index: u32,
    /// CPU; 65535 = not known.
    pub cpu: u16,
    /// Thread; 0 = not known.
    pub tid: u32,
    /// Bytes asked for; of a free, those given.
    pub requested: u64,
    /// Bytes given.
    pub given: u64,
}

/// A frame of a site.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteFrame {
    /// Function; empty = not known.
    pub func: String,
    /// Source file; empty = not known.
    pub file: String,
    /// Line, from 1; 0 = not known.
    pub line: u32,
    /// Object file.
    pub module: String,
    /// Address in the object file's own terms.
    pub addr: u64,
}

/// What an index stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SiteInfo {
    /// The index.
    pub index: u32,
    /// 0 = site, 1 = tag, 2 = reserved row.
    pub kind: u8,
    /// Which of the frames is charged.
    pub charged: u32,
    /// Innermost first.
    pub frames: Vec<SiteFrame>,
}

impl SiteInfo {
    /// The line that is charged, as `function file:line`.
    #[must_use]
    pub fn text(&self) -> String {
        let Some(f) = self.frames.get(self.charged as usize) else {
            return format!("#{}", self.index);
        };
        frame_text(f)
    }
}

/// A frame as `function file:line`, or what is known of it.
#[must_use]
pub fn frame_text(f: &SiteFrame) -> String {
    let func = match f.func.as_str() {
        "" => format!("{}+{:#x}", f.module, f.addr),
        func => func.to_owned(),
    };
    match (f.file.as_str(), f.line) {
        ("", _) => func,
        (file, 0) => format!("{func} {file}"),
        (file, line) => format!("{func} {file}:{line}"),
    }
}
