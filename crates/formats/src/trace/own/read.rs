//! The reader: blocks, and the events in them as a [`Source`].

use super::{ABOUT, END, EVENTS, LOST, MAGIC, MAX_BLOCK, Raw, SITES, SiteFrame, SiteInfo, VERSION};
use crate::trace::{Bad, Class, Event, Info, Item, Lost, Names, Op, Source, StackId, WordId};
use rustc_hash::FxHashMap;
use std::io::{self, Read};

/// A block of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// What was recorded: pairs of key and value.
    About(Vec<(String, String)>),
    /// Descriptions of sites.
    Sites(Vec<SiteInfo>),
    /// Events.
    Events(Vec<Raw>),
    /// Events that are not there: ring, thread, how many.
    Lost(u32, u32, u64),
    /// The recorder ended the file: events, lost events.
    End(u64, u64),
    /// A block of a kind that this version does not know.
    Other(u32),
}

/// The blocks of a file.
#[derive(Debug)]
pub struct Blocks<R> {
    input: R,
    at: u64,
    begun: bool,
    over: bool,
}

struct Payload<'a>(&'a [u8]);

impl Payload<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&b, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(b)
    }

    fn number(&mut self) -> Option<u64> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            n |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Some(n);
            }
        }
        None
    }

    fn signed(&mut self, from: u64) -> Option<u64> {
        let n = self.number()?;
        let d = (n >> 1) ^ (n & 1).wrapping_neg();
        Some(from.wrapping_add(d))
    }

    fn text(&mut self) -> Option<String> {
        let n = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// A number of things that take a byte each, at least.
    fn count(&mut self) -> Option<usize> {
        let n = usize::try_from(self.number()?).ok()?;
        (n <= self.0.len()).then_some(n)
    }
}

fn sites(p: &mut Payload<'_>) -> Option<Vec<SiteInfo>> {
    let n = p.count()?;
    let mut sites = Vec::new();
    for _ in 0..n {
        let mut s = SiteInfo {
            index: p.number()? as u32,
            kind: p.byte()?,
            charged: p.number()? as u32,
            frames: Vec::new(),
        };
        for _ in 0..p.count()? {
            s.frames.push(SiteFrame {
                func: p.text()?,
                file: p.text()?,
                line: p.number()? as u32,
                module: p.text()?,
                addr: p.number()?,
            });
        }
        sites.push(s);
    }
    Some(sites)
}

fn events(p: &mut Payload<'_>) -> Option<Vec<Raw>> {
    let mut tids = Vec::new();
    for _ in 0..p.count()? {
        tids.push(p.number()? as u32);
    }
    let n = p.count()?;
    let mut all = Vec::with_capacity(n);
    let mut last = Raw::default();
    for _ in 0..n {
        let head = p.byte()?;
        let mut e = Raw {
            op: head & 15,
            kind: head >> 4,
            flags: p.byte()?,
            ..last
        };
        e.time = p.signed(last.time)?;
        e.ptr = p.signed(last.ptr)?;
        e.index = p.signed(u64::from(last.index))? as u32;
        e.cpu = p.number()? as u16;
        e.tid = *tids.get(usize::try_from(p.number()?).ok()?)?;
        e.requested = p.number()?;
        e.given = p.signed(e.requested)?;
        all.push(e);
        last = e;
    }
    Some(all)
}

fn decode(kind: u32, payload: &[u8]) -> Option<Block> {
    let p = &mut Payload(payload);
    Some(match kind {
        ABOUT => {
            let mut pairs = Vec::new();
            for _ in 0..p.count()? {
                pairs.push((p.text()?, p.text()?));
            }
            Block::About(pairs)
        }
        SITES => Block::Sites(sites(p)?),
        EVENTS => Block::Events(events(p)?),
        LOST => Block::Lost(p.number()? as u32, p.number()? as u32, p.number()?),
        END => Block::End(p.number()?, p.number()?),
        other => Block::Other(other),
    })
}

