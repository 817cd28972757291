//! `/proc/slabinfo`: the caches of a slab allocator (mm/slab_common.c of Linux 7.3; the text is that of 2.6.10 and later).
//!
//! ```text
//! slabinfo - version: 2.1
//! # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>
//! mqueue_inode_cache     28     36    896   18    4 : tunables    0    0    0 : slabdata      2      2      0
//! ```
//! A row is printed with `"%-17s %6lu %6lu %6u %4u %4d : tunables %4u %4u %4u : slabdata %6lu %6lu %6lu"`. Columns grow, and a name may
//! have blanks in it (old kernels let it): so a row is read from its colons and from the right. Version 2.1 of kernels with statistics
//! has more behind, ` : globalstat ...`, which is left out.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

/// First line.
const HEADER: &str = "slabinfo - version: 2.1";
/// Second line.
const COLUMNS: &str = "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> \
                       <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>";
/// Longest line read, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// Bad lines whose numbers are kept.
const MAX_BAD: usize = 100;

/// One cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Cache {
    /// Its name.
    pub name: String,
    /// Objects in use.
    pub active_objs: u64,
    /// Slots of all slabs.
    pub num_objs: u64,
    /// Bytes of a slot.
    pub objsize: u64,
    /// Slots of a slab.
    pub objperslab: u64,
    /// Pages (4 KiB) of a slab.
    pub pagesperslab: u64,
    /// Tunables: objects kept for each CPU. 0 with SLUB and memledger, as all tunables.
    pub limit: u64,
    /// Tunables: objects moved at once.
    pub batchcount: u64,
    /// Tunables: objects kept for all CPUs, by their number.
    pub sharedfactor: u64,
    /// Slabs with objects in use. SLUB prints all slabs here.
    pub active_slabs: u64,
    /// Slabs.
    pub num_slabs: u64,
    /// Objects kept for all CPUs.
    pub sharedavail: u64,
}

/// The line of the kernel, without its newline.
impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = self;
        let name: String = c
            .name
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect();
        write!(
            f,
            "{name:<17} {:>6} {:>6} {:>6} {:>4} {:>4}",
            c.active_objs, c.num_objs, c.objsize, c.objperslab, c.pagesperslab
        )?;
        write!(
            f,
            " : tunables {:>4} {:>4} {:>4}",
            c.limit, c.batchcount, c.sharedfactor
        )?;
        write!(
            f,
            " : slabdata {:>6} {:>6} {:>6}",
            c.active_slabs, c.num_slabs, c.sharedavail
        )
    }
}

impl Cache {
    /// Reads one line; `None` if it is no row.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.split_once(" : tunables ")?;
        let (tunables, rest) = rest.split_once(" : slabdata ")?;
        let slabdata = rest.split_once(" : ").map_or(rest, |(data, _)| data);
        let [limit, batchcount, sharedfactor] = numbers(tunables)?;
        let [active_slabs, num_slabs, sharedavail] = numbers(slabdata)?;
        let mut at = head.len();
        for _ in 0..5 {
            let left = head[..at].trim_end_matches([' ', '\t']);
            at = left.rfind([' ', '\t'])?;
        }
        let [active_objs, num_objs, objsize, objperslab, pagesperslab] = numbers(&head[at..])?;
        let name = head[..at].trim_end_matches([' ', '\t']);
        (!name.is_empty()).then(|| Cache {
            name: name.to_owned(),
            active_objs,
            num_objs,
            objsize,
            objperslab,
            pagesperslab,
            limit,
            batchcount,
            sharedfactor,
            active_slabs,
            num_slabs,
            sharedavail,
        })
    }
}

fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let mut out = [0; N];
    let mut words = text.split_ascii_whitespace();
    for n in &mut out {
        *n = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some(out)
}

/// What a file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slabinfo {
    /// The caches.
    pub caches: Vec<Cache>,
    /// Numbers of the first 100 lines that are no rows, headers or empty, or longer than 64 KiB.
    pub bad: Vec<u64>,
    /// How many there are.
    pub bad_lines: u64,
}

/// The kernel's text.
impl fmt::Display for Slabinfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}\n{COLUMNS}")?;
        self.caches
            .iter()
            .try_for_each(|cache| writeln!(f, "{cache}"))
    }
}

/// Reads all of a text; bytes that are not UTF-8 become U+FFFD.
///
/// # Errors
/// Those of the input.
pub fn read(mut input: impl BufRead) -> io::Result<Slabinfo> {
    let mut out = Slabinfo::default();
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(out);
        }
        let whole = line.len() as u64 != MAX_LINE || line.ends_with(b"\n");
        while !whole && !line.ends_with(b"\n") {
            line.clear();
            if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        match Cache::parse(text).filter(|_| whole) {
            Some(cache) => out.caches.push(cache),
            None if whole
                && (text.is_empty()
                    || text.starts_with(['#'])
                    || text.starts_with("slabinfo - version:")) => {}
            None => {
                out.bad_lines += 1;
                if out.bad.len() < MAX_BAD {
                    out.bad.push(number);
                }
            }
        }
    }
}

/// Writes the kernel's text.
///
/// # Errors
/// Those of the output.
pub fn write(mut out: impl Write, caches: &[Cache]) -> io::Result<()> {
    writeln!(out, "{HEADER}\n{COLUMNS}")?;
    caches.iter().try_for_each(|cache| writeln!(out, "{cache}"))
}
