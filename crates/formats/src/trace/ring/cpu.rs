//! The pages of one processor, as `per_cpu/cpuN/trace_pipe_raw` gives them, as a source of events.
//!
//! Memory: a block of pages, whatever the length of the input.

use std::io::{self, Read};
use std::sync::Arc;

use super::decode::{Decoder, Memo, Record};
use super::format::PageFormat;
use super::page::{Cursor, Next, page_head};
use crate::trace::event::{Bad, Event, Info, Item, Lost, Source, Unit};
use crate::trace::names::Names;

/// Bytes read at once, if a page is not larger.
const BLOCK: usize = 256 << 10;

/// Events of one processor.
#[derive(Debug)]
pub struct RawCpu<R> {
    input: R,
    decoder: Arc<Decoder>,
    memo: Memo,
    format: PageFormat,
    cpu: u32,
    buffer: Vec<u8>,
    /// What of the buffer is filled, and where the page that is read starts in it.
    filled: usize,
    page: usize,
    /// Offset of the buffer in the input.
    offset: u64,
    data: (usize, usize),
    cursor: Cursor,
    /// An event whose stack may come next.
    waiting: Option<Event>,
    /// What comes after `waiting`.
    next: Option<Item>,
    at_end: bool,
    unit: Unit,
}

impl<R: Read> RawCpu<R> {
    /// Reads pages of `format` from `input`, which is of processor `cpu`.
    pub fn new(input: R, format: PageFormat, decoder: Arc<Decoder>, cpu: u32) -> Self {
        let pages = (BLOCK / format.len()).max(1);
        RawCpu {
            input,
            decoder,
            memo: Memo::default(),
            cpu,
            buffer: vec![0; pages * format.len()],
            format,
            filled: 0,
            page: 0,
            offset: 0,
            data: (0, 0),
            cursor: Cursor::default(),
            waiting: None,
            next: None,
            at_end: false,
            unit: Unit::Nanoseconds,
        }
    }

    /// Says what its times count, if it is not nanoseconds.
    #[must_use]
    pub fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// The input.
    pub fn input(&self) -> &R {
        &self.input
    }

    /// Fills the buffer. Whether there is anything in it.
    fn fill(&mut self) -> io::Result<bool> {
        self.offset += self.filled as u64;
        (self.filled, self.page) = (0, 0);
        while self.filled < self.buffer.len() {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => break,
                Ok(n) => self.filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A ring buffer that is read live has no more for now: what there is are whole pages.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.filled > 0 => break,
                Err(e) => return Err(e),
            }
            // What is there is handed out, page by page; a live buffer may take long to give more.
            if self.filled.is_multiple_of(self.format.len()) {
                break;
            }
        }
        Ok(self.filled > 0)
    }

    fn bad(&self, at: usize, what: &str) -> Item {
        Item::Bad(Bad {
            at: self.offset + at as u64,
            what: format!("CPU {}: {what}", self.cpu),
        })
    }

    /// Goes to the next page. An item if there is something to say of it.
    fn next_page(&mut self) -> io::Result<Option<Item>> {
        self.data = (0, 0);
        if self.page >= self.filled && !self.fill()? {
            self.at_end = true;
            return Ok(None);
        }
        let (start, len) = (self.page, self.format.len());
        self.page += len;
        if self.page > self.filled {
            return Ok(Some(self.bad(start, "the last page is not whole")));
        }
        let page = &self.buffer[start..start + len];
        let Some(head) = page_head(page, &self.format, self.decoder.endian()) else {
            return Ok(Some(
                self.bad(start, "a page that says it has more data than fits"),
            ));
        };
        self.cursor = Cursor::new(&head);
        let data = start + self.format.data.0;
        self.data = (data, data + head.commit);
        Ok(head.lost.map(|events| {
            Item::Lost(Lost {
                cpu: Some(self.cpu),
                events,
            })
        }))
    }

    /// The next record, as an item or as the stack of the event before.
    #[inline]
    fn record(&mut self, names: &mut Names) -> io::Result<Option<Result<Item, Record>>> {
        loop {
            let data = &self.buffer[self.data.0..self.data.1];
            match self.cursor.next(data, self.decoder.endian()) {
                Next::Entry(entry) => {
                    let record = &data[entry.start..entry.end];
                    let found =
                        self.decoder
                            .decode(&mut self.memo, record, entry.time, self.cpu, names);
                    return Ok(Some(match found {
                        Record::Event(event) => Ok(Item::Event(event)),
                        Record::Other(name) => Ok(Item::Other(name)),
                        Record::Short => Ok(self.bad(
                            self.data.0 + entry.start,
                            "a record that is too short for its event",
                        )),
                        stack @ Record::Stack(_) => Err(stack),
                    }));
                }
                Next::Broken => {
                    let bad = self.bad(
                        self.data.0 + self.cursor.offset(),
                        "an entry that cannot be; the rest of its page is lost",
                    );
                    self.data = (0, 0);
                    self.cursor = Cursor::default();
                    return Ok(Some(Ok(bad)));
                }
                Next::End => {
                    let item = self.next_page()?;
                    if let Some(item) = item {
                        return Ok(Some(Ok(item)));
                    }
                    if self.at_end {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// The next item, with stacks put into the events before them.
    fn with_stacks(&mut self, names: &mut Names) -> io::Result<Option<Item>> {
        if let Some(item) = self.next.take() {
            return Ok(Some(item));
        }
        loop {
            match self.record(names)? {
                None => return Ok(self.waiting.take().map(Item::Event)),
                Some(Ok(Item::Event(event))) => {
                    if let Some(before) = self.waiting.replace(event) {
                        return Ok(Some(Item::Event(before)));
                    }
                }
                Some(Err(Record::Stack(stack))) => {
                    if let Some(mut event) = self.waiting.take() {
                        event.stack = stack;
                        return Ok(Some(Item::Event(event)));
                    }
                }
                Some(Err(_)) => {}
                Some(Ok(item)) => match self.waiting.take() {
                    None => return Ok(Some(item)),
                    Some(event) => {
                        self.next = Some(item);
                        return Ok(Some(Item::Event(event)));
                    }
                },
            }
        }
    }
}

impl<R: Read> Source for RawCpu<R> {
    #[inline]
    fn next_item(&mut self, names: &mut Names) -> io::Result<Option<Item>> {
        if self.decoder.has_stacks() {
            return self.with_stacks(names);
        }
        loop {
            match self.record(names)? {
                None => return Ok(None),
                Some(Ok(item)) => return Ok(Some(item)),
                Some(Err(_)) => {}
            }
        }
    }

    fn info(&self) -> Info {
        Info {
            format: "raw pages of the ring buffer".to_owned(),
            unit: self.unit,
            resolution: 1,
            hashed: false,
        }
    }
}
