//! How the kernel's own `page_owner_sort` (`tools/mm`, Linux 6.12) reads a dump.
//!
//! It knows no records, only blocks: lines up to an empty one. Lines that start with `PFN` are taken out; in the rest, regular
//! expressions find the fields, wherever they match first. What does not match is -1 or empty, not an error. A block of
//! 128 KiB ends the input, and so does the end of the file: what has no empty line behind it is dropped.
//!
//! Texts that hold bytes of value 0, numbers of more than 24 digits and names of more than 15 characters make the tool read
//! or write outside of its memory; here they do not.

use super::chunk::read_behind;
use memchr::{memchr, memmem, memrchr};
use std::io::{self, Read};
use std::ops::Range;

/// Size of the tool's buffer.
const BUFFER: usize = 128 * 1024;

/// The allocators that the tool tells apart: bits of [`allocator`].
pub mod allocators {
    /// `CMA` stands in the line with the frame number.
    pub const CMA: u8 = 1 << 1;
    /// `slab` stands there.
    pub const SLAB: u8 = 1 << 2;
    /// A frame of `alloc_pages` above one of `__vmalloc_node_range`.
    pub const VMALLOC: u8 = 1 << 3;
    /// None of them.
    pub const OTHERS: u8 = 1 << 4;
}

/// What the tool takes for one record.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// Its lines, without those of `PFN`.
    pub text: &'a [u8],
    /// The last line of `PFN` of this block, or else of those before.
    pub place: &'a [u8],
}

/// Reads blocks.
#[derive(Debug)]
pub struct Blocks<R> {
    from: R,
    buf: Vec<u8>,
    pos: usize,
    end: usize,
    eof: bool,
    text: Vec<u8>,
    place: Vec<u8>,
    /// Bytes behind the last block, which the tool drops.
    lost: u64,
}

impl<R: Read> Blocks<R> {
    /// Reads from `from`, unbuffered.
    pub fn new(from: R) -> Self {
        Blocks {
            from,
            buf: Vec::new(),
            pos: 0,
            end: 0,
            eof: false,
            text: Vec::new(),
            place: Vec::new(),
            lost: 0,
        }
    }

    /// Bytes that belong to no block; known after the end. Of what follows a block that is too long they are not all.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The next block; `None` where the tool sees the end.
    ///
    /// # Errors
    /// What reading the input gave, but for interruptions.
    pub fn next_block(&mut self) -> io::Result<Option<Block<'_>>> {
        self.text.clear();
        if self.lost > 0 {
            return Ok(None);
        }
        loop {
            let chunk = &self.buf[self.pos..self.end];
            match block_end(chunk) {
                Some((end, next)) => {
                    take(&chunk[..end], &mut self.text, &mut self.place);
                    self.pos += next;
                    // The tool needs room for one byte and the end of the string.
                    if self.text.len() >= BUFFER - 1 {
                        self.lost = self.text.len() as u64;
                        return Ok(None);
                    }
                    return Ok(Some(Block {
                        text: &self.text,
                        place: &self.place,
                    }));
                }
                None if self.eof || chunk.len() > 2 * BUFFER => {
                    self.lost = chunk.len() as u64;
                    return Ok(None);
                }
                None => self.fill()?,
            }
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let got = read_behind(&mut self.from, &mut self.buf, self.pos..self.end)?;
        self.end -= self.pos;
        self.pos = 0;
        self.eof = got == 0;
        self.end += got;
        Ok(())
    }
}

/// Where the lines end, and where the next block begins.
fn block_end(chunk: &[u8]) -> Option<(usize, usize)> {
    if chunk.first() == Some(&b'\n') {
        return Some((0, 1));
    }
    let at = memmem::find(chunk, b"\n\n")?;
    Some((at + 1, at + 2))
}

