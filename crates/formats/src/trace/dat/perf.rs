//! `perf.data` with kmem tracepoints, as `perf record -e 'kmem:*'` and `perf kmem record` write it.
//!
//! A header says where the attributes, the records and the features are; one feature holds the kernel's descriptions of the
//! events, in the form of trace.dat. Records of several processors are mixed: between two `FINISHED_ROUND` they may be out of
//! order, so records wait in a heap until the round after theirs has ended. Follows `perf.data-file-format.txt` and
//! `include/uapi/linux/perf_event.h`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use rustc_hash::FxHashMap;

use super::meta::{Input, MAGIC, Meta, invalid, machine};
use crate::kallsyms::Kallsyms;
use crate::trace::event::{Bad, Info, Item, Lost, Source, Unit};
use crate::trace::names::{Names, SiteId};
use crate::trace::ring::{Decoder, Endian, Memo, Record};

/// Most records that wait for their round. If there are more, the earliest go out early.
const WAITING: usize = 1 << 18;

const LOST: u32 = 2;
const COMM: u32 = 3;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
const FINISHED_ROUND: u32 = 68;
const COMPRESSED: u32 = 81;

/// The start of a perf.data.
#[must_use]
pub fn is_perf_data(start: &[u8]) -> bool {
    start.starts_with(b"PERFILE2") || start.starts_with(b"2ELIFREP")
}

/// How the samples of an event look.
#[derive(Debug, Clone, Copy, Default)]
struct Attr {
    sample: u64,
    read: u64,
    /// Other records end with time and processor, too.
    id_all: bool,
}

/// An open perf.data.
#[derive(Debug)]
pub struct PerfData<R> {
    input: BufReader<R>,
    endian: Endian,
    decoder: Decoder,
    memo: Memo,
    attrs: Vec<Attr>,
    ids: FxHashMap<u64, usize>,
    symbols: Kallsyms,
    left: u64,
    offset: u64,
    number: u64,
    heap: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
    /// What is not later than this may go out.
    until: u64,
    /// The latest time that was read, and what it was when the last round ended.
    round: u64,
    before: u64,
    done: bool,
    /// Events lost by records of the kernel, and beyond them by the counts that perf adds at the end.
    lost: [u64; 2],
}

impl<R: Read + Seek> PerfData<R> {
    /// Opens one.
    ///
    /// # Errors
    /// Those of the input; and if it is none, or has no tracepoints.
    pub fn open(reader: R) -> io::Result<Self> {
        let mut input = Input {
            reader: BufReader::new(reader),
            endian: Endian::Little,
        };
        match &input.bytes(8)?[..] {
            b"PERFILE2" => {}
            b"2ELIFREP" => input.endian = Endian::Big,
            _ => return Err(invalid("no perf.data")),
        }
        let size = input.number(8)?;
        if size < 104 {
            return Err(invalid(
                "a perf.data written to a pipe; write it to a file (perf record -o FILE)",
            ));
        }
        let attr_size = input.number(8)?;
        let mut section = || Ok::<_, io::Error>((input.number(8)?, input.number(8)?));
        let (attrs_at, data_at, _) = (section()?, section()?, section()?);
        let features = input.bytes(32)?;
        let (attrs, ids) = attributes(&mut input, attrs_at, attr_size)?;
        let (meta, word, page) = tracing_data(&mut input, &features, data_at)?;
        input.reader.seek(SeekFrom::Start(data_at.0))?;
        // The name that perf has for it; no record tells it.
        let mut decoder = meta.decoder(input.endian, word, page);
        decoder.comm(0, "swapper");
        Ok(PerfData {
            endian: input.endian,
            input: input.reader,
            decoder,
            memo: Memo::default(),
            attrs,
            ids,
            symbols: meta.symbols,
            left: data_at.1,
            offset: data_at.0,
            number: 0,
            heap: BinaryHeap::new(),
            until: 0,
            round: 0,
            before: 0,
            done: false,
            lost: [0; 2],
        })
    }

