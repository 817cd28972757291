//! Streaming: one line in memory at a time, and no more of it than a limit.

use std::io::{self, BufRead};

use super::parse::{parse_row, text, trim};
use super::{BadKind, BadLine, Row, Version};

/// Longest line that a [`Reader`] accepts by default, in bytes.
pub const DEFAULT_MAX_LINE: usize = 1 << 20;

/// How much of a bad line is kept, in bytes.
const KEEP: usize = 4096;

/// What a [`Reader`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A row.
    Row(Row),
    /// A line that is not one.
    Bad(BadLine),
}

/// Reads rows from a buffered reader. An iterator of items; an I/O error is one item, after which reading may go on.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    max_line: usize,
    version: Option<Version>,
    /// Whether all rows so far ended in a blank, as a kernel's do; `None` before the first.
    blank_ends: Option<bool>,
}

/// A whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocinfo {
    /// From the header, if there was one.
    pub version: Option<Version>,
    /// The rows, in the order of the file.
    pub rows: Vec<Row>,
    /// The lines that are not rows.
    pub bad: Vec<BadLine>,
}

/// Reads all rows. Memory grows with the number of rows; use a [`Reader`] to keep less.
///
/// # Errors
/// Those of the input.
pub fn read(input: impl BufRead) -> io::Result<Allocinfo> {
    let mut out = Allocinfo::default();
    let mut reader = Reader::new(input);
    for item in &mut reader {
        match item? {
            Item::Row(row) => out.rows.push(row),
            Item::Bad(bad) => out.bad.push(bad),
        }
    }
    out.version = reader.version();
    Ok(out)
}

impl<R: BufRead> Reader<R> {
    /// Reads from `input`; lines may be as long as [`DEFAULT_MAX_LINE`].
    pub fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
            max_line: DEFAULT_MAX_LINE,
            version: None,
            blank_ends: None,
        }
    }

    /// Sets the longest accepted line, in bytes without its newline. Longer ones are reported as [`BadKind::TooLong`].
    #[must_use]
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }

    /// The version of the last header read so far.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Number of the last line read, from 1.
    #[must_use]
    pub fn line_number(&self) -> u64 {
        self.number
    }

    /// Puts the next line, without its newline, into `self.line`. The end that it had; `None` at the end of the input.
    fn next_line(&mut self) -> io::Result<Option<End>> {
        self.line.clear();
        let mut too_long = false;
        let mut any = false;
        loop {
            let buf = match self.input.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if buf.is_empty() {
                let end = if too_long { End::TooLong } else { End::Eof };
                return Ok(any.then_some(end));
            }
            any = true;
            let newline = buf.iter().position(|&b| b == b'\n');
            let part = &buf[..newline.unwrap_or(buf.len())];
            let room = self.max_line - self.line.len();
            too_long |= part.len() > room;
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(newline.is_some());
            self.input.consume(used);
            if newline.is_some() {
                return Ok(Some(if too_long { End::TooLong } else { End::Newline }));
            }
        }
    }

    /// What the line in `self.line` is; `None` if it is not meant to be a row.
    fn item(&mut self, end: End) -> Option<Item> {
        if end == End::TooLong {
            return Some(self.bad(BadKind::TooLong));
        }
        let line = match std::str::from_utf8(&self.line) {
            Ok(line) => line,
            Err(_) => &text(&self.line),
        };
        let trimmed = trim(line);
        if let Some(rest) = trimmed.strip_prefix("allocinfo") {
            self.version = version(rest).or(self.version);
            return None;
        }
        if trimmed.is_empty() || trimmed.starts_with('#') {
            return None;
        }
        let blank = line.trim_end_matches('\r').ends_with([' ', '\t']);
        let cut = end == End::Eof && !blank;
        match parse_row(line) {
            Ok(_) if cut && self.blank_ends == Some(true) => Some(self.bad(BadKind::Truncated)),
            Ok(row) => {
                self.blank_ends = Some(blank && self.blank_ends != Some(false));
                Some(Item::Row(row))
            }
            Err(_) if end == End::Eof => Some(self.bad(BadKind::Truncated)),
            Err(kind) => Some(self.bad(kind)),
        }
    }

    fn bad(&self, kind: BadKind) -> Item {
        let kept = &self.line[..self.line.len().min(KEEP)];
        Item::Bad(BadLine {
            number: self.number,
            kind,
            text: text(kept),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Newline,
    Eof,
    TooLong,
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let end = match self.next_line() {
                Ok(end) => end?,
                Err(e) => return Some(Err(e)),
            };
            self.number += 1;
            if let Some(item) = self.item(end) {
                return Some(Ok(item));
            }
        }
    }
}

