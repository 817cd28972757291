//! One record: numbers and places of texts in it.

use super::START;
use memchr::{memchr, memchr_iter, memmem};
use std::ops::Range;

/// Numbers of the first line, and where its texts are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head {
    /// The run has `1 << order` pages; less than 64.
    pub order: u32,
    /// Allocation flags.
    pub mask: u64,
    /// Thread; kernels before 5.11 print none.
    pub pid: Option<i32>,
    /// Process; kernels before 5.18 print none.
    pub tgid: Option<i32>,
    /// Nanoseconds since boot at the allocation.
    pub ts: Option<u64>,
    /// Nanoseconds since boot at the last free; kernels from 5.12 to 6.8.
    pub free_ts: Option<u64>,
    flags: Range<usize>,
    comm: Range<usize>,
    ts_at: Range<usize>,
    free_ts_at: Range<usize>,
}

/// Cuts `WORD N ns` off the end; also where N is, from the start of `head`.
fn cut_time<'a>(head: &'a [u8], word: &[u8]) -> Option<(&'a [u8], u64, Range<usize>)> {
    let rest = head.strip_suffix(b" ns")?;
    let digits = rest.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let at = rest.len() - digits;
    let number = decimal(&rest[at..])?;
    let before = rest[..at].strip_suffix(word)?;
    Some((before, number, at..rest.len()))
}

/// A decimal number that fills all of `text`.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, b| {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// A hexadecimal number that fills all of `text`.
fn hex(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, &b| {
        Some(sum << 4 | u64::from(char::from(b).to_digit(16)?))
    })
}

/// A decimal number with sign, as `%d` prints it.
fn signed(text: &[u8]) -> Option<i32> {
    match text.strip_prefix(b"-") {
        Some(digits) => i32::try_from(-i64::try_from(decimal(digits)?).ok()?).ok(),
        None => i32::try_from(decimal(text)?).ok(),
    }
}

impl Head {
    /// Reads a first line without its newline (COMM may hold newlines); `None` if it is none.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Head> {
        let mut head = Head::default();
        let mut text = line;
        if let Some((before, number, at)) = cut_time(text, b", free_ts ") {
            (text, head.free_ts, head.free_ts_at) = (before, Some(number), at);
        }
        if let Some((before, number, at)) = cut_time(text, b", ts ") {
            (text, head.ts, head.ts_at) = (before, Some(number), at);
        }
        let rest = text.strip_prefix(START)?;
        let end = memchr(b',', rest)?;
        head.order = u32::try_from(decimal(&rest[..end])?).ok()?;
        let rest = rest[end..].strip_prefix(b", mask 0x")?;
        let end = rest
            .iter()
            .position(|b| !b.is_ascii_hexdigit())
            .unwrap_or(rest.len());
        head.mask = hex(&rest[..end])?;
        let mut rest = &rest[end..];
        if let Some(inner) = rest.strip_prefix(b"(") {
            let end = memchr(b')', inner)?;
            let at = text.len() - inner.len();
            head.flags = at..at + end;
            rest = &inner[end + 1..];
        }
        if !rest.is_empty() {
            head.parse_task(text, rest)?;
        }
        // Kernels that print a name print a time behind it; without one, the line ends inside of the name.
        let whole = head.tgid.is_none() || head.ts.is_some();
        (whole && head.order < 64).then_some(head)
    }

    /// `, pid N[, tgid N (COMM)]`, which is `rest`, the end of `text`.
    fn parse_task(&mut self, text: &[u8], rest: &[u8]) -> Option<()> {
        let rest = rest.strip_prefix(b", pid ")?;
        let end = memchr(b',', rest).unwrap_or(rest.len());
        self.pid = Some(signed(&rest[..end])?);
        if end == rest.len() {
            return Some(());
        }
        let rest = rest[end..].strip_prefix(b", tgid ")?;
        let end = memchr(b' ', rest)?;
        self.tgid = Some(signed(&rest[..end])?);
        let comm = rest[end..].strip_prefix(b" (")?.strip_suffix(b")")?;
        let at = text.len() - 1 - comm.len();
        self.comm = at..text.len() - 1;
        Some(())
    }

    /// Number of pages of the run.
    #[must_use]
    pub fn pages(&self) -> u64 {
        1_u64 << (self.order & 63)
    }
}

/// The second line: which page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place<'a> {
    /// Page frame number.
    pub pfn: u64,
    /// Migrate type that was asked for, as `Movable`; empty if not printed.
    pub migrate_type: &'a [u8],
    /// Number of its page block.
    pub block: Option<u64>,
    /// Migrate type of the page block; empty if not printed.
    pub block_type: &'a [u8],
    /// Page flags, as `0x4(referenced|node=0|zone=0)`; empty if not printed.
    pub flags: &'a [u8],
}

