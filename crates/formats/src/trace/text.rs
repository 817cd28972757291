//! Traces as text: `trace` and `trace_pipe` of tracefs under all options, and what trace-cmd and perf print of the same events.
//!
//! A line is `COMM-PID [(TGID)] [CPU] [FLAGS] TIME: EVENT: key=value ...`. What stands before the event depends on options, so
//! columns are not counted: the event's name is the word between the first `: ` that follows a digit and the next colon; the
//! processor is the last `[NUMBER]` before it. Stacks are lines with `=>` after their event. Pointers are hashes unless the
//! kernel was told otherwise. Options `raw`, `hex` and `bin` print no fields; such lines are counted by their type.

use std::io::{self, BufRead};

use super::event::{Bad, Class, Event, Info, Item, Lost, Op, Source, UNKNOWN_PTR, Unit};
use super::names::{MAX_FRAMES, Names, SiteId};

/// Longest line that is read, in bytes.
pub const MAX_LINE: usize = 64 << 10;

/// Reads a text. Memory: one line and one event.
#[derive(Debug)]
pub struct Text<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    waiting: Option<Event>,
    next: Option<Item>,
    frames: Vec<SiteId>,
    /// Whether frames that come now are of the kernel.
    kernel_stack: bool,
    unit: Option<Unit>,
    resolution: u64,
    hashed: bool,
    page_size: u64,
}

/// What a line is.
enum Line {
    Event(Event),
    Item(Item),
    Frame(SiteId),
    Stack { kernel: bool },
    Nothing,
}

impl<R: BufRead> Text<R> {
    /// Reads from `input`; pages have 4096 bytes.
    pub fn new(input: R) -> Self {
        Text {
            input,
            line: Vec::new(),
            number: 0,
            waiting: None,
            next: None,
            frames: Vec::new(),
            kernel_stack: true,
            unit: None,
            resolution: 1000,
            hashed: false,
            page_size: 4096,
        }
    }

    /// Sets the size of a page, in bytes.
    #[must_use]
    pub fn page_size(mut self, bytes: u64) -> Self {
        self.page_size = bytes;
        self
    }

