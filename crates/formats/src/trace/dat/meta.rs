//! What trace.dat and perf.data say of the traced kernel: descriptions of events, symbols, names of tasks.

use std::io::{self, Read};

use crate::kallsyms::Kallsyms;
use crate::trace::ring::{Decoder, Endian, EventFormat, PageFormat};

/// Most bytes of one part (symbols are the largest).
const PART: u64 = 256 << 20;
/// Most events or systems in a list.
const LIST: u64 = 1 << 20;

/// An error for input that is not what it should be.
pub(super) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Numbers and strings of a stream.
pub(super) struct Input<R> {
    pub(super) reader: R,
    pub(super) endian: Endian,
}

impl<R: Read> Input<R> {
    pub(super) fn bytes(&mut self, len: u64) -> io::Result<Vec<u8>> {
        if len > PART {
            return Err(invalid(format!("a part of {len} bytes")));
        }
        let mut out = Vec::new();
        (&mut self.reader).take(len).read_to_end(&mut out)?;
        if out.len() as u64 != len {
            return Err(invalid("the file ends too early"));
        }
        Ok(out)
    }

    pub(super) fn number(&mut self, size: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.reader.read_exact(&mut bytes[..size])?;
        self.endian
            .get(&bytes, 0, size)
            .ok_or_else(|| invalid("a number"))
    }

    /// Up to a NUL.
    pub(super) fn string(&mut self) -> io::Result<String> {
        let mut out = Vec::new();
        loop {
            match self.number(1)? as u8 {
                0 => return Ok(String::from_utf8_lossy(&out).into_owned()),
                byte if out.len() < 4096 => out.push(byte),
                _ => return Err(invalid("a name that does not end")),
            }
        }
    }

    fn text(&mut self, size_of_len: usize) -> io::Result<String> {
        let len = self.number(size_of_len)?;
        let bytes = self.bytes(len)?;
        Ok(String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    fn count(&mut self) -> io::Result<u64> {
        let n = self.number(4)?;
        if n > LIST {
            Err(invalid("a list that is too long"))
        } else {
            Ok(n)
        }
    }
}

/// The descriptions.
#[derive(Debug, Default)]
pub(super) struct Meta {
    pub(super) page: Option<PageFormat>,
    pub(super) formats: Vec<EventFormat>,
    pub(super) symbols: Kallsyms,
    pub(super) comms: String,
}

impl Meta {
    /// `header_page` and `header_event`.
    pub(super) fn headers<R: Read>(&mut self, input: &mut Input<R>) -> io::Result<()> {
        for _ in 0..2 {
            let name = input.string()?;
            let text = input.text(8)?;
            match name.as_str() {
                "header_page" => self.page = PageFormat::parse(&text),
                "header_event" => {}
                _ => return Err(invalid("no header_page or header_event where it should be")),
            }
        }
        Ok(())
    }

    /// A list of descriptions. What is no description is skipped: its events are then counted by number.
    pub(super) fn events<R: Read>(&mut self, input: &mut Input<R>) -> io::Result<()> {
        for _ in 0..input.count()? {
            let text = input.text(8)?;
            self.formats.extend(EventFormat::parse(&text));
        }
        Ok(())
    }

    /// A list of systems, each a list of descriptions.
    pub(super) fn systems<R: Read>(&mut self, input: &mut Input<R>) -> io::Result<()> {
        for _ in 0..input.count()? {
            input.string()?;
            self.events(input)?;
        }
        Ok(())
    }

    pub(super) fn kallsyms<R: Read>(&mut self, input: &mut Input<R>) -> io::Result<()> {
        self.symbols = Kallsyms::read(input.text(4)?.as_bytes())?;
        Ok(())
    }

    pub(super) fn cmdlines<R: Read>(&mut self, input: &mut Input<R>) -> io::Result<()> {
        self.comms = input.text(8)?;
        Ok(())
    }

    /// All of it, as in trace.dat version 6 and in perf.data (where older ones have no names of tasks).
    pub(super) fn all<R: Read>(
        &mut self,
        input: &mut Input<R>,
        with_cmdlines: bool,
    ) -> io::Result<()> {
        self.headers(input)?;
        self.events(input)?;
        self.systems(input)?;
        self.kallsyms(input)?;
        input.text(4)?;
        if with_cmdlines {
            self.cmdlines(input)?;
        }
        Ok(())
    }

    pub(super) fn decoder(&self, endian: Endian, word: usize, page_size: u64) -> Decoder {
        let mut decoder = Decoder::new(endian, word, page_size);
        self.formats.iter().for_each(|format| decoder.add(format));
        decoder.comms(&self.comms);
        decoder
    }
}

/// Start of both formats.
pub(super) const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// What comes after the version: order of bytes, size of `long`, size of a page.
pub(super) fn machine<R: Read>(input: &mut Input<R>) -> io::Result<(usize, u64)> {
    input.endian = match input.number(1)? {
        0 => Endian::Little,
        _ => Endian::Big,
    };
    let word = input.number(1)? as usize;
    let page = input.number(4)?;
    if !matches!(word, 4 | 8) || !page.is_power_of_two() {
        return Err(invalid("a machine that cannot be"));
    }
    Ok((word, page))
}
