//! Opens traces of all formats as one source.

use super::args::Input;
use crate::{Failure, Result};
use memledger_formats::trace::ring::{Decoder, Endian, EventFormat, PageFormat, RawCpu};
use memledger_formats::trace::{Merge, Source, Symbols, Text};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of a side file (a description, symbols).
const SIDE_FILE: u64 = 64 << 20;

/// A trace that is open.
pub(crate) struct Opened {
    pub(crate) source: Merge<Box<dyn Source>>,
    pub(crate) symbols: Symbols,
}

fn failure(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Message(format!("{}: {error}", path.display()))
}

/// Opens a file; unpacks xz. - is standard input.
fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let mut file = File::open(path).map_err(|e| failure(path, e))?;
    let mut start = [0; 6];
    let n = read_some(&mut file, &mut start).map_err(|e| failure(path, e))?;
    let whole = io::Cursor::new(start[..n].to_vec()).chain(file);
    if start == *b"\xfd7zXZ\0" {
        return Ok(Box::new(liblzma::read::XzDecoder::new_multi_decoder(whole)));
    }
    Ok(Box::new(whole))
}

fn read_some(file: &mut File, into: &mut [u8]) -> io::Result<usize> {
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
    let symbols = match symbols {
        Some(path) => Symbols::parse(&side_text(&path)?),
        None => Symbols::default(),
    };
    let mut decoder = None;
    let mut all: Vec<Box<dyn Source>> = Vec::new();
    for (index, path) in input.files.iter().enumerate() {
        if crate::tracer::is_own(path) {
            all.push(crate::tracer::source(path)?);
            continue;
        }
        let reader = open(path)?;
        if is_raw(path) {
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