    /// The next line into `self.line`, cut at [`MAX_LINE`]. Its length; `None` at the end.
    fn next_line(&mut self) -> io::Result<Option<usize>> {
        self.line.clear();
        let mut len = 0;
        loop {
            let buf = match self.input.fill_buf() {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            if buf.is_empty() {
                return Ok((len > 0).then_some(len));
            }
            let newline = memchr::memchr(b'\n', buf);
            let part = &buf[..newline.unwrap_or(buf.len())];
            let room = MAX_LINE - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            let used = part.len() + usize::from(newline.is_some());
            len += used;
            self.input.consume(used);
            if newline.is_some() {
                return Ok(Some(len));
            }
        }
    }

    fn bad(&self, what: &str) -> Line {
        let text = String::from_utf8_lossy(&self.line[..self.line.len().min(120)]);
        Line::Item(Item::Bad(Bad {
            at: self.number,
            what: format!("{what}: {text}"),
        }))
    }

    fn classify(&mut self, len: usize, names: &mut Names) -> Line {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if len > MAX_LINE + 1 {
            return self.bad("a line that is too long");
        }
        if line.starts_with(b"#") {
            return lost_entries(line).map_or(Line::Nothing, Line::Item);
        }
        if line.trim_ascii().is_empty() || line.starts_with(b"cpus=") {
            return Line::Nothing;
        }
        if line.starts_with(b"CPU:")
            && let Some(lost) = lost_line(line)
        {
            return Line::Item(Item::Lost(lost));
        }
        if let Some(frame) = line.strip_prefix(b" => ") {
            let frame = frame.trim_ascii();
            return match frame {
                b"<stack trace>" => Line::Stack { kernel: true },
                b"<user stack trace>" => Line::Stack { kernel: false },
                _ => Line::Frame(site(frame, names)),
            };
        }
        if line.starts_with(b"\t") {
            let frame = line.trim_ascii();
            let end = memchr::memchr(b' ', frame).unwrap_or(frame.len());
            return match hex(&frame[..end]) {
                Some(address) => Line::Frame(names.address(address)),
                None => self.bad("not a frame of a stack"),
            };
        }
        self.event(names)
    }

    fn event(&mut self, names: &mut Names) -> Line {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let Some((head, name, rest)) = split(line) else {
            if let Some(at) = find(line, b" type: ") {
                let id = String::from_utf8_lossy(&line[at + 7..]);
                let word = format!("(type {}, printed without fields)", id.trim());
                return Line::Item(Item::Other(names.word(&word)));
            }
            return self.bad("not an event");
        };
        let (op, class) = match name {
            b"kmalloc" | b"kmalloc_node" => (Op::Alloc, Class::Kmalloc),
            b"kmem_cache_alloc" | b"kmem_cache_alloc_node" => (Op::Alloc, Class::Cache),
            b"kfree" => (Op::Free, Class::Kmalloc),
            b"kmem_cache_free" => (Op::Free, Class::Cache),
            b"mm_page_alloc" => (Op::Alloc, Class::Pages),
            b"mm_page_free" | b"mm_page_free_direct" => (Op::Free, Class::Pages),
            b"<stack trace>" => return Line::Stack { kernel: true },
            b"<user stack trace>" => return Line::Stack { kernel: false },
            _ => return Line::Item(Item::Other(names.word_bytes(name))),
        };
        let mut event = Event::new(op, class, 0, UNKNOWN_PTR);
        let Some(hashed) = values(rest, &mut event, self.page_size, names) else {
            return self.bad("an event without the fields it should have");
        };
        let Some(unit) = context(head, &mut event, names) else {
            return self.bad("an event without time or processor");
        };
        self.hashed |= hashed;
        if let Some((unit, resolution)) = unit {
            self.unit = Some(unit);
            self.resolution = resolution;
        } else if self.unit.is_none() {
            // No context was printed: lines are in order, and that is all.
            self.unit = Some(Unit::Ticks);
            self.resolution = 1;
        }
        if head.is_empty() {
            event.time = self.number;
        }
        Line::Event(event)
    }

    /// The event that waited for its stack.
    fn finish(&mut self, names: &mut Names) -> Option<Item> {
        let mut event = self.waiting.take()?;
        event.stack = names.stack(&self.frames);
        self.frames.clear();
        Some(Item::Event(event))
    }
}

impl<R: BufRead> Source for Text<R> {
    fn next_item(&mut self, names: &mut Names) -> io::Result<Option<Item>> {
        if let Some(item) = self.next.take() {
            return Ok(Some(item));
        }
        loop {
            let Some(len) = self.next_line()? else {
                return Ok(self.finish(names));
            };
            self.number += 1;
            match self.classify(len, names) {
                Line::Nothing => {}
                Line::Stack { kernel } => self.kernel_stack = kernel,
                Line::Frame(site) => {
                    if self.kernel_stack && self.waiting.is_some() && self.frames.len() < MAX_FRAMES
                    {
                        self.frames.push(site);
                    }
                }
                Line::Event(event) => {
                    let before = self.finish(names);
                    self.waiting = Some(event);
                    self.kernel_stack = true;
                    if before.is_some() {
                        return Ok(before);
                    }
                }
                Line::Item(item) => match self.finish(names) {
                    None => return Ok(Some(item)),
                    before => {
                        self.next = Some(item);
                        return Ok(before);
                    }
                },
            }
        }
    }

