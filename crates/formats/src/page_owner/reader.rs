//! Cuts a stream into records.

use super::START;
use super::chunk::{CHUNK, read_behind};
use super::record::{Head, Place, Record};
use memchr::{memchr, memchr_iter, memrchr};
use std::fmt;
use std::io::{self, Read};

/// Longest record in bytes; kernels print at most a page.
pub const MAX_RECORD: usize = 1 << 17;
/// Longest first line: the mask's names are the longest part.
const MAX_HEAD: usize = 4096;
/// So many lines at the start with CRLF make a file of such: a task's name has room for 7.
const SURE: usize = 8;
/// Characters of a bad line that are kept.
const SHOWN: usize = 200;

/// Why something was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BadKind {
    /// Lines outside of a record.
    NoRecord,
    /// The first line cannot be read.
    Head,
    /// There is no line with a page frame number.
    Place,
    /// Longer than [`MAX_RECORD`].
    TooLong,
    /// The input ends in the middle.
    Truncated,
}

impl fmt::Display for BadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadKind::NoRecord => "not a record",
            BadKind::Head => "first line of a record cannot be read",
            BadKind::Place => "record without page frame number",
            BadKind::TooLong => "record too long",
            BadKind::Truncated => "record cut off by the end of the input",
        })
    }
}

/// Text that was not read: from here to the next record or empty line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// Line number, from 1.
    pub line: u64,
    /// Why.
    pub kind: BadKind,
    /// Start of that line.
    pub text: String,
}

/// What comes next.
#[derive(Debug)]
pub enum Item<'a> {
    /// A record.
    Record(Record<'a>),
    /// A loss.
    Bad(Bad),
}

/// Reads records from anything. Needs memory for one record and one chunk.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    buf: Vec<u8>,
    /// What is read of `buf` ends here.
    end: usize,
    /// What is used of `buf` ends here.
    pos: usize,
    /// Newlines before this place of `buf` are in `lines`.
    counted: usize,
    lines: u64,
    eof: bool,
    /// Lines end with CRLF; known after the first lines.
    crlf: Option<bool>,
    /// Inside of something bad that has been reported.
    skipping: bool,
    /// The rest of a line that is longer than memory.
    skip_line: bool,
}

/// Lengths of the parts of a record, from its start.
#[derive(Debug)]
struct Cut {
    head: Head,
    head_len: usize,
    place_len: usize,
    /// Without the empty line.
    end: usize,
    /// With it.
    next: usize,
}

/// What is at the start of the buffer.
enum Scan {
    More,
    Record(Cut),
    Bad(BadKind),
}

impl<R: Read> Reader<R> {
    /// Reads from `from`, unbuffered (chunks of 256 KiB are asked for).
    pub fn new(from: R) -> Self {
        Reader {
            from,
            buf: Vec::new(),
            end: 0,
            pos: 0,
            counted: 0,
            lines: 0,
            eof: false,
            crlf: None,
            skipping: false,
            skip_line: false,
        }
    }

    /// What it reads from.
    pub fn get_ref(&self) -> &R {
        &self.from
    }

