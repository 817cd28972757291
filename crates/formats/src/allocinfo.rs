//! `/proc/allocinfo`: live bytes and live calls of every line that allocates.
//!
//! ```text
//! allocinfo - version: 2.0
//! #     <size>  <calls> <tag info>
//!         2048        8 lableak.c:21 [lableak] func:lableak_init ␠
//!     22249472     2742 mm/slub.c:3347 func:alloc_slab_page accurate:no ␠
//! ```
//! The kernel prints a row with `"%12lli %8llu "`, then the tag, then one blank (`␠`) and a newline. Version 1.0 has no
//! `accurate:no`. Follows `mm/alloc_tag.c` of Linux 7.3 and `lib/alloc_tag.c` of 6.12.
//!
//! # Reading
//! [`Reader`] streams; [`read`] collects. A line is cut at white space, not at columns (they grow):
//!
//! ```text
//! row    = BYTES CALLS FILE ":" LINE [ "[" MODULE "]" ] " func:" FUNC { " " KEY ":" VALUE } { blank }
//! ```
//! - BYTES is signed; above `i64::MAX` it is taken as a wrapped negative number. CALLS is unsigned; negative is wrapped.
//! - The first ` func:` that follows a place (`FILE:LINE` or `FILE:LINE [MODULE]`) ends the place. LINE is what follows the
//!   last colon; MODULE starts at the last ` [` that follows `:LINE`. So FILE may hold blanks, colons and brackets.
//! - FUNC runs to the tail or the end. The tail is the longest run of words at the end that look like `key:value`: KEY is a
//!   lower-case ASCII word (`[a-z][a-z0-9_]*`), VALUE is not empty and has none of `: ( ) [ ] < > { }` in it. Words of
//!   C++, Rust and Objective-C names are not that. FUNC may thus hold blanks: `operator new(unsigned long)`.
//! - `accurate:no` makes [`Row::accurate`] false; all other words of the tail go to [`Row::extra`].
//! - Lines that start with `allocinfo` or `#`, and empty lines, are not rows; a header may be absent or come again.
//! - `\r`, blanks at the end and a missing last newline are accepted. A last line without newline that breaks off, or that
//!   alone lacks the trailing blank of the lines before it, is reported as [`BadKind::Truncated`].
//!
//! # Characters with a meaning
//! So that what is printed reads back as the same row, [`Writer`] prints a character as a backslash and three octal digits
//! (as `/proc/self/mounts` does) where it would be misread: control characters; the blank of a ` func:` in a file or module
//! (of ` func` at the end of a file); blanks at the start or end of a field; the blank of a ` [` in a module; blanks before
//! words at the end of a function name that look like a tail; structure and blanks in a VALUE; a backslash that is followed
//! by such digits itself. The parser turns `\000` to `\177` back. Bytes that are not UTF-8 become the text `\200` to `\377`
//! and stay so. None of this occurs in what a kernel prints, unless a build path is very odd.
//!
//! # Adding up
//! A key (file, line, module, function) may occur more than once: inlined functions of headers. See [`merge_by_key`]. Never
//! take the sum of a kernel's file as memory used: see [`kernel_total`].

mod filter;
mod parse;
mod reader;
mod sort;
mod total;
mod writer;

pub use filter::{Filter, Pattern};
pub use parse::parse_row;
pub use reader::{Allocinfo, DEFAULT_MAX_LINE, Item, Reader, read};
pub use sort::{SortKey, SortSpec, SpecError};
pub use total::{KernelTotal, Total, is_backing, is_metadata, kernel_total, merge_by_key, total};
pub use writer::{Writer, write, write_row};

use std::fmt;

/// Version of the text format, from the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Changes when old parsers break.
    pub major: u32,
    /// Changes when something is added.
    pub minor: u32,
}

impl Version {
    /// Linux 6.10 to 6.17: no `accurate:no`.
    pub const V1_0: Self = Self { major: 1, minor: 0 };
    /// Linux 6.18 and later, and memledger.
    pub const V2_0: Self = Self { major: 2, minor: 0 };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// One row: what the allocations of one line of source hold now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Row {
    /// Live bytes. Negative only by a race of the producer.
    pub bytes: i64,
    /// Live allocations. Printed unsigned; see [`Row::calls_signed`].
    pub calls: u64,
    /// Source file. Relative to the kernel's tree, a bare name, or an absolute path.
    pub file: String,
    /// Line; 0 if unknown.
    pub line: u32,
    /// Module (kernel) or shared object (memledger); `None` for what is built in.
    pub module: Option<String>,
    /// Function.
    pub func: String,
    /// False if allocations were missed, so that the row is too low.
    pub accurate: bool,
    /// Words `key:value` at the end of the line that this version does not know. A key is a lower-case word, a value not
    /// empty.
    pub extra: Vec<(String, String)>,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            bytes: 0,
            calls: 0,
            file: String::new(),
            line: 0,
            module: None,
            func: String::new(),
            accurate: true,
            extra: Vec::new(),
        }
    }
}

impl Row {
    /// Live allocations, with a wrapped negative number shown as negative.
    #[must_use]
    pub fn calls_signed(&self) -> i64 {
        self.calls.cast_signed()
    }

    /// Bytes of one allocation on average; 0 without calls.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an average for people")]
    pub fn avg(&self) -> f64 {
        if self.calls == 0 {
            0.0
        } else {
            self.bytes as f64 / self.calls_signed() as f64
        }
    }

    /// What the row is about: file, line, module, function. Not unique within a file.
    #[must_use]
    pub fn key(&self) -> (&str, u32, Option<&str>, &str) {
        (&self.file, self.line, self.module.as_deref(), &self.func)
    }

    /// True if nothing is live.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.bytes == 0 && self.calls == 0
    }

    /// The row without its numbers, as it is printed: `FILE:LINE [MODULE] func:FUNC`, and ` accurate:no` if it is not.
    #[must_use]
    pub fn tag_info(&self) -> String {
        let mut out = String::new();
        writer::push_tag(&mut out, self, Version::V2_0);
        out
    }
}

/// Why a line is not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BadKind {
    /// The last line, without its end.
    Truncated,
    /// Longer than the reader's limit.
    TooLong,
    /// Does not start with a number of bytes.
    Bytes,
    /// No number of calls.
    Calls,
    /// No `FILE:LINE` and ` func:`.
    Place,
}

impl fmt::Display for BadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "truncated",
            Self::TooLong => "line too long",
            Self::Bytes => "no number of bytes",
            Self::Calls => "no number of calls",
            Self::Place => "no FILE:LINE func:NAME",
        })
    }
}

/// A line that is not a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Number of the line, from 1.
    pub number: u64,
    /// What is wrong with it.
    pub kind: BadKind,
    /// Its text without the newline, at most the first 4096 bytes.
    pub text: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {:?}", self.number, self.kind, self.text)
    }
}

impl std::error::Error for BadLine {}
