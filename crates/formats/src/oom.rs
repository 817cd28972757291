//! The block of the largest rows that a kernel logs when memory runs out, when an allocation fails, or for sysrq-m.
//!
//! ```text
//! [  553.335933] Memory allocations (profiling is currently turned on):
//! [  553.335949]     1.53 GiB   402420 mm/memory.c:1289 func:folio_prealloc
//! [  553.335963]      167 MiB    42861 mm/shmem.c:1938 func:shmem_alloc_folio
//! ```
//! Linux 6.10 to 6.12 say `Memory allocations:`. The kernel prints ten rows with `"%12s %8llu "` and the tag; sizes are
//! those of [`crate::size::kernel`], so that they are known to three digits only. Follows `show_mem()` of `lib/show_mem.c`
//! and `mm/show_mem.c`.
//!
//! # Reading
//! [`Reader`] streams over any log. What `dmesg` (in all its forms of time), `journalctl` and syslog put before a line is
//! passed over: `<PRIORITY>`, all up to `kernel: `, and `[...]`. A block ends with its tenth row, with the header of the
//! next one, or with [`MAX_GAP`] lines in a row that are none: other processors may log in between.

use std::io::{self, BufRead, Read};

use crate::allocinfo::{BadKind, BadLine, Row, parse_row};
use crate::size::parse_size;

/// Rows of a block.
pub const ROWS: usize = 10;

/// Lines in a row that may stand between two rows of a block.
pub const MAX_GAP: usize = 8;

/// Longest line that is looked at, in bytes. The kernel's are below 1024 and a prefix.
const MAX_LINE: usize = 1 << 16;

/// How much of a bad line is kept, in bytes.
const KEEP: usize = 4096;

/// One block of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Block {
    /// Number of its header's line in the log, from 1.
    pub line: u64,
    /// Whether profiling was on; `None` if the kernel does not say (6.10 to 6.12).
    pub profiling: Option<bool>,
    /// Its rows, at most [`ROWS`]; bytes are rounded to three digits by the kernel.
    pub rows: Vec<Row>,
    /// Lines that look like rows and are not. At most [`ROWS`] are kept.
    pub bad: Vec<BadLine>,
}

/// Reads the blocks of a log: an iterator. Memory is bounded by one block and one line. An I/O error is one item, after
/// which nothing more comes.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    open: Option<Block>,
    gap: usize,
    done: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
            open: None,
            gap: 0,
            done: false,
        }
    }

    /// Puts the next line into `self.line`, of a longer one its first [`MAX_LINE`] bytes. False at the end.
    fn next_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        let mut part = self.input.by_ref().take(MAX_LINE as u64);
        part.read_until(b'\n', &mut self.line)?;
        if self.line.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        if self.line.len() == MAX_LINE && !self.line.ends_with(b"\n") {
            skip_line(&mut self.input)?;
        }
        Ok(true)
    }

    /// Takes the line in; the block that it ended, if any.
    fn take_line(&mut self) -> Option<Block> {
        let text = String::from_utf8_lossy(&self.line);
        let text = without_prefix(text.trim_end());
        if let Some(profiling) = header(text) {
            self.gap = 0;
            return self.open.replace(Block {
                line: self.number,
                profiling,
                ..Block::default()
            });
        }
        let block = self.open.as_mut()?;
        match row(text) {
            Some(Ok(row)) => {
                block.rows.push(row);
                self.gap = 0;
            }
            other => {
                self.gap += 1;
                if let Some(Err(kind)) = other
                    && block.bad.len() < ROWS
                {
                    block.bad.push(BadLine {
                        number: self.number,
                        kind,
                        text: text.chars().take(KEEP / 4).collect(),
                    });
                }
            }
        }
        if block.rows.len() == ROWS || self.gap == MAX_GAP {
            return self.open.take();
        }
        None
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = io::Result<Block>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            match self.next_line() {
                Ok(true) => {
                    if let Some(block) = self.take_line() {
                        return Some(Ok(block));
                    }
                }
                Ok(false) => self.done = true,
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
        self.open.take().map(Ok)
    }
}

/// Reads on to the end of the line.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buf = match input.fill_buf() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let newline = memchr::memchr(b'\n', buf);
        let used = newline.map_or(buf.len(), |at| at + 1);
        let end = newline.is_some() || buf.is_empty();
        input.consume(used);
        if end {
            return Ok(());
        }
    }
}