    /// The next record or loss; `None` at the end.
    ///
    /// # Errors
    /// What reading the input gave, but for interruptions.
    pub fn next_item(&mut self) -> io::Result<Option<Item<'_>>> {
        loop {
            if !self.skip_blank()? {
                return Ok(None);
            }
            let kind = match scan(&self.buf[self.pos..self.end], self.eof) {
                Scan::More if !self.eof && self.end - self.pos <= MAX_RECORD => {
                    self.fill()?;
                    continue;
                }
                Scan::More if self.eof => BadKind::Truncated,
                Scan::More => BadKind::TooLong,
                Scan::Bad(kind) => kind,
                Scan::Record(cut) => return Ok(Some(Item::Record(self.record(cut)))),
            };
            if let Some(bad) = self.bad(kind) {
                return Ok(Some(Item::Bad(bad)));
            }
        }
    }

    fn record(&mut self, cut: Cut) -> Record<'_> {
        let line = self.line();
        let at = self.pos;
        self.pos += cut.next;
        self.skipping = false;
        Record {
            line,
            head: cut.head,
            text: &self.buf[at..at + cut.end],
            head_len: cut.head_len,
            place_len: cut.place_len,
        }
    }

    /// Number of the line at `pos`.
    fn line(&mut self) -> u64 {
        let new = memchr_iter(b'\n', &self.buf[self.counted..self.pos]).count();
        self.lines += new as u64;
        self.counted = self.pos;
        self.lines + 1
    }

    /// Goes to something that is no empty line; false at the end.
    fn skip_blank(&mut self) -> io::Result<bool> {
        loop {
            if self.pos == self.end {
                if self.eof {
                    return Ok(false);
                }
                self.fill()?;
            } else if self.skip_line {
                match memchr(b'\n', &self.buf[self.pos..self.end]) {
                    Some(at) => {
                        self.pos += at + 1;
                        self.skip_line = false;
                    }
                    None => self.pos = self.end,
                }
            } else if self.buf[self.pos] == b'\n' {
                self.pos += 1;
                self.skipping = false;
            } else {
                return Ok(true);
            }
        }
    }

    /// Passes a line over; a loss if it is the first of the kind.
    fn bad(&mut self, kind: BadKind) -> Option<Bad> {
        let line = self.line();
        let rest = &self.buf[self.pos..self.end];
        let newline = memchr(b'\n', rest);
        let text = &rest[..newline.unwrap_or(rest.len()).min(SHOWN)];
        // A second record that is bad is a second loss.
        let again = rest.starts_with(START);
        let bad = (again || !self.skipping).then(|| Bad {
            line,
            kind,
            text: String::from_utf8_lossy(text).into_owned(),
        });
        self.skipping = true;
        match newline {
            Some(at) => self.pos += at + 1,
            None => {
                self.pos = self.end;
                self.skip_line = true;
            }
        }
        bad
    }

    /// Reads one chunk more.
    fn fill(&mut self) -> io::Result<()> {
        self.line();
        let got = read_behind(&mut self.from, &mut self.buf, self.pos..self.end)?;
        self.end -= self.pos;
        (self.pos, self.counted) = (0, 0);
        self.eof = got == 0;
        let mut old = self.end;
        self.end += got;
        if self.crlf.is_none() {
            let lines = memchr_iter(b'\n', &self.buf[..self.end]).take(SURE);
            let ends: Vec<bool> = lines
                .map(|at| at > 0 && self.buf[at - 1] == b'\r')
                .collect();
            if ends.len() < SURE && !self.eof && self.end < CHUNK {
                return self.fill();
            }
            self.crlf = Some(!ends.is_empty() && ends.iter().all(|crlf| *crlf));
            old = 0;
        }
        if self.crlf == Some(true) {
            // The carriage return may be the last byte of the chunk before.
            let (end, from) = (self.end, old.saturating_sub(1));
            self.end = strip_crlf(&mut self.buf[..end], from);
        }
        Ok(())
    }
}

/// Removes the carriage returns before newlines from `from` on; the new length.
fn strip_crlf(buf: &mut [u8], from: usize) -> usize {
    let mut to = from;
    for at in from..buf.len() {
        if buf[at] == b'\n' && to > 0 && buf[to - 1] == b'\r' {
            to -= 1;
        }
        buf[to] = buf[at];
        to += 1;
    }
    to
}

/// Reads what is at the start of `buf`, which is not empty and no empty line.
fn scan(buf: &[u8], eof: bool) -> Scan {
    if !buf.starts_with(START) {
        let partial = buf.len() < START.len() && START.starts_with(buf);
        let short = !eof && buf.len() < MAX_HEAD && memchr(b'\n', buf).is_none();
        return match partial || short {
            true => Scan::More,
            false => Scan::Bad(BadKind::NoRecord),
        };
    }
    let (head, head_len) = match scan_head(buf) {
        Ok(Some(found)) => found,
        Ok(None) => return Scan::More,
        Err(kind) => return Scan::Bad(kind),
    };
    let Some(at) = memchr(b'\n', &buf[head_len + 1..]) else {
        return Scan::More;
    };
    let place_len = head_len + 1 + at;
    match scan_body(buf, place_len + 1, eof) {
        Some((end, next)) => Scan::Record(Cut {
            head,
            head_len,
            place_len,
            end,
            next,
        }),
        None => Scan::More,
    }
}

/// Where the record whose body begins at `line` ends, without and with its empty line; `None` if that is not yet read.
fn scan_body(buf: &[u8], mut line: usize, eof: bool) -> Option<(usize, usize)> {
    for newline in memchr_iter(b'\n', &buf[line..]).scan(line, |from, at| Some(*from + at)) {
        match buf[line] {
            b'\n' => match buf.get(line + 1) {
                // A stack goes on behind an empty line.
                Some(b' ') => line += 1,
                None if !eof => return None,
                _ => return Some((line, line + 1)),
            },
            b'P' if buf[line..].starts_with(START) => return Some((line, line)),
            _ => line = newline + 1,
        }
    }
    // The last line is not complete, or there is none.
    let next_begins = buf[line..].starts_with(START);
    (next_begins || eof && line == buf.len()).then_some((line, line))
}

