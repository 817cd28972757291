//! `memledger kernel trace`: a line for each event.

use super::args::Trace;
use super::reader::Reader;
use super::session::{End, Session, kallsyms};
use super::tracefs::Tracefs;
use crate::Result;
use crate::output::clean;
use memledger_formats::kallsyms::Kallsyms;
use memledger_formats::trace::{Class, Event, Item, Names, Op, Site};
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

/// Most names of tasks that are kept.
const COMMS: usize = 1 << 16;

/// Does it.
pub(crate) fn run(args: &Trace) -> Result<u8> {
    let tracefs = Tracefs::find()?;
    let kallsyms = kallsyms()?;
    let mut end = End::new()?;
    let session = Session::new(&tracefs, &args.filters, Some(&kallsyms), false)?;
    let mut reader = Reader::new(&tracefs, &session)?;
    let mut printer = Printer {
        kallsyms,
        comms: HashMap::new(),
        lost: 0,
        out: BufWriter::new(io::stdout()),
    };
    end.follow(&session, &args.span, |ended| {
        reader.round(ended, |item, names| printer.item(&item, names))?;
        printer.out.flush()?;
        Ok(())
    })?;
    let lost = printer.lost.max(session.lost());
    if lost > 0 {
        eprintln!("memledger: {lost} events lost (a larger --buffer may help)");
    }
    Ok(u8::from(lost > 0))
}

#[derive(Debug)]
struct Printer {
    kallsyms: Kallsyms,
    comms: HashMap<i32, String>,
    lost: u64,
    out: BufWriter<io::Stdout>,
}

impl Printer {
    fn item(&mut self, item: &Item, names: &Names) -> Result<()> {
        match item {
            Item::Event(event) => self.event(event, names)?,
            Item::Other(name) => writeln!(self.out, "{}", names.text(*name))?,
            Item::Lost(lost) => {
                let cpu = lost.cpu.map_or("?".to_owned(), |cpu| cpu.to_string());
                let events = lost.events.map_or("?".to_owned(), |n| n.to_string());
                self.lost += lost.events.unwrap_or(1);
                writeln!(self.out, "CPU:{cpu} [LOST {events} EVENTS]")?;
            }
            Item::Bad(bad) => {
                self.lost += 1;
                writeln!(self.out, "[not read: {}]", bad.what)?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Event, names: &Names) -> Result<()> {
        let known = names.text(event.comm);
        let comm = if known == "<...>" {
            self.comm(event.pid)
        } else {
            known.to_owned()
        };
        let (seconds, micros) = (event.time / 1_000_000_000, event.time / 1000 % 1_000_000);
        let (out, name) = (&mut self.out, name(event));
        let task = format!("{}-{}", clean(&comm), event.pid);
        write!(
            out,
            "{task:>22} [{:03}] {seconds}.{micros:06}: {name}:",
            event.cpu
        )?;
        if event.class == Class::Pages {
            write!(out, " pfn={:#x} order={}", event.ptr, event.order)?;
        } else {
            let site = site(&self.kallsyms, names, names.get_site(event.site));
            write!(out, " call_site={site} ptr={:#018x}", event.ptr)?;
        }
        if !event.cache.is_none() {
            write!(out, " name={}", clean(names.text(event.cache)))?;
        }
        if event.op == Op::Alloc {
            if event.class != Class::Pages {
                write!(
                    out,
                    " bytes_req={} bytes_alloc={}",
                    event.requested, event.given
                )?;
            }
            write!(out, " gfp_flags={}", names.text(event.flags))?;
        }
        writeln!(out)?;
        Ok(())
    }

    /// The name of a task that the kernel has not kept.
    fn comm(&mut self, pid: i32) -> String {
        if self.comms.len() > COMMS {
            self.comms.clear();
        }
        let read = || {
            let text = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            text.map_or("<...>".to_owned(), |text| text.trim_end().to_owned())
        };
        self.comms.entry(pid).or_insert_with(read).clone()
    }
}

/// Name of the event that it was.
fn name(event: &Event) -> &'static str {
    match (event.class, event.op) {
        (Class::Kmalloc, Op::Alloc) => "kmalloc",
        (Class::Kmalloc, Op::Free) => "kfree",
        (Class::Cache, Op::Alloc) => "kmem_cache_alloc",
        (Class::Cache, Op::Free) => "kmem_cache_free",
        (Class::Pages, Op::Alloc) => "mm_page_alloc",
        (Class::Pages, Op::Free) => "mm_page_free",
    }
}

/// A call site in words.
pub(crate) fn site(kallsyms: &Kallsyms, names: &Names, site: Site) -> String {
    match site {
        Site::Address(address) => kallsyms.name(address),
        Site::Text(word) if word.is_none() => "(no call site: pages)".to_owned(),
        Site::Text(word) => names.text(word).to_owned(),
    }
}