    /// Symbols of the kernel, which the file has inside.
    #[must_use]
    pub fn symbols(&self) -> &Kallsyms {
        &self.symbols
    }

    /// Reads one record into the heap. `false` at the end; an item for what cannot be read.
    fn read_record(&mut self) -> io::Result<Option<Item>> {
        let mut head = [0; 8];
        if self.left < 8 {
            self.done = true;
            return Ok(None);
        }
        if let Err(e) = self.input.read_exact(&mut head) {
            self.done = true;
            return match e.kind() {
                io::ErrorKind::UnexpectedEof => {
                    Ok(Some(self.bad("the file ends before its data does")))
                }
                _ => Err(e),
            };
        }
        let get = |at, size| self.endian.get(&head, at, size).unwrap_or(0);
        let (kind, size) = (get(0, 4) as u32, get(6, 2));
        if size < 8 || size > self.left {
            self.done = true;
            return Ok(Some(
                self.bad("a record of a size that cannot be; the rest is lost"),
            ));
        }
        let mut record = head.to_vec();
        record.resize(size as usize, 0);
        if self.input.read_exact(&mut record[8..]).is_err() {
            self.done = true;
            return Ok(Some(self.bad("the last record is not whole")));
        }
        self.left -= size;
        self.offset += size;
        match kind {
            FINISHED_ROUND => {
                self.until = self.before;
                self.before = self.round;
            }
            COMPRESSED => {
                return Ok(Some(
                    self.bad("packed records, which are not supported (perf record -z)"),
                ));
            }
            SAMPLE | COMM | FORK | LOST | LOST_SAMPLES => {
                let time = self.time(&record, kind);
                self.round = self.round.max(time);
                self.number += 1;
                self.heap.push(Reverse((time, self.number, record)));
            }
            _ => {}
        }
        Ok(None)
    }

    fn bad(&self, what: &str) -> Item {
        Item::Bad(Bad {
            at: self.offset,
            what: what.to_owned(),
        })
    }

    fn attr(&self, record: &[u8]) -> Attr {
        let first = self.attrs.first().copied().unwrap_or_default();
        if first.sample & 1 << 16 == 0 {
            return first;
        }
        let id = self.endian.get(record, 8, 8);
        let index = id.and_then(|id| self.ids.get(&id));
        index
            .and_then(|i| self.attrs.get(*i))
            .copied()
            .unwrap_or(first)
    }

    /// Time of a record; 0 if it does not tell.
    fn time(&self, record: &[u8], kind: u32) -> u64 {
        if kind == SAMPLE {
            let bits = self.attr(record).sample;
            let before = [1 << 16, 1, 2]
                .iter()
                .filter(|bit| bits & **bit != 0)
                .count();
            let time = self.endian.get(record, 8 + 8 * before, 8);
            return time.filter(|_| bits & 4 != 0).unwrap_or(0);
        }
        self.trailer(record, 4).unwrap_or(0)
    }

    /// A value of what stands at the end of records that are no samples.
    fn trailer(&self, record: &[u8], want: u64) -> Option<u64> {
        let attr = self
            .attrs
            .first()
            .filter(|a| a.id_all && a.sample & want != 0)?;
        let order = [1 << 16, 1 << 7, 1 << 9, 1 << 6, 4, 2];
        let mut at = record.len();
        for bit in order {
            if attr.sample & bit != 0 {
                at = at.checked_sub(8)?;
            }
            if bit == want {
                let size = if want == 4 { 8 } else { 4 };
                return self.endian.get(record, at, size);
            }
        }
        None
    }