impl<R: Read> Blocks<R> {
    /// The blocks of `input`.
    pub fn new(input: R) -> Self {
        Blocks {
            input,
            at: 0,
            begun: false,
            over: false,
        }
    }

    fn begin(&mut self) -> io::Result<Result<(), &'static str>> {
        self.begun = true;
        let mut head = [0; 12];
        if self.fill(&mut head)? < head.len() || &head[..8] != MAGIC {
            return Ok(Err("not a memledger trace"));
        }
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        Ok((version == VERSION)
            .then_some(())
            .ok_or("a memledger trace of another version"))
    }

    /// Reads as much as there is.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut n = 0;
        while n < buffer.len() {
            match self.input.read(&mut buffer[n..]) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.at += n as u64;
        Ok(n)
    }

    /// The next block; `None` at the end. `Err` inside: why nothing more can be read, and from which byte on.
    ///
    /// # Errors
    /// Those of the input.
    pub fn next_block(&mut self) -> io::Result<Option<Result<Block, Bad>>> {
        if self.over {
            return Ok(None);
        }
        let start = self.at;
        let bad = |this: &mut Self, what: &str| {
            this.over = true;
            Ok(Some(Err(Bad {
                at: start,
                what: what.to_owned(),
            })))
        };
        if !self.begun
            && let Err(what) = self.begin()?
        {
            return bad(self, what);
        }
        let start = self.at;
        let bad = |this: &mut Self, what: &str| {
            this.over = true;
            Ok(Some(Err(Bad {
                at: start,
                what: what.to_owned(),
            })))
        };
        let mut head = [0; 12];
        match self.fill(&mut head)? {
            0 => {
                self.over = true;
                return Ok(None);
            }
            12 => {}
            _ => return bad(self, "the file ends inside a block"),
        }
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let (kind, len, sum) = (word(0), word(4) as usize, word(8));
        if len > MAX_BLOCK {
            return bad(self, "a block is too long");
        }
        let mut payload = Vec::new();
        let got = (&mut self.input)
            .take(len as u64)
            .read_to_end(&mut payload)?;
        self.at += got as u64;
        if got < len {
            return bad(self, "the file ends inside a block");
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head[..8]);
        crc.update(&payload);
        if crc.finalize() != sum {
            return bad(self, "the checksum of a block is wrong");
        }
        match decode(kind, &payload) {
            Some(block) => Ok(Some(Ok(block))),
            None => bad(self, "a block makes no sense"),
        }
    }
}

/// A file as a [`Source`]. Sites that are described behind their first event have only their number before: [`OwnTrace::learn`] reads the
/// descriptions of a whole file first.
#[derive(Debug)]
pub struct OwnTrace<R> {
    blocks: Blocks<R>,
    about: Vec<(String, String)>,
    sites: FxHashMap<u32, SiteInfo>,
    pending: std::vec::IntoIter<Raw>,
    ended: bool,
    comm: String,
}

impl<R: Read> OwnTrace<R> {
    /// Reads `input`.
    pub fn new(input: R) -> Self {
        OwnTrace {
            blocks: Blocks::new(input),
            about: Vec::new(),
            sites: FxHashMap::default(),
            pending: Vec::new().into_iter(),
            ended: false,
            comm: String::new(),
        }
    }

    /// Takes the descriptions of sites out of a file.
    ///
    /// # Errors
    /// Those of the input.
    pub fn learn(&mut self, input: impl Read) -> io::Result<()> {
        let mut blocks = Blocks::new(input);
        while let Some(Ok(block)) = blocks.next_block()? {
            if let Block::Sites(sites) = block {
                self.add_sites(sites);
            }
        }
        Ok(())
    }

    fn add_sites(&mut self, sites: Vec<SiteInfo>) {
        self.sites.extend(sites.into_iter().map(|s| (s.index, s)));
    }

