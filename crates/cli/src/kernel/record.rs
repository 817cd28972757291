//! `memledger kernel record`: the raw pages as they are, in a file of the form of `trace.dat` version 6 (trace-cmd.dat.v6(5)).
//!
//! While it records, the pages of each processor go to a file beside the output, as the form wants them one after the other. What the
//! kernel says of its records, its symbols and the names of tasks go before them.

use super::args::Record;
use super::session::{End, Session, kallsyms};
use super::tracefs::Tracefs;
use crate::{Failure, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Alignment of the pages of a processor in the file.
const ALIGN: u64 = 4096;
const OPTION_CPUSTAT: u16 = 2;
const OPTION_CLOCK: u16 = 4;
const OPTION_UNAME: u16 = 5;

/// Pages of one processor, on their way to the file. The file is removed when dropped.
#[derive(Debug)]
struct Spool {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Spool {
    fn new(output: &Path, cpu: u32) -> Result<Spool> {
        let mut path = output.as_os_str().to_owned();
        path.push(format!(".cpu{cpu}"));
        let path = PathBuf::from(path);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let file = options
            .open(&path)
            .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
        Ok(Spool {
            path,
            file,
            bytes: 0,
        })
    }

    /// Takes all whole pages that there are.
    fn take(&mut self, mut buffer: &File, page: &mut [u8]) -> Result<()> {
        // Not for ever, if the kernel writes as fast as this reads.
        for _ in 0..1 << 16 {
            match buffer.read(page) {
                Ok(0) => break,
                Ok(n) => {
                    page[n..].fill(0);
                    self.file.write_all(page)?;
                    self.bytes += page.len() as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Does it.
pub(crate) fn run(args: &Record) -> Result<u8> {
    let tracefs = Tracefs::find()?;
    let symbols = (!args.filters.site.is_empty()).then(kallsyms).transpose()?;
    let mut end = End::new()?;
    let output = File::create(&args.output)
        .map_err(|error| Failure::Message(format!("{}: {error}", args.output.display())))?;
    let session = Session::new(&tracefs, &args.filters, symbols.as_ref(), args.stacks)?;
    let mut page = vec![0; tracefs.page()?.len()];
    let spool = |(cpu, _): &(u32, File)| Spool::new(&args.output, *cpu);
    let mut spools: Vec<_> = session.buffers.iter().map(spool).collect::<Result<_>>()?;
    end.follow(&session, &args.span, |_| {
        for (spool, (_, buffer)) in spools.iter_mut().zip(&session.buffers) {
            spool.take(buffer, &mut page)?;
        }
        Ok(())
    })?;
    let mut out = BufWriter::new(output);
    head(&mut out, &tracefs, &session, page.len())?;
    data(&mut out, &mut spools)?;
    out.flush()?;
    let (lost, bytes) = (session.lost(), spools.iter().map(|s| s.bytes).sum::<u64>());
    let file = args.output.display();
    eprintln!("memledger: {bytes} bytes of events in {file}, {lost} events lost");
    Ok(u8::from(lost > 0))
}

/// A text with its length before it, of 8 bytes.
fn long(out: &mut impl Write, text: &[u8]) -> io::Result<()> {
    out.write_all(&(text.len() as u64).to_ne_bytes())?;
    out.write_all(text)
}

/// A text with its length before it, of 4 bytes.
fn short(out: &mut impl Write, text: &[u8]) -> Result<()> {
    let Ok(len) = u32::try_from(text.len()) else {
        return Err(Failure::Message(
            "a text of 4 GiB does not fit into trace.dat".to_owned(),
        ));
    };
    out.write_all(&len.to_ne_bytes())?;
    Ok(out.write_all(text)?)
}

/// An option: number, length, value.
fn option(out: &mut impl Write, id: u16, value: &str) -> Result<()> {
    out.write_all(&id.to_ne_bytes())?;
    let text = format!("{value}\0");
    short(out, text.as_bytes())
}

/// All that comes before the places of the pages.
fn head(out: &mut impl Write, tracefs: &Tracefs, session: &Session, page: usize) -> Result<()> {
    out.write_all(b"\x17\x08\x44tracing6\0")?;
    out.write_all(&[
        u8::from(cfg!(target_endian = "big")),
        size_of::<usize>() as u8,
    ])?;
    out.write_all(&(page as u32).to_ne_bytes())?;
    for name in ["header_page", "header_event"] {
        out.write_all(format!("{name}\0").as_bytes())?;
        long(out, tracefs.text(&format!("events/{name}"))?.as_bytes())?;
    }
    let mut ftrace = Vec::new();
    for entry in fs::read_dir(tracefs.0.join("events/ftrace"))?.flatten() {
        ftrace.extend(fs::read(entry.path().join("format")));
    }
    out.write_all(&(ftrace.len() as u32).to_ne_bytes())?;
    for format in &ftrace {
        long(out, format)?;
    }
    out.write_all(&1u32.to_ne_bytes())?;
    out.write_all(b"kmem\0")?;
    out.write_all(&(session.events.len() as u32).to_ne_bytes())?;
    for event in &session.events {
        long(
            out,
            tracefs
                .text(&format!("events/kmem/{event}/format"))?
                .as_bytes(),
        )?;
    }
    short(out, &fs::read("/proc/kallsyms").unwrap_or_default())?;
    short(
        out,
        tracefs
            .text("printk_formats")
            .unwrap_or_default()
            .as_bytes(),
    )?;
    long(
        out,
        tracefs
            .text("saved_cmdlines")
            .unwrap_or_default()
            .as_bytes(),
    )?;
    out.write_all(&(session.buffers.len() as u32).to_ne_bytes())?;
    out.write_all(b"options  \0")?;
    for (cpu, _) in &session.buffers {
        option(
            out,
            OPTION_CPUSTAT,
            &format!("CPU: {cpu}\n{}", session.instance.stats(*cpu)),
        )?;
    }
    option(
        out,
        OPTION_CLOCK,
        "local global counter uptime perf [mono] mono_raw boot x86-tsc\n",
    )?;
    let uname = nix::sys::utsname::uname().map_err(io::Error::from)?;
    let words = [
        uname.sysname(),
        uname.nodename(),
        uname.release(),
        uname.machine(),
    ];
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    option(out, OPTION_UNAME, &words.join(" "))?;
    out.write_all(&0u16.to_ne_bytes())?;
    Ok(out.write_all(b"flyrecord\0")?)
}

/// Places of the pages of each processor, and the pages.
fn data(out: &mut (impl Write + Seek), spools: &mut [Spool]) -> Result<()> {
    let mut at = out.stream_position()? + 16 * spools.len() as u64;
    at = at.next_multiple_of(ALIGN);
    let start = at;
    for spool in &*spools {
        out.write_all(&at.to_ne_bytes())?;
        out.write_all(&spool.bytes.to_ne_bytes())?;
        at = (at + spool.bytes).next_multiple_of(ALIGN);
    }
    let mut next = start;
    for spool in spools {
        out.seek(io::SeekFrom::Start(next))?;
        spool.file.rewind()?;
        io::copy(&mut spool.file, out)?;
        next = (next + spool.bytes).next_multiple_of(ALIGN);
    }
    Ok(())
}
