//! The writer.

use super::{ABOUT, END, EVENTS, LOST, MAGIC, Raw, SITES, SiteInfo, VERSION};
use std::io::{self, Write};

/// Most events of a block.
const BLOCK_EVENTS: usize = 8192;

/// Appends blocks.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    events: u64,
    lost: u64,
}

pub(crate) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_signed(out: &mut Vec<u8>, from: u64, to: u64) {
    let d = to.wrapping_sub(from).cast_signed();
    put(out, (d << 1 ^ d >> 63).cast_unsigned());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend(text.as_bytes());
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Those of writing; so for all functions here.
    pub fn new(mut out: W, about: &[(&str, String)]) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        let mut w = Writer {
            out,
            events: 0,
            lost: 0,
        };
        let mut b = Vec::new();
        put(&mut b, about.len() as u64);
        for (key, value) in about {
            put_text(&mut b, key);
            put_text(&mut b, value);
        }
        w.block(ABOUT, &b)?;
        Ok(w)
    }

    fn block(&mut self, kind: u32, payload: &[u8]) -> io::Result<()> {
        let mut head = [0; 12];
        head[..4].copy_from_slice(&kind.to_le_bytes());
        head[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head[..8]);
        crc.update(payload);
        head[8..].copy_from_slice(&crc.finalize().to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(payload)
    }

    /// Describes sites.
    pub fn sites(&mut self, sites: &[SiteInfo]) -> io::Result<()> {
        for some in sites.chunks(256) {
            let mut b = Vec::new();
            put(&mut b, some.len() as u64);
            for s in some {
                put(&mut b, u64::from(s.index));
                b.push(s.kind);
                put(&mut b, u64::from(s.charged));
                put(&mut b, s.frames.len() as u64);
                for f in &s.frames {
                    put_text(&mut b, &f.func);
                    put_text(&mut b, &f.file);
                    put(&mut b, u64::from(f.line));
                    put_text(&mut b, &f.module);
                    put(&mut b, f.addr);
                }
            }
            self.block(SITES, &b)?;
        }
        Ok(())
    }

    /// Appends events, which should be in order of time.
    pub fn events(&mut self, events: &[Raw]) -> io::Result<()> {
        for some in events.chunks(BLOCK_EVENTS) {
            let mut tids: Vec<u32> = some.iter().map(|e| e.tid).collect();
            tids.sort_unstable();
            tids.dedup();
            let mut b = Vec::with_capacity(some.len() * 12);
            put(&mut b, tids.len() as u64);
            tids.iter().for_each(|t| put(&mut b, u64::from(*t)));
            put(&mut b, some.len() as u64);
            let mut last = Raw::default();
            for e in some {
                event(&mut b, &last, e, &tids);
                last = *e;
            }
            self.block(EVENTS, &b)?;
            self.events += some.len() as u64;
        }
        Ok(())
    }

    /// Notes events that are not in the file.
    pub fn lost(&mut self, ring: u32, tid: u32, events: u64) -> io::Result<()> {
        let mut b = Vec::new();
        for n in [u64::from(ring), u64::from(tid), events] {
            put(&mut b, n);
        }
        self.lost = self.lost.saturating_add(events);
        self.block(LOST, &b)
    }

    /// Flushes what was written, so that it survives the recorder.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Events and lost events so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.events, self.lost)
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<W> {
        let mut b = Vec::new();
        put(&mut b, self.events);
        put(&mut b, self.lost);
        self.block(END, &b)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn event(b: &mut Vec<u8>, last: &Raw, e: &Raw, tids: &[u32]) {
    b.push(e.op & 15 | e.kind << 4);
    b.push(e.flags);
    put_signed(b, last.time, e.time);
    put_signed(b, last.ptr, e.ptr);
    put_signed(b, u64::from(last.index), u64::from(e.index));
    put(b, u64::from(e.cpu));
    put(b, tids.partition_point(|t| *t < e.tid) as u64);
    put(b, e.requested);
    put_signed(b, e.requested, e.given);
}