    /// What was recorded: pairs of key and value.
    pub fn about(&self) -> &[(String, String)] {
        &self.about
    }

    /// What an index stands for, as far as it is known yet.
    pub fn site(&self, index: u32) -> Option<&SiteInfo> {
        self.sites.get(&index)
    }

    fn event(&self, raw: &Raw, names: &mut Names) -> Event {
        let class = match raw.kind {
            1 => Class::Cache,
            2 => Class::Pages,
            _ => Class::Kmalloc,
        };
        let op = if raw.op == 1 { Op::Alloc } else { Op::Free };
        let mut e = Event::new(op, class, raw.time, raw.ptr);
        e.given = raw.given;
        if op == Op::Alloc {
            e.requested = raw.requested;
        }
        match self.sites.get(&raw.index) {
            Some(site) => {
                e.site = names.site(&site.text());
                e.stack = stack(site, names);
            }
            None => e.site = names.site(&format!("#{}", raw.index)),
        }
        e.flags = flags(raw.flags, names);
        e.comm = names.word(&self.comm);
        e.pid = i32::try_from(raw.tid).ok().filter(|t| *t > 0).unwrap_or(-1);
        e.cpu = match raw.cpu {
            u16::MAX => u32::MAX,
            cpu => u32::from(cpu),
        };
        e
    }
}

/// The frames from the charged one on.
fn stack(site: &SiteInfo, names: &mut Names) -> StackId {
    if site.frames.len() < 2 {
        return StackId::NONE;
    }
    let from = (site.charged as usize).min(site.frames.len());
    let frames = site.frames[from..].iter();
    let ids: Vec<_> = frames.map(|f| names.site(&super::frame_text(f))).collect();
    names.stack(&ids)
}

/// The flags in words.
pub(super) fn flag_text(flags: u8) -> String {
    let all = [(1, "zero"), (2, "aligned"), (4, "realloc")];
    let set = all.iter().filter(|(bit, _)| flags & bit != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join("|")
}

fn flags(flags: u8, names: &mut Names) -> WordId {
    match flags {
        0 => WordId::NONE,
        flags => names.word(&flag_text(flags)),
    }
}

impl<R: Read> Source for OwnTrace<R> {
    fn next_item(&mut self, names: &mut Names) -> io::Result<Option<Item>> {
        loop {
            if let Some(raw) = self.pending.next() {
                if raw.op == 3 {
                    return Ok(Some(Item::Other(names.word("object_table_full"))));
                }
                return Ok(Some(Item::Event(self.event(&raw, names))));
            }
            match self.blocks.next_block()? {
                None if self.ended => return Ok(None),
                None => {
                    // Told once: the recorder did not get to the end.
                    self.ended = true;
                    return Ok(Some(Item::Bad(Bad {
                        at: self.blocks.at,
                        what: "the recorder did not end the file".to_owned(),
                    })));
                }
                Some(Err(bad)) => {
                    self.ended = true;
                    return Ok(Some(Item::Bad(bad)));
                }
                Some(Ok(Block::About(about))) => {
                    let comm = about.iter().find(|(k, _)| k == "comm");
                    self.comm = comm.map(|(_, v)| v.clone()).unwrap_or_default();
                    self.about = about;
                }
                Some(Ok(Block::Sites(sites))) => self.add_sites(sites),
                Some(Ok(Block::Events(events))) => self.pending = events.into_iter(),
                Some(Ok(Block::Lost(_, _, n))) => {
                    return Ok(Some(Item::Lost(Lost {
                        cpu: None,
                        events: Some(n),
                    })));
                }
                Some(Ok(Block::End(..))) => self.ended = true,
                Some(Ok(Block::Other(kind))) => {
                    return Ok(Some(Item::Other(names.word(&format!("block {kind}")))));
                }
            }
        }
    }

    fn info(&self) -> Info {
        Info {
            format: format!("memledger trace version {VERSION}"),
            resolution: 1,
            ..Info::default()
        }
    }
}
