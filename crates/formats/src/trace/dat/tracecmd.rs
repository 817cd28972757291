//! `trace.dat` of trace-cmd, versions 6 and 7.
//!
//! Version 6 has the descriptions one after the other, then options, then for each processor the place of its pages. Version 7
//! has sections, which may be packed; chains of options say where they are. The pages of a processor, if packed, are a list of
//! chunks. Follows trace-cmd's `trace-cmd.dat.v6(5)` and `trace-cmd.dat.v7(5)`.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use super::meta::{Input, MAGIC, Meta, invalid, machine};
use crate::kallsyms::Kallsyms;
use crate::trace::event::Unit;
use crate::trace::ring::{Endian, RawCpu};

/// Most bytes of a chunk, unpacked.
const CHUNK: u64 = 64 << 20;
/// Most sections that are followed.
const SECTIONS: usize = 10_000;

/// The start of a trace.dat.
#[must_use]
pub fn is_trace_dat(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// An open trace.dat. [`Merge`](crate::trace::Merge) puts its processors in order.
pub struct TraceDat {
    /// The version, 6 or 7.
    pub version: u32,
    /// The events of each processor.
    pub cpus: Vec<RawCpu<Box<dyn Read>>>,
    /// Symbols of the kernel.
    pub symbols: Kallsyms,
}

/// Where the pages of a processor are.
struct Place {
    cpu: u32,
    offset: u64,
    size: u64,
    packed: bool,
}

#[derive(Default)]
struct Found {
    meta: Meta,
    places: Vec<Place>,
    clock: String,
    zstd: bool,
}

impl TraceDat {
    /// Opens one. `open` opens the file anew, each time with a position of its own.
    ///
    /// # Errors
    /// Those of the input; and if it is none, or packed in a way that is not known.
    pub fn open<R: Read + Seek + 'static>(
        open: impl Fn() -> io::Result<R>,
    ) -> io::Result<TraceDat> {
        let mut input = Input {
            reader: io::BufReader::new(open()?),
            endian: Endian::Little,
        };
        if input.bytes(MAGIC.len() as u64)? != MAGIC {
            return Err(invalid("no trace.dat"));
        }
        let version: u32 = input
            .string()?
            .parse()
            .map_err(|_| invalid("a version that is no number"))?;
        let (word, page_size) = machine(&mut input)?;
        let found = match version {
            ..=6 => version_6(&mut input, word)?,
            7 => version_7(&mut input)?,
            _ => {
                return Err(invalid(format!(
                    "trace.dat version {version}, which is not known"
                )));
            }
        };
        let page = found
            .meta
            .page
            .clone()
            .ok_or_else(|| invalid("no description of pages"))?;
        let decoder = Arc::new(found.meta.decoder(input.endian, word, page_size));
        let unit = match found.clock.as_str() {
            "counter" | "x86-tsc" | "uptime" => Unit::Ticks,
            _ => Unit::Nanoseconds,
        };
        let mut cpus = Vec::new();
        for place in found.places.iter().filter(|p| p.size > 0) {
            let mut reader = open()?;
            reader.seek(SeekFrom::Start(place.offset))?;
            // The number of chunks is not counted.
            let extra = if place.packed { 4 } else { 0 };
            let part = reader.take(place.size.saturating_add(extra));
            let pages: Box<dyn Read> = match place.packed {
                true => Box::new(Chunks::new(part, input.endian)?),
                false => Box::new(part),
            };
            cpus.push(RawCpu::new(pages, page.clone(), decoder.clone(), place.cpu).unit(unit));
        }
        Ok(TraceDat {
            version,
            cpus,
            symbols: found.meta.symbols,
        })
    }
}

/// The clock in brackets: `local [mono] boot`.
fn clock(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let inside = text.split_once('[').and_then(|(_, t)| t.split_once(']'));
    inside.map_or_else(String::new, |(name, _)| name.to_owned())
}

fn version_6<R: Read + Seek>(input: &mut Input<R>, _word: usize) -> io::Result<Found> {
    let mut found = Found::default();
    found.meta.all(input, true)?;
    let cpus = input.number(4)?;
    if cpus > 1 << 16 {
        return Err(invalid("too many processors"));
    }
    loop {
        match &input.bytes(10)?[..] {
            b"options  \0" => loop {
                let id = input.number(2)?;
                if id == 0 {
                    break;
                }
                let len = input.number(4)?;
                let data = input.bytes(len)?;
                if id == 4 {
                    found.clock = clock(&data);
                }
            },
            b"flyrecord\0" => break,
            b"latency  \0" => {
                return Err(invalid(
                    "a trace.dat that holds text (latency), which is to be read as text",
                ));
            }
            _ => return Err(invalid("neither options nor data where they should be")),
        }
    }
    for cpu in 0..cpus as u32 {
        let (offset, size) = (input.number(8)?, input.number(8)?);
        found.places.push(Place {
            cpu,
            offset,
            size,
            packed: false,
        });
    }
    Ok(found)
}