    fn sample(&mut self, record: &[u8], names: &mut Names) -> Option<Item> {
        let attr = self.attr(record);
        let (bits, endian) = (attr.sample, self.endian);
        let mut at = 8;
        let mut word = |bit: u64| {
            if bits & bit == 0 {
                return Some(None);
            }
            at += 8;
            endian.get(record, at - 8, 8).map(Some)
        };
        word(1 << 16)?;
        word(1)?;
        word(2)?;
        let time = word(4)?.unwrap_or(0);
        word(8)?;
        word(1 << 6)?;
        word(1 << 9)?;
        let has_cpu = word(1 << 7)?.is_some();
        let cpu = has_cpu.then(|| endian.get(record, at - 8, 4)).flatten();
        let cpu = cpu.map_or(u32::MAX, |cpu| cpu as u32);
        let word = |bit: u64, at: &mut usize| {
            if bits & bit == 0 {
                return Some(None);
            }
            *at += 8;
            endian.get(record, *at - 8, 8).map(Some)
        };
        word(1 << 8, &mut at)?;
        if bits & 1 << 4 != 0 {
            at = read_values(record, at, attr.read, endian)?;
        }
        let mut stack = Vec::new();
        if let Some(n) = word(1 << 5, &mut at)? {
            let room = (record.len() - at) / 8;
            let n = usize::try_from(n).ok().filter(|n| *n <= room)?;
            stack = kernel_frames(record, at, n, endian, names);
            at += n * 8;
        }
        if bits & 1 << 10 == 0 {
            return Some(Item::Other(names.word("(sample of no tracepoint)")));
        }
        let len = endian.get(record, at, 4)? as usize;
        let raw = record.get(at + 4..)?.get(..len)?;
        Some(
            match self.decoder.decode(&mut self.memo, raw, time, cpu, names) {
                Record::Event(mut event) => {
                    event.stack = names.stack(&stack);
                    Item::Event(event)
                }
                Record::Other(name) => Item::Other(name),
                Record::Stack(_) => Item::Other(names.word("kernel_stack")),
                Record::Short => return None,
            },
        )
    }

    /// What a record of the heap says.
    fn item(&mut self, record: &[u8], names: &mut Names) -> Option<Item> {
        let get = |at, size| self.endian.get(record, at, size);
        match get(0, 4)? as u32 {
            SAMPLE => Some(
                self.sample(record, names)
                    .unwrap_or_else(|| self.bad("a sample that is too short")),
            ),
            COMM => {
                let tid = get(12, 4)? as i32;
                let text = record.get(16..)?;
                let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
                self.decoder
                    .comm(tid, &String::from_utf8_lossy(&text[..end]));
                self.memo.forget_comm();
                None
            }
            FORK => {
                let (tid, parent) = (get(16, 4)? as i32, get(20, 4)? as i32);
                self.decoder.fork(tid, parent);
                self.memo.forget_comm();
                None
            }
            LOST => {
                let events = get(16, 8);
                self.lost[0] = self.lost[0].saturating_add(events.unwrap_or(0));
                let cpu = self.trailer(record, 1 << 7).map(|cpu| cpu as u32);
                Some(Item::Lost(Lost { cpu, events }))
            }
            _ => {
                // The counters' own number of lost samples, which the records above told already, unless they were lost too.
                self.lost[1] = self.lost[1].saturating_add(get(8, 8)?);
                let more = self.lost[1].checked_sub(self.lost[0]).filter(|n| *n > 0)?;
                self.lost[0] = self.lost[1];
                Some(Item::Lost(Lost {
                    cpu: None,
                    events: Some(more),
                }))
            }
        }
    }
}

/// The frames of the kernel in a call chain. Marks between say whose frames follow.
fn kernel_frames(
    record: &[u8],
    at: usize,
    n: usize,
    endian: Endian,
    names: &mut Names,
) -> Vec<SiteId> {
    const MARKS: u64 = u64::MAX - 4095;
    const KERNEL: u64 = (-128_i64) as u64;
    let mut kernel = false;
    let mut out = Vec::new();
    for i in 0..n {
        match endian.get(record, at + i * 8, 8) {
            Some(mark @ MARKS..) => kernel = mark == KERNEL,
            Some(address) if kernel => out.push(names.address(address)),
            _ => {}
        }
    }
    out
}

