//! Opens traces of all formats as one source.

use super::args::Input;
use crate::{Failure, Result};
use memledger_formats::kallsyms::Kallsyms;
use memledger_formats::trace::dat::{PerfData, TraceDat, is_perf_data, is_trace_dat};
use memledger_formats::trace::ring::{Decoder, Endian, EventFormat, PageFormat, RawCpu};
use memledger_formats::trace::{Merge, Source, Text};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of a side file (a description, symbols).
const SIDE_FILE: u64 = 64 << 20;

/// A trace that is open.
pub(crate) struct Opened {
    pub(crate) source: Merge<Box<dyn Source>>,
    pub(crate) symbols: Kallsyms,
}

fn failure(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Message(format!("{}: {error}", path.display()))
}

/// A file with a position of its own, for readers that read several places of one file.
struct At {
    file: Arc<File>,
    at: u64,
}

impl Read for At {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(into, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for At {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.file.metadata()?.len(), by),
            SeekFrom::Current(by) => (self.at, by),
        };
        let to = base.checked_add_signed(by);
        self.at = to.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

/// The first bytes of a file, which tell its format.
type Start = Vec<u8>;

/// Opens a file; unpacks xz. - is standard input. Also its first bytes, unpacked.
fn open(path: &Path) -> Result<(Start, Box<dyn Read>)> {
    let mut reader: Box<dyn Read> = match path == Path::new("-") {
        true => Box::new(io::stdin()),
        false => Box::new(File::open(path).map_err(|e| failure(path, e))?),
    };
    loop {
        let mut start = [0; 16];
        let n = read_some(&mut *reader, &mut start).map_err(|e| failure(path, e))?;
        let start = start[..n].to_vec();
        let packed = start.starts_with(b"\xfd7zXZ\0");
        let whole = io::Cursor::new(start.clone()).chain(reader);
        if !packed {
            return Ok((start, Box::new(whole)));
        }
        reader = Box::new(liblzma::read::XzDecoder::new_multi_decoder(whole));
    }
}

/// The same as a file that can be read at any place: itself, or a copy without a name if it is packed or a pipe.
fn seekable(path: &Path, mut reader: Box<dyn Read>) -> Result<Arc<File>> {
    if path != Path::new("-") {
        let file = File::open(path).map_err(|e| failure(path, e))?;
        let mut start = [0; 10];
        let plain = file.metadata().is_ok_and(|m| m.is_file());
        if plain && file.read_exact_at(&mut start, 0).is_ok() && !start.starts_with(b"\xfd7zXZ") {
            return Ok(Arc::new(file));
        }
    }
    let mut copy = tempfile::tempfile()?;
    io::copy(&mut reader, &mut copy).map_err(|e| failure(path, e))?;
    Ok(Arc::new(copy))
}

fn read_some(file: &mut dyn Read, into: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < into.len() {
        match file.read(&mut into[n..])? {
            0 => break,
            more => n += more,
        }
    }
    Ok(n)
}

/// A text beside a trace.
fn side_text(path: &Path) -> Result<String> {
    let mut text = Vec::new();
    open(path)?
        .1
        .take(SIDE_FILE)
        .read_to_end(&mut text)
        .map_err(|e| failure(path, e))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// What was given, else the first of these names that is in a folder.
fn beside(given: Option<&Path>, folder: &Path, names: &[&str]) -> Option<PathBuf> {
    if let Some(path) = given {
        return Some(path.to_owned());
    }
    names
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.exists())
}

/// Opens all files of the command line.
pub(crate) fn sources(input: &Input) -> Result<Opened> {
    let first = &input.files[0];
    let folder = first.parent().unwrap_or(Path::new("."));
    let is_raw = |path: &Path| input.raw || path.to_string_lossy().contains("trace_pipe_raw");
    let symbols = beside(
        input.kallsyms.as_deref(),
        folder,
        &["kallsyms", "kallsyms.txt", "kallsyms.txt.xz"],
    );
    let mut symbols = match symbols {
        Some(path) => Kallsyms::read(side_text(&path)?.as_bytes())?,
        None => Kallsyms::default(),
    };
    let mut decoder = None;
    let mut all: Vec<Box<dyn Source>> = Vec::new();
    for (index, path) in input.files.iter().enumerate() {
        if crate::tracer::is_own(path) {
            all.push(crate::tracer::source(path)?);
            continue;
        }
        let (start, reader) = open(path)?;
        if is_trace_dat(&start) {
            let file = seekable(path, reader)?;
            let open = || {
                Ok(At {
                    file: file.clone(),
                    at: 0,
                })
            };
            let dat = TraceDat::open(open).map_err(|e| failure(path, e))?;
            own_symbols(&mut symbols, dat.symbols);
            all.extend(
                dat.cpus
                    .into_iter()
                    .map(|cpu| Box::new(cpu) as Box<dyn Source>),
            );
        } else if is_perf_data(&start) {
            let file = seekable(path, reader)?;
            let perf = PerfData::open(At { file, at: 0 }).map_err(|e| failure(path, e))?;
            own_symbols(&mut symbols, perf.symbols().clone());
            all.push(Box::new(perf));
        } else if is_raw(path) {
            if decoder.is_none() {
                decoder = Some(describe(input, folder)?);
            }
            let Some((decoder, page)) = &decoder else {
                continue;
            };
            let cpu = cpu_of(path).unwrap_or(index as u32);
            all.push(Box::new(RawCpu::new(
                reader,
                page.clone(),
                decoder.clone(),
                cpu,
            )));
        } else {
            let text = Text::new(BufReader::with_capacity(256 << 10, reader));
            let mut text = BinaryCheck {
                text: text.page_size(input.page_size),
                path: path.clone(),
                items: 0,
                bad: 0,
            };
            text.items = 0;
            all.push(Box::new(text));
        }
    }
    Ok(Opened {
        source: Merge::new(all),
        symbols,
    })
}

/// Symbols inside a recording, unless others were found.
fn own_symbols(symbols: &mut Kallsyms, own: Kallsyms) {
    if symbols.is_empty() {
        *symbols = own;
    }
}

/// A text that stops when it is none: the start of a binary file would be one bad line after the other.
struct BinaryCheck<R> {
    text: Text<R>,
    path: PathBuf,
    items: u64,
    bad: u64,
}

impl<R: io::BufRead> Source for BinaryCheck<R> {
    fn next_item(
        &mut self,
        names: &mut memledger_formats::trace::Names,
    ) -> io::Result<Option<memledger_formats::trace::Item>> {
        let item = self.text.next_item(names)?;
        if let Some(item) = &item
            && self.items < 100
        {
            self.items += 1;
            self.bad += u64::from(matches!(item, memledger_formats::trace::Item::Bad(_)));
            if self.items == 100 && self.bad == 100 {
                let what = format!(
                    "{}: no trace that can be read: not one of the first 100 lines is an event",
                    self.path.display()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
        }
        Ok(item)
    }

    fn info(&self) -> memledger_formats::trace::Info {
        self.text.info()
    }
}

/// The processor in a name like `per_cpu/cpu3/trace_pipe_raw` or `trace_pipe_raw.cpu3.bin`.
fn cpu_of(path: &Path) -> Option<u32> {
    let text = path.to_string_lossy();
    let mut found = None;
    for (at, _) in text.match_indices("cpu") {
        let rest = &text[at + 3..];
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        found = rest[..end].parse().ok().or(found);
    }
    found
}

/// The decoder, from the descriptions in a folder `events`.
fn describe(input: &Input, folder: &Path) -> Result<(Arc<Decoder>, PageFormat)> {
    let events = beside(input.events.as_deref(), folder, &["events"]).ok_or_else(|| {
        Failure::Message("raw pages need the descriptions of their events: --events DIR, as /sys/kernel/tracing/events".to_owned())
    })?;
    let head = events.join("header_page");
    let page = PageFormat::parse(&side_text(&head)?)
        .ok_or_else(|| failure(&head, "no description of a page"))?;
    let mut decoder = Decoder::new(Endian::Little, page.commit.1, input.page_size);
    for system in ["kmem", "ftrace"] {
        let Ok(entries) = std::fs::read_dir(events.join(system)) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path().join("format");
            if !path.exists() {
                continue;
            }
            let format = EventFormat::parse(&side_text(&path)?)
                .ok_or_else(|| failure(&path, "no description of an event"))?;
            decoder.add(&format);
        }
    }
    if decoder.is_empty() {
        return Err(failure(&events, "has no descriptions of kmem events"));
    }
    let comms = beside(
        input.comms.as_deref(),
        folder,
        &["saved_cmdlines", "saved_cmdlines.txt"],
    );
    if let Some(path) = comms {
        decoder.comms(&side_text(&path)?);
    }
    Ok((Arc::new(decoder), page))
}
