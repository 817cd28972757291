//! `/proc/PID/smaps` and `/proc/PID/pagemap` (proc(5), Documentation/admin-guide/mm/pagemap.rst): which pages are resident.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Of an entry of `pagemap`: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// Of an entry: the page is mapped once only.
const EXCLUSIVE: u64 = 1 << 56;
/// Of an entry: a page of a file, or shared.
const FILE: u64 = 1 << 61;
/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// One mapping with what is resident of it. Sizes are bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Area {
    /// First address.
    pub(crate) start: u64,
    /// End address.
    pub(crate) end: u64,
    /// Mapped with `MAP_SHARED`.
    pub(crate) shared: bool,
    /// Path or `[name]`; empty if anonymous.
    pub(crate) name: String,
    /// Resident bytes (`Rss`).
    pub(crate) rss: u64,
    /// Those of them that no file has (`Anonymous`).
    pub(crate) anonymous: u64,
    /// Swapped-out bytes (`Swap`).
    pub(crate) swap: u64,
}

/// Parses the text of `/proc/PID/smaps`. Lines that are neither the head of a mapping nor a known field are passed over.
pub(crate) fn parse(text: &[u8]) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for line in text.split(|&b| b == b'\n') {
        let line = String::from_utf8_lossy(line);
        if let Some(area) = head(&line) {
            areas.push(area);
            continue;
        }
        let (Some(area), Some((key, value))) = (areas.last_mut(), line.split_once(':')) else {
            continue;
        };
        let kib = value
            .trim()
            .strip_suffix(" kB")
            .and_then(|n| n.parse::<u64>().ok());
        let bytes = kib.unwrap_or(0).saturating_mul(1024);
        match key {
            "Rss" => area.rss = bytes,
            "Anonymous" => area.anonymous = bytes,
            "Swap" => area.swap = bytes,
            _ => {}
        }
    }
    areas
}

/// `start-end perms offset dev inode path`.
fn head(line: &str) -> Option<Area> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let mut words = rest.splitn(5, ' ');
    let perms = words.next()?;
    let name = words.nth(3).unwrap_or_default().trim_start();
    Some(Area {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        shared: perms.ends_with('s'),
        name: name.to_owned(),
        ..Area::default()
    })
}

/// What is resident of a range of pages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pages {
    start: u64,
    /// Resident bytes below each page.
    below: Vec<u64>,
    /// One a page.
    present: Vec<bool>,
}

impl Pages {
    /// Resident bytes of `[from, to)`; what is outside the range that was read counts as not resident.
    pub(crate) fn bytes(&self, from: u64, to: u64) -> u64 {
        if to <= from {
            return 0;
        }
        self.until(to) - self.until(from)
    }

    fn until(&self, addr: u64) -> u64 {
        let at = addr.saturating_sub(self.start);
        let page = (at / PAGE) as usize;
        match self.present.get(page) {
            Some(&here) => self.below[page] + if here { at % PAGE } else { 0 },
            None => self.below.last().map_or(0, |below| {
                below + u64::from(self.present.last() == Some(&true)) * PAGE
            }),
        }
    }
}

/// The open `/proc/PID/pagemap`.
///
/// A page that was only read and never written is in it, too, though the kernel maps the same page of zeros for all such and
/// does not count it. It looks like a page shared with a forked child. [`Pagemap::judge`] finds out which it is.
#[derive(Debug)]
pub(crate) struct Pagemap {
    file: File,
    /// What may be a page of zeros is one.
    zeros: bool,
}

impl Pagemap {
    /// Opens it.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(Pagemap { file, zeros: false })
    }

    /// Decides by whether the kernel's own sums of `areas` are met better with what may be pages of zeros, or without.
    pub(crate) fn judge<'a>(&mut self, areas: impl Iterator<Item = &'a Area>) {
        let (mut rss, mut sums) = (0, [0; 2]);
        for a in areas {
            rss += a.rss;
            for zeros in [false, true] {
                self.zeros = zeros;
                let pages = self.pages(a.start, a.end);
                sums[usize::from(zeros)] += pages.map_or(0, |p| p.bytes(a.start, a.end));
            }
        }
        self.zeros = sums[1].abs_diff(rss) < sums[0].abs_diff(rss);
    }

    /// Which pages of `[start, end)` (widened to whole pages) are resident.
    ///
    /// # Errors
    /// Those of `pread(2)`.
    pub(crate) fn pages(&self, start: u64, end: u64) -> io::Result<Pages> {
        let start = start / PAGE * PAGE;
        let count = end.div_ceil(PAGE).saturating_sub(start / PAGE) as usize;
        let mut raw = vec![0; count * 8];
        self.file.read_exact_at(&mut raw, start / PAGE * 8)?;
        let mut pages = Pages {
            start,
            below: Vec::with_capacity(count),
            present: Vec::with_capacity(count),
        };
        let mut sum = 0;
        for entry in raw.as_chunks::<8>().0 {
            let entry = u64::from_ne_bytes(*entry);
            let here = entry & PRESENT != 0 && !(self.zeros && entry & (EXCLUSIVE | FILE) == 0);
            pages.below.push(sum);
            pages.present.push(here);
            sum += u64::from(here) * PAGE;
        }
        Ok(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaps_text() {
        let text = b"7f00-9f00 rw-s 00000000 00:01 7      /dev/shm/a b (deleted)\nSize:  8 kB\nRss:       8 kB\n\
            Anonymous:   4 kB\nSwap: 12 kB\nVmFlags: rd wr\nab000-ac000 rw-p 00000000 00:00 0 \nRss: 4 kB\n";
        let areas = parse(text);
        assert_eq!(areas.len(), 2);
        assert_eq!((areas[0].start, areas[0].end), (0x7f00, 0x9f00));
        assert_eq!(areas[0].name, "/dev/shm/a b (deleted)");
        assert!(areas[0].shared && !areas[1].shared);
        assert_eq!(
            (areas[0].rss, areas[0].anonymous, areas[0].swap),
            (8192, 4096, 12288)
        );
        assert_eq!((areas[1].name.as_str(), areas[1].rss), ("", 4096));
    }

    #[test]
    fn parts_of_pages() {
        let pages = Pages {
            start: 0x10000,
            below: vec![0, 4096, 4096],
            present: vec![true, false, true],
        };
        assert_eq!(pages.bytes(0x10000, 0x13000), 8192);
        assert_eq!(pages.bytes(0x10ff0, 0x12010), 16 + 16);
        assert_eq!(pages.bytes(0x11000, 0x12000), 0);
        assert_eq!(pages.bytes(0x0, 0x99000), 8192);
        assert_eq!(pages.bytes(0x12000, 0x11000), 0);
    }
}