impl<'a> Place<'a> {
    /// Reads a line without its newline; `None` if it has no frame number.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Place<'a>> {
        let (number, mut rest) = split_word(line.strip_prefix(b"PFN ")?);
        let pfn = match number.strip_prefix(b"0x") {
            Some(digits) => hex(digits)?,
            None => decimal(number)?,
        };
        let mut place = Place {
            pfn,
            ..Place::default()
        };
        while !rest.is_empty() {
            let (word, after) = split_word(rest);
            if word == b"Flags" {
                place.flags = after;
                break;
            }
            let (value, next) = split_word(after);
            match (word, place.block) {
                (b"Block", _) => place.block = decimal(value),
                (b"type", None) => place.migrate_type = value,
                (b"type", Some(_)) => place.block_type = value,
                _ => {
                    rest = after;
                    continue;
                }
            }
            rest = next;
        }
        Some(place)
    }

    /// NUMA node, from the flags.
    #[must_use]
    pub fn node(&self) -> Option<u64> {
        let at = memmem::find(self.flags, b"node=")? + 5;
        let digits = self.flags[at..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count();
        decimal(&self.flags[at..at + digits])
    }

    /// The page flag `slab`, which older kernels print.
    #[must_use]
    pub fn slab_flag(&self) -> bool {
        self.flags
            .split(|b| matches!(b, b'(' | b'|' | b')'))
            .any(|word| word == b"slab")
    }
}

fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b' ', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, b""),
    }
}

/// What a charged page says of its memory cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memcg<'a> {
    /// Name of the cgroup.
    pub name: &'a [u8],
    /// Charged through its objects (slab and per-CPU pages).
    pub objcg: bool,
    /// The cgroup was removed.
    pub offline: bool,
}

/// The lines from the third on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Body<'a> {
    /// Lines of the stack, each with its leading blank and newline; empty in handle mode. Damaged dumps have empty lines in it.
    pub stack: &'a [u8],
    /// Number of the stack in the kernel's depot.
    pub handle: Option<u64>,
    /// Why it was moved last.
    pub migrated: Option<&'a [u8]>,
    /// It holds slab objects.
    pub slab: bool,
    /// Whom it is charged to.
    pub memcg: Option<Memcg<'a>>,
}

impl<'a> Body<'a> {
    /// Reads the lines; unknown ones are passed over.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Body<'a> {
        let mut end = 0;
        for newline in memchr_iter(b'\n', text) {
            let blank = text[end..].starts_with(b"\n ");
            if !blank && text.get(end) != Some(&b' ') {
                break;
            }
            end = newline + 1;
        }
        let mut body = Body {
            stack: &text[..end],
            ..Body::default()
        };
        for line in text[end..].split(|b| *b == b'\n') {
            body.line(line);
        }
        body
    }

    fn line(&mut self, line: &'a [u8]) {
        if let Some(number) = line.strip_prefix(b"handle: ") {
            self.handle = decimal(number);
        } else if let Some(reason) =
            line.strip_prefix(b"Page has been migrated, last migrate reason: ")
        {
            self.migrated = Some(reason);
        } else if line == b"Slab cache page" {
            self.slab = true;
        } else if let Some(rest) = line.strip_prefix(b"Charged ") {
            let objcg = rest.strip_prefix(b"(via objcg) ");
            let rest = objcg.unwrap_or(rest);
            let offline = rest.strip_prefix(b"to offline memcg ");
            let name = offline.or_else(|| rest.strip_prefix(b"to memcg "));
            self.memcg = name.map(|name| Memcg {
                name,
                objcg: objcg.is_some(),
                offline: offline.is_some(),
            });
        }
    }

    /// The frames, innermost first, without blank and newline.
    pub fn frames(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        frames(self.stack)
    }
}

/// The frames of a stack's lines, without blank and newline.
pub fn frames(stack: &[u8]) -> impl Iterator<Item = &[u8]> {
    stack
        .split(|b| *b == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|frame| !frame.is_empty())
}

/// One record, in the memory of its reader.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// Number of its first line, from 1.
    pub line: u64,
    /// The first line.
    pub head: Head,
    pub(super) text: &'a [u8],
    pub(super) head_len: usize,
    pub(super) place_len: usize,
}

impl<'a> Record<'a> {
    /// All of it, without the empty line.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The first line, without its newline.
    #[must_use]
    pub fn head_text(&self) -> &'a [u8] {
        &self.text[..self.head_len]
    }

    /// Allocation flags by name, as `GFP_KERNEL|__GFP_COMP`.
    #[must_use]
    pub fn gfp(&self) -> &'a [u8] {
        &self.text[self.head.flags.clone()]
    }

    /// Name of the thread, exactly; empty if not printed.
    #[must_use]
    pub fn comm(&self) -> &'a [u8] {
        &self.text[self.head.comm.clone()]
    }

    /// Where the digits of the two times are in the first line; empty ranges if not there.
    #[must_use]
    pub fn times_at(&self) -> (Range<usize>, Range<usize>) {
        (self.head.ts_at.clone(), self.head.free_ts_at.clone())
    }

    /// The second line, without its newline.
    #[must_use]
    pub fn place_text(&self) -> &'a [u8] {
        &self.text[self.head_len + 1..self.place_len]
    }

    /// The second line.
    #[must_use]
    pub fn place(&self) -> Place<'a> {
        Place::parse(self.place_text()).unwrap_or_default()
    }

    /// The lines from the third on, each with its newline.
    #[must_use]
    pub fn body_text(&self) -> &'a [u8] {
        self.text.get(self.place_len + 1..).unwrap_or_default()
    }

    /// The same, read.
    #[must_use]
    pub fn body(&self) -> Body<'a> {
        Body::parse(self.body_text())
    }
}