    fn info(&self) -> Info {
        Info {
            format: "text of the kernel's trace".to_owned(),
            unit: self.unit.unwrap_or_default(),
            resolution: self.resolution,
            hashed: self.hashed,
        }
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// `# entries-in-buffer/entries-written: 372/1462`: what was overwritten.
fn lost_entries(line: &[u8]) -> Option<Item> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, numbers) = text.split_once("entries-in-buffer/entries-written:")?;
    let (kept, written) = numbers.split_whitespace().next()?.split_once('/')?;
    let lost = written
        .parse::<u64>()
        .ok()?
        .checked_sub(kept.parse().ok()?)?;
    let lost = Lost {
        cpu: None,
        events: Some(lost),
    };
    (lost.events != Some(0)).then_some(Item::Lost(lost))
}

/// `CPU:0 [LOST 344 EVENTS]`, `CPU:0 [LOST EVENTS]`.
fn lost_line(line: &[u8]) -> Option<Lost> {
    let text = std::str::from_utf8(line).ok()?;
    let (cpu, rest) = text.strip_prefix("CPU:")?.split_once(' ')?;
    let rest = rest.strip_prefix("[LOST ")?;
    Some(Lost {
        cpu: Some(cpu.parse().ok()?),
        events: rest.split(' ').next()?.parse().ok(),
    })
}

/// What stands before the event, its name (without a system before it), and what stands after.
fn split(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let word = |from: usize| {
        let start = from + line[from..].iter().position(|b| *b != b' ')?;
        let rest = &line[start..];
        if rest.starts_with(b"<") {
            let end = memchr::memchr(b'>', rest)? + 1;
            return Some((&rest[..end], &rest[end..]));
        }
        let colon = memchr::memchr(b':', rest)?;
        let name = &rest[..colon];
        let good = !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
        if !good {
            return None;
        }
        // kmem:kmalloc: as perf has it.
        if rest.get(colon + 1).is_some_and(|b| *b != b' ') {
            let second = &rest[colon + 1..];
            let end = memchr::memchr(b':', second)?;
            return Some((&second[..end], &second[end + 1..]));
        }
        Some((name, &rest[colon + 1..]))
    };
    for colon in memchr::memchr_iter(b':', line) {
        let digit = colon > 0 && line[colon - 1].is_ascii_digit();
        if digit
            && line.get(colon + 1) == Some(&b' ')
            && let Some((name, rest)) = word(colon + 1)
        {
            return Some((&line[..colon], name, rest));
        }
    }
    // Without context the line starts with the name.
    let (name, rest) = word(0)?;
    (rest.starts_with(b" ") && find(rest, b"=").is_some()).then_some((&line[..0], name, rest))
}

fn hex(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"0x").unwrap_or(text);
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    let mut value = 0;
    for byte in text {
        value = value << 4 | u64::from((*byte as char).to_digit(16)?);
    }
    Some(value)
}

fn number(text: &[u8]) -> Option<u64> {
    if text.starts_with(b"0x") {
        return hex(text);
    }
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    let mut value = 0;
    for byte in text {
        value = value * 10 + u64::from((*byte as char).to_digit(10)?);
    }
    Some(value)
}

/// A call site: `name+0x10/0x20 [module]` without the size, or an address.
fn site(text: &[u8], names: &mut Names) -> SiteId {
    let text = text.trim_ascii();
    let bare = text
        .strip_prefix(b"<")
        .and_then(|t| t.strip_suffix(b">"))
        .unwrap_or(text);
    let is_address = bare.len() >= 8 && (bare.starts_with(b"0x") || bare.len() == 16);
    if is_address && let Some(address) = hex(bare) {
        return names.address(address);
    }
    // (-2129773786), which option fields adds.
    let text = find(text, b" (").map_or(text, |at| &text[..at]);
    let Some(slash) = find(text, b"/0x") else {
        return names.site(&String::from_utf8_lossy(text));
    };
    let after = &text[slash..];
    let Some(blank) = memchr::memchr(b' ', after) else {
        return match std::str::from_utf8(&text[..slash]) {
            Ok(text) => names.site(text),
            Err(_) => names.site(&String::from_utf8_lossy(&text[..slash])),
        };
    };
    let both = [&text[..slash], &after[blank..]].concat();
    names.site(&String::from_utf8_lossy(&both))
}