/// The line without what the log put before it.
fn without_prefix(line: &str) -> &str {
    let mut rest = line.trim_start();
    if let Some((priority, after)) = rest.strip_prefix('<').and_then(|r| r.split_once('>'))
        && priority.bytes().all(|b| b.is_ascii_digit())
    {
        rest = after.trim_start();
    }
    if let Some((before, after)) = rest.split_once("kernel: ")
        && !before.contains("func:")
    {
        rest = after.trim_start();
    }
    while let Some((_, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        rest = after.trim_start();
    }
    rest
}

/// Whether the line is a header, and what it says of profiling.
fn header(text: &str) -> Option<Option<bool>> {
    match text.strip_prefix("Memory allocations")? {
        ":" => Some(None),
        " (profiling is currently turned on):" => Some(Some(true)),
        " (profiling is currently turned off):" => Some(Some(false)),
        _ => None,
    }
}

/// The line as a row; `None` if it does not look like one: `NUMBER UNIT ... func:`.
fn row(text: &str) -> Option<Result<Row, BadKind>> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) || !text.contains(" func:") {
        return None;
    }
    let parsed = || {
        let (number, rest) = text.split_once(' ').ok_or(BadKind::Bytes)?;
        let (unit, rest) = rest.split_once(' ').ok_or(BadKind::Bytes)?;
        if !unit.ends_with('B') {
            return Err(BadKind::Bytes);
        }
        let bytes = parse_size(&format!("{number} {unit}")).map_err(|_| BadKind::Bytes)?;
        parse_row(&format!("{bytes} {}", rest.trim_start()))
    };
    Some(parsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::kernel;
    use proptest::prelude::*;

    fn blocks(log: &str) -> Vec<Block> {
        Reader::new(log.as_bytes())
            .map(|block| block.expect("memory does not fail"))
            .collect()
    }

    #[test]
    fn a_block_is_found_behind_any_prefix() {
        for prefix in [
            "",
            "[  553.335949] ",
            "[  553.335949][ T1234] ",
            "<4>[  553.335949] ",
            "[Sun Nov 29 23:04:31 2026] ",
            "Nov 29 23:04:31 host kernel: ",
            "2026-11-29T23:04:31+00:00 host kernel: [  553.335949] ",
        ] {
            let log = format!(
                "{prefix}Mem-Info:\n{prefix}Memory allocations (profiling is currently turned on):\n\
                 {prefix}    1.50 GiB   402420 mm/memory.c:1289 func:folio_prealloc\n\
                 {prefix}another processor\n{prefix}      64 B        8 a.c:2 [mod] func:g\n"
            );
            let all = blocks(&log);
            assert_eq!(all.len(), 1, "{prefix:?}");
            assert_eq!((all[0].line, all[0].profiling), (2, Some(true)));
            assert_eq!(all[0].bad, []);
            let rows: Vec<_> = all[0]
                .rows
                .iter()
                .map(|r| (r.bytes, r.calls, r.key()))
                .collect();
            let first = ("mm/memory.c", 1289, None, "folio_prealloc");
            let second = ("a.c", 2, Some("mod"), "g");
            assert_eq!(
                rows,
                [(3 << 29, 402_420, first), (64, 8, second)],
                "{prefix:?}"
            );
        }
    }

    #[test]
    fn blocks_end() {
        let row = "  1.00 KiB  1 a.c:1 func:f\n";
        let gap = "x\n".repeat(MAX_GAP);
        let log = format!(
            "{row}Memory allocations:\n{row}{gap}{row}Memory allocations:\n{}",
            row.repeat(12)
        );
        let all = blocks(&log);
        assert_eq!(
            all.iter().map(|b| b.rows.len()).collect::<Vec<_>>(),
            [1, ROWS]
        );
        assert_eq!(all[0].profiling, None);
        let two = blocks(
            "Memory allocations:\nMemory allocations (profiling is currently turned off):\n",
        );
        assert_eq!(
            two.iter().map(|b| b.profiling).collect::<Vec<_>>(),
            [None, Some(false)]
        );
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let all =
            blocks("Memory allocations:\n 1.0 XiB 3 a.c:1 func:f\n 1.00 KiB x a.c:1 func:f\n");
        let bad: Vec<_> = all[0].bad.iter().map(|b| (b.number, b.kind)).collect();
        assert_eq!(bad, [(2, BadKind::Bytes), (3, BadKind::Calls)]);
    }

    #[test]
    fn long_lines_are_cut() {
        let log = format!(
            "{}\nMemory allocations:\n 5 B 1 a.c:1 func:f\n",
            "y".repeat(3 * MAX_LINE)
        );
        let all = blocks(&log);
        assert_eq!((all[0].line, all[0].rows.len()), (2, 1));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let log = [b"Memory allocations:\n".as_slice(), &bytes].concat();
            for block in Reader::new(log.as_slice()) {
                prop_assert!(block.expect("memory").rows.len() <= ROWS);
            }
        }

        #[test]
        fn printed_as_the_kernel_does_reads_back(bytes in 0..i64::MAX / 2, calls: u64, line: u32) {
            let log = format!("Memory allocations:\n{:>12} {calls:>8} a.c:{line} func:f\n", kernel(bytes));
            let row = &blocks(&log)[0].rows[0];
            prop_assert_eq!((row.calls, row.line), (calls, line));
            prop_assert_eq!(kernel(row.bytes), kernel(bytes));
        }
    }
}