/// The version in the rest of a header line, ` - version: 2.0`.
fn version(rest: &str) -> Option<Version> {
    let (_, number) = rest.split_once("version:")?;
    let (major, minor) = number.trim().split_once('.')?;
    Some(Version {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(s: &[u8]) -> Allocinfo {
        read(s).expect("reading memory does not fail")
    }

    #[test]
    fn header_crlf_blank_lines_and_no_newline() {
        let a = all(b"allocinfo - version: 2.0\r\n#     <size>  <calls> <tag info>\r\n\r\n1 1 a.c:1 func:f\r\n2 1 a.c:2 func:g");
        assert_eq!(a.version, Some(Version::V2_0));
        assert_eq!(a.rows.len(), 2);
        assert_eq!(a.rows[1].func, "g");
        assert!(a.bad.is_empty());
        assert_eq!(all(b"1 1 a.c:1 func:f \n").version, None);
        assert!(all(b"").rows.is_empty());
    }

    #[test]
    fn truncated_last_line_is_reported() {
        let full = b"   1   1 a.c:1 func:f \n   2   2 a.c:2 [mod] func:gg accurate:no \n";
        for cut in 24..full.len() - 2 {
            let a = all(&full[..cut]);
            if full[..cut].ends_with(b":gg ") {
                // Cut after a word and its blank, the line cannot be told from a whole one.
                assert_eq!(a.rows.len(), 2);
                continue;
            }
            assert_eq!(a.rows.len(), 1, "{cut}");
            if full[23..cut].iter().all(|b| *b == b' ') {
                continue;
            }
            assert_eq!(
                (a.bad[0].kind, a.bad[0].number),
                (BadKind::Truncated, 2),
                "{cut}"
            );
        }
        assert_eq!(all(&full[..full.len() - 1]).rows.len(), 2);
    }

    #[test]
    fn bad_lines_keep_number_and_text() {
        let a = all(b"1 1 a.c:1 func:f \nafter clean rmmod: 0 rows\n1 1 \xff.c:1 func:f \n");
        assert_eq!(a.rows.len(), 2);
        assert_eq!(a.rows[1].file, r"\377.c");
        let want = BadLine {
            number: 2,
            kind: BadKind::Bytes,
            text: "after clean rmmod: 0 rows".into(),
        };
        assert_eq!(a.bad, [want]);
    }

    #[test]
    fn long_lines_are_bounded() {
        let mut file = b"1 1 a.c:1 func:".to_vec();
        file.resize(100_000, b'x');
        file.extend_from_slice(b"\n2 2 a.c:2 func:g\n");
        // A small buffer, so that the line comes in many parts.
        let mut reader =
            Reader::new(io::BufReader::with_capacity(64, file.as_slice())).max_line(5000);
        let Some(Ok(Item::Bad(bad))) = reader.next() else {
            panic!("not bad")
        };
        assert_eq!(
            (bad.kind, bad.number, bad.text.len()),
            (BadKind::TooLong, 1, 4096)
        );
        assert!(reader.line.capacity() <= 16_384);
        let Some(Ok(Item::Row(row))) = reader.next() else {
            panic!("not a row")
        };
        assert_eq!(row.func, "g");
        assert_eq!(reader.line_number(), 2);
        assert!(reader.next().is_none());
    }
}