/// Copies lines, those of `PFN` apart.
fn take(lines: &[u8], text: &mut Vec<u8>, place: &mut Vec<u8>) {
    let mut rest = lines;
    let mut from = 0;
    while from < rest.len() {
        let start = if rest[from..].starts_with(b"PFN") {
            from
        } else {
            match memmem::find(&rest[from..], b"\nPFN") {
                Some(at) => from + at + 1,
                None => break,
            }
        };
        let end = memchr(b'\n', &rest[start..]).map_or(rest.len(), |at| start + at + 1);
        text.extend_from_slice(&rest[..start]);
        place.clear();
        place.extend_from_slice(&rest[start..end]);
        rest = &rest[end..];
        from = 0;
    }
    text.extend_from_slice(rest);
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// First match of `WORD\s*([0-9]*)` and then `ends`, given what the digits are and what follows.
fn field(text: &[u8], word: &[u8], ends: impl Fn(&[u8], &[u8]) -> bool) -> Option<Range<usize>> {
    memmem::find_iter(text, word).find_map(|at| {
        let from = at + word.len();
        let blanks = text[from..].iter().take_while(|b| is_space(**b)).count();
        let start = from + blanks;
        let digits = text[start..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        let end = start + digits;
        // With no digits, the pattern may give blanks back to what follows them.
        let blank = if digits == 0 { &text[from..start] } else { b"" };
        ends(blank, &text[end..]).then_some(start..end)
    })
}

/// As the tool turns digits into an `int`: -1 if there are none or too many.
fn int(digits: &[u8]) -> i32 {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    #[allow(clippy::cast_possible_truncation, reason = "as the tool does")]
    text.parse::<i64>().map_or(-1, |number| number as i32)
}

/// `pid\s*([0-9]*),`
#[must_use]
pub fn pid(text: &[u8]) -> i32 {
    field(text, b"pid", |_, rest| rest.starts_with(b",")).map_or(-1, |at| int(&text[at]))
}

/// `tgid\s*([0-9]*) `
#[must_use]
pub fn tgid(text: &[u8]) -> i32 {
    let ends = |blank: &[u8], rest: &[u8]| rest.starts_with(b" ") || blank.contains(&b' ');
    field(text, b"tgid", ends).map_or(-1, |at| int(&text[at]))
}

/// Pages of a block, by `order\s*([0-9]*),`: a 32-bit number that wraps.
#[must_use]
pub fn pages(text: &[u8]) -> i32 {
    let order = field(text, b"order", |_, rest| rest.starts_with(b","));
    match order.map(|at| int(&text[at])) {
        Some(order @ 0..=64) => 1_i32.wrapping_shl(order.unsigned_abs()),
        _ => 0,
    }
}

/// Where the digits of `ts\s*([0-9]*)\s*ns` are.
#[must_use]
pub fn time_at(text: &[u8]) -> Option<Range<usize>> {
    field(text, b"ts", |_, rest| {
        let blanks = rest.iter().take_while(|b| is_space(**b)).count();
        rest[blanks..].starts_with(b"ns")
    })
}

/// The time; all ones if there is none.
#[must_use]
pub fn time(text: &[u8]) -> u64 {
    let digits = time_at(text).map_or(&b""[..], |at| &text[at]);
    let text = std::str::from_utf8(digits).unwrap_or_default();
    text.parse().unwrap_or(u64::MAX)
}

/// `tgid\s*[0-9]*\s*\((.*)\),\s*ts`: the name; empty if there is none.
#[must_use]
pub fn comm(text: &[u8]) -> &[u8] {
    for at in memmem::find_iter(text, b"tgid") {
        let mut from = at + 4;
        let skip = |from: usize, test: fn(u8) -> bool| {
            from + text[from..].iter().take_while(|b| test(**b)).count()
        };
        from = skip(from, is_space);
        from = skip(from, |b| b.is_ascii_digit());
        from = skip(from, is_space);
        if text.get(from) != Some(&b'(') {
            continue;
        }
        from += 1;
        let line_end = memchr(b'\n', &text[from..]).map_or(text.len(), |at| from + at);
        // The longest match wins.
        let end = memmem::rfind_iter(&text[from..line_end], b"),").find(|end| {
            let after = &text[from + end + 2..];
            let blanks = after.iter().take_while(|b| is_space(**b)).count();
            after[blanks..].starts_with(b"ts")
        });
        if let Some(end) = end {
            return &text[from..from + end];
        }
    }
    b""
}

/// Bits of [`allocators`].
#[must_use]
pub fn allocator(block: &Block<'_>) -> u8 {
    let mut bits = 0;
    if memmem::find(block.place, b"CMA").is_some() {
        bits |= allocators::CMA;
    }
    if memmem::find(block.place, b"slab").is_some() {
        bits |= allocators::SLAB;
    }
    if is_vmalloc(block.text) {
        bits |= allocators::VMALLOC;
    }
    if bits == 0 { allocators::OTHERS } else { bits }
}

/// `alloc_pages` stands between the start of the line above the first `__vmalloc_node_range` and that.
fn is_vmalloc(text: &[u8]) -> bool {
    let Some(found) = memmem::find(text, b"__vmalloc_node_range") else {
        return false;
    };
    let Some(newline) = memrchr(b'\n', &text[..found]) else {
        return false;
    };
    let line = memrchr(b'\n', &text[..newline]).map_or(0, |at| at + 1);
    // It must begin before the second line's name.
    memmem::find(&text[line..], b"alloc_pages").is_some_and(|at| line + at < found)
}

/// The text that is compared: without the digits of the time.
pub fn without_time(text: &[u8], out: &mut Vec<u8>) {
    match time_at(text) {
        Some(at) => {
            out.extend_from_slice(&text[..at.start]);
            out.extend_from_slice(&text[at.end..]);
        }
        None => out.extend_from_slice(text),
    }
}

/// What the tool takes for the stack: all behind the first line.
#[must_use]
pub fn stack(text: &[u8]) -> &[u8] {
    memchr(b'\n', text).map_or(b"", |at| &text[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] =
        b"Page allocated via order 1, mask 0x0(), pid 7, tgid 8 (a), ts 2), ts 19 ns\n";

    #[test]
    fn fields_are_where_they_match_first() {
        assert_eq!((pid(HEAD), tgid(HEAD), pages(HEAD)), (7, 8, 2));
        assert_eq!(comm(HEAD), b"a), ts 2");
        assert_eq!(time(HEAD), 19);
        assert_eq!((pid(b"x"), tgid(b"x"), pages(b"x")), (-1, -1, 0));
        assert_eq!((comm(b"x"), time(b"x")), (&b""[..], u64::MAX));
        assert_eq!(pages(b"order 31,"), i32::MIN);
        assert_eq!((pages(b"order 33,"), pages(b"order 65,")), (2, 0));
        // An empty match comes first.
        assert_eq!(pid(b"pid , pid 7,"), -1);
        assert_eq!(tgid(b"tgid  (x) tgid 7 "), -1);
        let mut out = Vec::new();
        without_time(HEAD, &mut out);
        assert!(out.ends_with(b", ts  ns\n"), "{}", out.escape_ascii());
    }

    #[test]
    fn blocks() {
        let text = b"\na\nPFN 1\nb\n\nPFN 2\n\nc\n";
        let mut blocks = Blocks::new(&text[..]);
        let mut found = Vec::new();
        while let Some(block) = blocks.next_block().unwrap() {
            found.push((block.text.to_vec(), block.place.to_vec()));
        }
        let expect: [(&[u8], &[u8]); 3] = [(b"", b""), (b"a\nb\n", b"PFN 1\n"), (b"", b"PFN 2\n")];
        assert_eq!(found.len(), expect.len());
        for (a, b) in found.iter().zip(expect) {
            assert_eq!((&a.0[..], &a.1[..]), b);
        }
        assert_eq!(blocks.lost(), 2);
    }

    #[test]
    fn vmalloc_needs_the_frame_above() {
        let block = |text: &'static [u8]| {
            let place = b"PFN 0x1 type CMA Flags 0x0(slab)\n";
            allocator(&Block { text, place }) & allocators::VMALLOC != 0
        };
        assert!(block(
            b"h\n x\n alloc_pages_noprof+0x1/0x2\n __vmalloc_node_range_noprof+0x1/0x2\n"
        ));
        assert!(!block(b"h\n alloc_pages\n y\n __vmalloc_node_range\n"));
        assert!(!block(b"h\n __vmalloc_node_range\n alloc_pages\n"));
        assert!(!block(b"__vmalloc_node_range\n"));
    }
}
