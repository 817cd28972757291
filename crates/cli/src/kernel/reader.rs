//! Raw pages of all processors, as items in order of time, while they are written.
//!
//! Each round reads what is there of each processor until an event that is later than the start of the round. All events from
//! before that start have then been read, as an event is in its buffer when its time has passed; so they can be put in order and handed
//! on. Later ones wait for the next round. That a free does not come before its allocation depends on this order.

use super::session::Session;
use super::tracefs::Tracefs;
use crate::Result;
use memledger_formats::trace::ring::{Decoder, Endian, EventFormat, RawCpu};
use memledger_formats::trace::{Item, Names, Source};
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Most items that wait; more are handed on even if something earlier might still come.
const WAITING: usize = 1 << 20;
/// Bytes of a page of memory, by which sizes of page events are computed.
const PAGE: u64 = 4096;

/// The readers of one session.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    cpus: Vec<RawCpu<&'a File>>,
    waiting: Vec<Item>,
    /// What the items name.
    pub(crate) names: Names,
}

impl<'a> Reader<'a> {
    /// Reads the kernel's descriptions.
    pub(crate) fn new(tracefs: &Tracefs, session: &'a Session) -> Result<Reader<'a>> {
        let endian = if cfg!(target_endian = "little") {
            Endian::Little
        } else {
            Endian::Big
        };
        let mut decoder = Decoder::new(endian, size_of::<usize>(), PAGE);
        for event in &session.events {
            decoder.add(&tracefs.format(event)?);
        }
        let stack = tracefs.text("events/ftrace/kernel_stack/format");
        if let Some(format) = stack.ok().as_deref().and_then(EventFormat::parse) {
            decoder.add(&format);
        }
        decoder.comms(&tracefs.text("saved_cmdlines").unwrap_or_default());
        let (page, decoder) = (tracefs.page()?, Arc::new(decoder));
        let cpu = |(cpu, file): &'a (u32, File)| {
            RawCpu::new(file, page.clone(), Arc::clone(&decoder), *cpu)
        };
        Ok(Reader {
            cpus: session.buffers.iter().map(cpu).collect(),
            waiting: Vec::new(),
            names: Names::new(),
        })
    }

    /// One round. `last`: tracing is off, so everything is handed on.
    pub(crate) fn round(
        &mut self,
        last: bool,
        mut sink: impl FnMut(Item, &Names) -> Result<()>,
    ) -> Result<()> {
        let now = if last { u64::MAX } else { now()? };
        let mut until = now;
        for cpu in &mut self.cpus {
            loop {
                match cpu.next_item(&mut self.names) {
                    Ok(Some(item)) => {
                        let late = item.time().is_some_and(|time| time > now);
                        self.waiting.push(item);
                        if late {
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if self.waiting.len() > WAITING {
            until = u64::MAX;
        }
        let time = |item: &Item| item.time().unwrap_or(0);
        self.waiting.sort_by_key(time);
        let ready = self.waiting.partition_point(|item| time(item) <= until);
        for item in self.waiting.drain(..ready) {
            sink(item, &self.names)?;
        }
        Ok(())
    }
}

/// The clock of the events.
fn now() -> Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(io::Error::from)?;
    Ok((time.tv_sec() as u64).saturating_mul(1_000_000_000) + time.tv_nsec() as u64)
}