/// Reads `key=value ...` into an event. Whether its pointer is a hash; `None` if fields are missing.
fn values(mut rest: &[u8], event: &mut Event, page_size: u64, names: &mut Names) -> Option<bool> {
    let (mut has_site, mut has_ptr, mut has_size, mut hashed) = (false, false, false, false);
    let pages = event.class == Class::Pages;
    while let Some(equals) = memchr::memchr(b'=', rest) {
        let key = memchr::memrchr(b' ', &rest[..equals]).map_or(0, |at| at + 1);
        let key = &rest[key..equals];
        rest = &rest[equals + 1..];
        let mut end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        match key {
            // Values that may have blanks in them.
            b"call_site" => end = find(rest, b" ptr=").unwrap_or(end),
            b"name" => end = find(rest, b" bytes_req=").unwrap_or(rest.len()),
            _ => {}
        }
        let value = &rest[..end];
        rest = &rest[end..];
        match key {
            b"call_site" => (event.site, has_site) = (site(value, names), true),
            b"ptr" if !pages => {
                event.ptr = if value == b"(null)" || value == b"(nil)" {
                    0
                } else {
                    hex(value).unwrap_or(UNKNOWN_PTR)
                };
                hashed = value.len() == 16 && event.ptr >> 32 == 0 && event.ptr != 0;
                has_ptr = true;
            }
            b"page" if pages && value == b"(null)" => event.ptr = 0,
            b"pfn" if pages => {
                let failed = event.ptr == 0;
                let pfn = number(value).or_else(|| hex(value))?;
                event.ptr = if failed || pfn == u64::MAX { 0 } else { pfn };
                has_ptr = true;
            }
            b"bytes_req" => event.requested = number(value)?,
            b"bytes_alloc" => (event.given, has_size) = (number(value)?, true),
            b"name" => event.cache = names.word_bytes(value.trim_ascii()),
            b"gfp_flags" => event.flags = names.word_bytes(value),
            b"node" => event.node = number(value).map_or(-1, |n| n as i32),
            b"order" => event.order = number(value)?.min(52) as u8,
            b"migratetype" => event.migrate = number(value)?.min(255) as u8,
            _ => {}
        }
    }
    if pages {
        event.given = page_size.checked_shl(u32::from(event.order)).unwrap_or(0);
        event.requested = event.given;
        return has_ptr.then_some(false);
    }
    (has_site && has_ptr && (has_size || event.op == Op::Free)).then_some(hashed)
}

/// Reads what stands before the event. The unit and resolution of its time; `Some(None)` if there is no context at all.
#[allow(clippy::option_option)]
fn context(head: &[u8], event: &mut Event, names: &mut Names) -> Option<Option<(Unit, u64)>> {
    if head.is_empty() {
        return Some(None);
    }
    let time_at = memchr::memrchr(b' ', head).map_or(0, |at| at + 1);
    let (time, unit) = time(&head[time_at..])?;
    event.time = time;
    // The last [NUMBER].
    let mut before = &head[..time_at];
    let (open, cpu) = loop {
        let close = memchr::memrchr(b']', before)?;
        let open = memchr::memrchr(b'[', &before[..close])?;
        if let Some(cpu) = number(&before[open + 1..close]) {
            break (open, cpu);
        }
        before = &before[..open];
    };
    event.cpu = u32::try_from(cpu).ok()?;
    let mut task = head[..open].trim_ascii();
    if task.ends_with(b")")
        && let Some(at) = memchr::memrchr(b'(', task)
        && task[at + 1..task.len() - 1]
            .trim_ascii()
            .iter()
            .all(|b| b.is_ascii_digit() || *b == b'-')
    {
        task = task[..at].trim_ascii();
    }
    let at = task.iter().rposition(|b| !b.is_ascii_digit())?;
    event.pid = number(&task[at + 1..]).and_then(|pid| i32::try_from(pid).ok())?;
    event.comm = names.word_bytes(task[..at].trim_ascii());
    Some(Some(unit))
}