/// Goes to a section. Its contents, unpacked.
fn section<R: Read + Seek>(
    input: &mut Input<R>,
    offset: u64,
    want: u64,
    zstd: bool,
) -> io::Result<Vec<u8>> {
    input.reader.seek(SeekFrom::Start(offset))?;
    let (id, flags) = (input.number(2)?, input.number(2)?);
    input.number(4)?;
    let size = input.number(8)?;
    if id != want {
        return Err(invalid(format!(
            "section {id} where section {want} should be"
        )));
    }
    if flags & 1 == 0 {
        return input.bytes(size);
    }
    let (packed, whole) = (input.number(4)?, input.number(4)?);
    if !zstd || whole > CHUNK {
        return Err(invalid(
            "a section that is packed in a way that is not known",
        ));
    }
    let bytes = input.bytes(packed)?;
    zstd::bulk::decompress(&bytes, whole as usize)
}

fn version_7<R: Read + Seek>(input: &mut Input<R>) -> io::Result<Found> {
    let packer = input.string()?;
    input.string()?;
    let mut found = Found {
        zstd: packer == "zstd",
        ..Found::default()
    };
    if !matches!(packer.as_str(), "zstd" | "none" | "") {
        return Err(invalid(format!(
            "packed with {packer}, which is not supported (zstd is)"
        )));
    }
    let mut next = input.number(8)?;
    for _ in 0..SECTIONS {
        if next == 0 {
            return Ok(found);
        }
        let bytes = section(input, next, 0, found.zstd)?;
        next = options(input, &bytes, &mut found)?;
    }
    Err(invalid("options that do not end"))
}

/// Follows the options of a section. Where the next section of options is; 0 = there is none.
fn options<R: Read + Seek>(
    input: &mut Input<R>,
    bytes: &[u8],
    found: &mut Found,
) -> io::Result<u64> {
    let endian = input.endian;
    let mut list = Input {
        reader: bytes,
        endian,
    };
    while !list.reader.is_empty() {
        let (id, len) = (list.number(2)?, list.number(4)?);
        let data = list.bytes(len)?;
        let at = endian.get(&data, 0, 8);
        if id == 0 {
            return Ok(at.unwrap_or(0));
        }
        if id == 4 {
            found.clock = clock(&data);
        }
        if id == 3 {
            buffer(input, &data, found)?;
        }
        if let (16..=21, Some(at)) = (id, at) {
            let bytes = section(input, at, id, found.zstd)?;
            let mut part = Input {
                reader: bytes.as_slice(),
                endian,
            };
            match id {
                16 => found.meta.headers(&mut part)?,
                17 => found.meta.events(&mut part)?,
                18 => found.meta.systems(&mut part)?,
                19 => found.meta.kallsyms(&mut part)?,
                21 => found.meta.cmdlines(&mut part)?,
                _ => {}
            }
        }
    }
    Ok(0)
}

/// A buffer: the place of its section, name, clock, size of a page, and for each processor the place of its pages.
fn buffer<R: Read + Seek>(input: &mut Input<R>, data: &[u8], found: &mut Found) -> io::Result<()> {
    let mut part = Input {
        reader: data,
        endian: input.endian,
    };
    let at = part.number(8)?;
    let name = part.string()?;
    let clock = part.string()?;
    part.number(4)?;
    let cpus = part.number(4)?;
    input.reader.seek(SeekFrom::Start(at))?;
    input.number(2)?;
    let packed = input.number(2)? & 1 != 0;
    // Buffers of further instances hold other events of the same time.
    if found.clock.is_empty() || name.is_empty() {
        found.clock = clock;
    }
    for _ in 0..cpus {
        let (cpu, offset, size) = (part.number(4)? as u32, part.number(8)?, part.number(8)?);
        found.places.push(Place {
            cpu,
            offset,
            size,
            packed,
        });
    }
    Ok(())
}

/// Packed pages, unpacked chunk by chunk. Memory: one chunk.
struct Chunks<R> {
    input: Input<R>,
    left: u64,
    chunk: Vec<u8>,
    at: usize,
}

impl<R: Read> Chunks<R> {
    fn new(reader: R, endian: Endian) -> io::Result<Self> {
        let mut input = Input { reader, endian };
        let left = input.number(4)?;
        Ok(Chunks {
            input,
            left,
            chunk: Vec::new(),
            at: 0,
        })
    }
}

impl<R: Read> Read for Chunks<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.chunk.len() {
            if self.left == 0 {
                return Ok(0);
            }
            self.left -= 1;
            let (packed, whole) = (self.input.number(4)?, self.input.number(4)?);
            if whole > CHUNK || packed > CHUNK {
                return Err(invalid("a chunk that is too large"));
            }
            let bytes = self.input.bytes(packed)?;
            self.chunk = zstd::bulk::decompress(&bytes, whole as usize)?;
            self.at = 0;
        }
        let rest = &self.chunk[self.at..];
        let n = rest.len().min(out.len());
        out[..n].copy_from_slice(&rest[..n]);
        self.at += n;
        Ok(n)
    }
}