/// Where the counter values of a sample end.
fn read_values(record: &[u8], at: usize, format: u64, endian: Endian) -> Option<usize> {
    let times = usize::from(format & 1 != 0) + usize::from(format & 2 != 0);
    let each = 1 + usize::from(format & 4 != 0) + usize::from(format & 16 != 0);
    let words = if format & 8 == 0 {
        times + each
    } else {
        let n = usize::try_from(endian.get(record, at, 8)?).ok()?;
        1 + times + n.checked_mul(each)?
    };
    at.checked_add(words.checked_mul(8)?)
        .filter(|end| *end <= record.len())
}

type Attributes = (Vec<Attr>, FxHashMap<u64, usize>);

fn attributes<R: Read + Seek>(
    input: &mut Input<R>,
    (at, size): (u64, u64),
    each: u64,
) -> io::Result<Attributes> {
    let mut attrs = Vec::new();
    let mut ids = FxHashMap::default();
    if !(80..=4096).contains(&each) || size / each > 1 << 16 {
        return Err(invalid("attributes that cannot be"));
    }
    for i in 0..size / each {
        input.reader.seek(SeekFrom::Start(at + i * each))?;
        let bytes = input.bytes(each)?;
        let get = |at| input.endian.get(&bytes, at, 8).unwrap_or(0);
        let (sample, read, flags) = (get(24), get(32), get(40));
        // Bits of a bit field stand the other way round on machines of the other order.
        let id_all = match input.endian {
            Endian::Little => flags & 1 << 18 != 0,
            Endian::Big => flags & 1 << (63 - 18) != 0,
        };
        let (ids_at, ids_size) = (get(each as usize - 16), get(each as usize - 8));
        input.reader.seek(SeekFrom::Start(ids_at))?;
        for _ in 0..(ids_size / 8).min(1 << 20) {
            ids.insert(input.number(8)?, attrs.len());
        }
        attrs.push(Attr {
            sample,
            read,
            id_all,
        });
    }
    Ok((attrs, ids))
}

/// The descriptions, which are the feature with bit 1. Also the size of `long` and of a page.
fn tracing_data<R: Read + Seek>(
    input: &mut Input<R>,
    features: &[u8],
    data: (u64, u64),
) -> io::Result<(Meta, usize, u64)> {
    let endian = input.endian;
    let word = endian.get(features, 0, 8).unwrap_or(0);
    if word & 2 == 0 {
        return Err(invalid(
            "a perf.data without tracepoints (perf record -e 'kmem:*')",
        ));
    }
    // Bit 0 is never set; if it is, its section comes first.
    let index = word & 1;
    let end = data
        .0
        .checked_add(data.1)
        .ok_or_else(|| invalid("data that cannot be"))?;
    input
        .reader
        .seek(SeekFrom::Start(end.saturating_add(index * 16)))?;
    let at = input.number(8)?;
    input.reader.seek(SeekFrom::Start(at))?;
    if input.bytes(MAGIC.len() as u64)? != MAGIC {
        return Err(invalid("no descriptions of events where they should be"));
    }
    let version = input.string()?;
    let (long, page) = machine(input)?;
    let mut meta = Meta::default();
    let new = version
        .trim_start_matches("0.")
        .parse::<u32>()
        .is_ok_and(|v| v >= 6);
    meta.all(input, new)?;
    input.endian = endian;
    Ok((meta, long, page))
}

impl<R: Read + Seek> Source for PerfData<R> {
    fn next_item(&mut self, names: &mut Names) -> io::Result<Option<Item>> {
        loop {
            let ready = match self.heap.peek() {
                Some(Reverse((time, ..))) => {
                    self.done || *time <= self.until || self.heap.len() > WAITING
                }
                None if self.done => return Ok(None),
                None => false,
            };
            if ready {
                if let Some(Reverse((_, _, record))) = self.heap.pop()
                    && let Some(item) = self.item(&record, names)
                {
                    return Ok(Some(item));
                }
                continue;
            }
            if let Some(item) = self.read_record()? {
                return Ok(Some(item));
            }
        }
    }

    fn info(&self) -> Info {
        Info {
            format: "perf.data".to_owned(),
            unit: Unit::Nanoseconds,
            resolution: 1,
            hashed: false,
        }
    }
}