/// A time: seconds with 6 or 9 decimals, or a count of something.
fn time(text: &[u8]) -> Option<(u64, (Unit, u64))> {
    let Some(dot) = memchr::memchr(b'.', text) else {
        return Some((number(text)?, (Unit::Ticks, 1)));
    };
    let (seconds, decimals) = (number(&text[..dot])?, &text[dot + 1..]);
    let digits = u32::try_from(decimals.len()).ok().filter(|n| *n <= 9)?;
    let resolution = 10_u64.pow(9 - digits);
    let nanos = number(decimals)? * resolution;
    let time = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    Some((time, (Unit::Nanoseconds, resolution)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<Item>, Names, Info) {
        let mut names = Names::new();
        let mut source = Text::new(text.as_bytes());
        let mut out = Vec::new();
        while let Some(item) = source.next_item(&mut names).expect("memory") {
            out.push(item);
        }
        (out, names, source.info())
    }

    fn one(text: &str) -> (Event, Names, Info) {
        let (items, names, info) = read(text);
        match items.as_slice() {
            [Item::Event(event)] => (*event, names, info),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn context_in_all_its_forms() {
        let tail = "kfree: call_site=f+0x1/0x2 [mod] ptr=00000000111d1e1c";
        for head in [
            "  a [0] b)-12-34   [001] .....    20.343165: ",
            "  a [0] b)-12-34   (      1) [001] ..s1.  20.343165: ",
            "  a [0] b)-12-34   (-------) [001]  20.343165000: ",
            "  a [0] b)-12  34 [001]    20.343165:    kmem:",
        ] {
            let (event, names, info) = one(&format!("{head}{tail}\n"));
            assert_eq!(
                (event.cpu, event.pid, event.time),
                (1, 34, 20_343_165_000),
                "{head}"
            );
            assert_eq!(names.text(event.comm), "a [0] b)-12");
            assert_eq!(event.site, one_site("f+0x1 [mod]", &names));
            assert!(info.hashed);
        }
        let (event, _, info) = one(tail);
        assert_eq!((event.time, event.pid, info.unit), (1, -1, Unit::Ticks));
    }

    fn one_site(text: &str, names: &Names) -> SiteId {
        let word = (0..names.sites()).count();
        assert_eq!(word, 3, "none, more, and the one of the line");
        assert!((0..names.words()).count() > 2 && !text.is_empty());
        let mut again = Names::new();
        again.site(text)
    }

    #[test]
    fn losses_stacks_and_others() {
        let text = "# entries-in-buffer/entries-written: 372/1462   #P:2\nCPU:1 [LOST 773 EVENTS]\nCPU:0 [LOST EVENTS]\n\
            a-1 [000] .. 1.000001: kmalloc: call_site=f+0x1/0x2 ptr=(____ptrval____) bytes_req=7 bytes_alloc=8 gfp_flags=GFP_KERNEL node=-1\n\
            a-1 [000] .. 1.000002: <stack trace>\n => g\n => h\n\
            a-1 [000] .. 1.000003: rss_stat: mm_id=5\n1 1 17 type: 293\nrubbish\n";
        let (items, names, _) = read(text);
        assert_eq!(
            items[0],
            Item::Lost(Lost {
                cpu: None,
                events: Some(1090)
            })
        );
        assert_eq!(
            items[1],
            Item::Lost(Lost {
                cpu: Some(1),
                events: Some(773)
            })
        );
        assert_eq!(
            items[2],
            Item::Lost(Lost {
                cpu: Some(0),
                events: None
            })
        );
        let Item::Event(event) = items[3] else {
            panic!("{items:?}")
        };
        assert_eq!(
            (event.ptr, event.requested, event.given),
            (UNKNOWN_PTR, 7, 8)
        );
        assert_eq!(names.frames(event.stack).len(), 2);
        assert!(matches!(items[4], Item::Other(w) if names.text(w) == "rss_stat"));
        assert!(matches!(items[5], Item::Other(_)));
        assert!(matches!(&items[6], Item::Bad(bad) if bad.at == 10));
    }
}