/// Function of a frame: `ext4_get+0x12/0x90 [ext4]` is `ext4_get`.
#[must_use]
pub fn frame_function(frame: &[u8]) -> &[u8] {
    match memmem::find(frame, b"+0x") {
        Some(at) => &frame[..at],
        None => split_word(frame).0,
    }
}

/// Module of a frame, if it has one; without the build-id that some kernels add.
#[must_use]
pub fn frame_module(frame: &[u8]) -> Option<&[u8]> {
    let at = memmem::rfind(frame, b" [")?;
    let inner = frame[at + 2..].strip_suffix(b"]")?;
    Some(split_word(inner).0)
}

/// 64-bit FNV-1a of a stack's text (lines with their newlines): the same in each dump of one kernel build.
#[must_use]
pub fn stack_key(stack: &[u8]) -> u64 {
    stack.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| {
        (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_all_kernels() {
        let now = b"Page allocated via order 3, mask 0x440100(__GFP_ZERO|__GFP_COMP), pid 7, tgid -1 (a), ts 12 ns";
        let head = Head::parse(now).unwrap();
        assert_eq!((head.order, head.mask, head.pages()), (3, 0x44_0100, 8));
        assert_eq!(
            (head.pid, head.tgid, head.ts),
            (Some(7), Some(-1), Some(12))
        );
        assert_eq!(head.free_ts, None);
        let freed =
            b"Page allocated via order 0, mask 0x0(), pid 1, tgid 1 (x, y), ts 5 ns, free_ts 4 ns";
        let head = Head::parse(freed).unwrap();
        assert_eq!((head.ts, head.free_ts), (Some(5), Some(4)));
        assert_eq!(&freed[head.comm.clone()], b"x, y");
        assert_eq!(&freed[head.free_ts_at.clone()], b"4");
        for (old, pid) in [
            (
                &b"Page allocated via order 0, mask 0x24280ca(GFP_HIGHUSER)"[..],
                None,
            ),
            (b"Page allocated via order 0, mask 0x24280ca", None),
            (
                b"Page allocated via order 0, mask 0x0(), pid 3, ts 9 ns",
                Some(3),
            ),
        ] {
            assert_eq!(Head::parse(old).unwrap().pid, pid);
        }
        for wrong in [
            &b"Page allocated via order 64, mask 0x0()"[..],
            b"Page allocated via order 0, mask 0x0(), pid 1, tgid 1 (x, ts 1 ns",
            b"Page allocated via order 0, mask 0x0(), pid 99999999999, tgid 1 (x), ts 1 ns",
            b"Page allocated via order , mask 0x0()",
            b"",
        ] {
            assert_eq!(Head::parse(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn places() {
        let text = b"PFN 0x10 type Movable Block 2 type CMA Flags 0x4(lru|slab|node=1|zone=0)";
        let place = Place::parse(text).unwrap();
        assert_eq!(
            (place.pfn, place.block, place.node()),
            (16, Some(2), Some(1))
        );
        assert_eq!(
            (place.migrate_type, place.block_type),
            (&b"Movable"[..], &b"CMA"[..])
        );
        assert!(place.slab_flag());
        let old = Place::parse(b"PFN 4096 Block 8 type 2 Flags").unwrap();
        assert_eq!(
            (old.pfn, old.block, old.block_type),
            (4096, Some(8), &b"2"[..])
        );
        assert_eq!(Place::parse(b"PFN zz"), None);
    }

    #[test]
    fn bodies() {
        let body = Body::parse(b" a+0x1/0x2\n b+0x1/0x2 [m]\nhandle: 5\nNew line\nSlab cache page\nCharged (via objcg) to offline memcg a b\n");
        assert_eq!(body.frames().count(), 2);
        assert_eq!(body.frames().nth(1).and_then(frame_module), Some(&b"m"[..]));
        assert_eq!(
            (body.handle, body.slab, body.migrated),
            (Some(5), true, None)
        );
        let memcg = body.memcg.unwrap();
        assert_eq!(
            (memcg.name, memcg.objcg, memcg.offline),
            (&b"a b"[..], true, true)
        );
        assert_eq!(frame_function(b"0xffffffffa04111be"), b"0xffffffffa04111be");
        assert_eq!(frame_function(b"f.part.0+0x1/0x2 [m]"), b"f.part.0");
    }
}