/// The first line and its length; `Ok(None)` if more must be read.
fn scan_head(buf: &[u8]) -> Result<Option<(Head, usize)>, BadKind> {
    let window = &buf[..buf.len().min(MAX_HEAD)];
    let mut kind = BadKind::Place;
    let mut line = 0;
    for newline in memchr_iter(b'\n', window) {
        if line > 0 && buf[line..].starts_with(START) {
            return Err(kind);
        }
        let Some(after) = buf.get(newline + 1..newline + 7) else {
            return Ok(None);
        };
        if after.starts_with(b"PFN ") && after[4].is_ascii_digit() {
            let end = memchr(b'\n', &buf[newline + 1..]);
            let place = &buf[newline + 1..end.map_or(buf.len(), |end| newline + 1 + end)];
            match Head::parse(&buf[..newline]) {
                Some(_) if end.is_none() => return Ok(None),
                Some(_) if Place::parse(place).is_none() => return Err(BadKind::Place),
                Some(head) => return Ok(Some((head, newline))),
                None => kind = BadKind::Head,
            }
        }
        line = newline + 1;
    }
    if window.len() == MAX_HEAD {
        return Err(kind);
    }
    // A record may have begun behind this one, in a line that has not ended.
    match memrchr(b'\n', window) {
        Some(at) if window[at + 1..].starts_with(START) => Err(kind),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives few bytes at once.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buf.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    /// Records as (line, comm, body), losses as (line, kind).
    type Found = (Vec<(u64, String, String)>, Vec<(u64, BadKind)>);

    fn all(text: &[u8], step: usize) -> Found {
        let mut reader = Reader::new(Slow(text, step));
        let (mut records, mut bad) = (Vec::new(), Vec::new());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        while let Some(item) = reader.next_item().unwrap() {
            match item {
                Item::Record(r) => records.push((r.line, text(r.comm()), text(r.body_text()))),
                Item::Bad(b) => bad.push((b.line, b.kind)),
            }
        }
        (records, bad)
    }

    fn record(comm: &str) -> String {
        format!(
            "Page allocated via order 0, mask 0x0(), pid 1, tgid 1 ({comm}), ts 7 ns\n\
             PFN 0x1 type Movable Block 0 type Movable Flags 0x0(node=0)\n f+0x1/0x2\n g+0x1/0x2\n\n"
        )
    }

    #[test]
    fn names_that_hold_anything() {
        for comm in [
            "a",
            "",
            "bad\nname",
            "a\n\nb",
            "a), ts 1 ns\nPFN",
            "lab,migr) ts",
            "(x)",
            "), ts 1 ns",
            "\nPFN 0x1 ",
            "\n",
            "\n\n\n",
            "a)\n b+0x1/0x2",
            "x\r",
        ] {
            let text = record(comm) + &record("next");
            for step in [1, 7, 4096] {
                let (records, bad) = all(text.as_bytes(), step);
                assert_eq!(bad, [], "{comm:?}");
                assert_eq!(records.len(), 2, "{comm:?}");
                assert_eq!(records[0].1, comm);
                assert_eq!(records[0].2, " f+0x1/0x2\n g+0x1/0x2\n");
                let lines = record(comm).matches('\n').count() as u64;
                assert_eq!(records[1].0, lines + 1);
            }
        }
    }

    #[test]
    fn losses_have_their_line() {
        let good = record("a");
        let text = format!("junk\nmore junk\n\n{good}\n\n{}x\n\n{good}", &good[..40]);
        let (records, bad) = all(text.as_bytes(), 5);
        assert_eq!(records.len(), 2);
        assert_eq!(bad, [(1, BadKind::NoRecord), (11, BadKind::Place)]);
        // Cut off after any byte: never a panic, and either complete or reported.
        for cut in 1..good.len() {
            let (records, bad) = all(&good.as_bytes()[..cut], 4096);
            assert_eq!(records.len() + bad.len(), 1, "{cut}");
            let complete = good[..cut].ends_with('\n') && cut > good.find("PFN").unwrap();
            assert_eq!(records.len(), usize::from(complete), "{cut}");
        }
    }

    #[test]
    fn line_ends_and_missing_empty_lines() {
        let text = record("a") + &record("b");
        let crlf = text.replace('\n', "\r\n");
        for step in [1, 2, 3, 4096] {
            assert_eq!(all(crlf.as_bytes(), step), all(text.as_bytes(), step));
        }
        let (records, bad) = all(text.trim_end_matches('\n').as_bytes(), 4096);
        assert_eq!((records.len(), bad.len()), (1, 1));
        let (records, bad) = all(text.replace("\n\n", "\n").as_bytes(), 4096);
        assert_eq!((records.len(), bad.len()), (2, 0));
        let lines = " x\n".repeat(200_000);
        let long = format!("{}\n{lines}\n{}", record("a").trim_end(), record("b"));
        let (records, bad) = all(long.as_bytes(), 4096);
        assert_eq!(records.len(), 1);
        assert_eq!(bad, [(1, BadKind::TooLong)]);
    }
}
