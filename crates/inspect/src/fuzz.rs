//! For fuzzers and random tests: a ledger made of arbitrary bytes.
//!
//! All of a process's memory is the input, at a fixed address. Bare random bytes would not get past the first checks, so the
//! head of the input chooses which fields of the descriptor are put right.

use crate::find::{self, Found};
use crate::mem::Memory;
use crate::{Helpers, MergeBy, Process, Snapshot, Symbolizer, rows, to_allocinfo};
use memledger_abi::{Descriptor, MAGIC, ModuleRecord, Node, TagRow, UnitMeta, VERSION};
use std::io;

/// Address of the first byte of the input.
pub const BASE: u64 = 0x10_0000;

/// The input as memory.
#[derive(Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Memory for Bytes<'_> {
    fn read(&self, addr: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = addr
            .checked_sub(BASE)
            .and_then(|at| usize::try_from(at).ok());
        let bytes = from
            .and_then(|at| self.0.get(at..)?.get(..buf.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

/// Reads a ledger from arbitrary bytes, and makes rows of it. Returns the snapshot if there was one; must never panic, hang
/// or use much memory. The first byte chooses what is put right: bit 0 strides and sizes, bit 1 addresses, bit 2 compressed
/// cells.
pub fn ledger(input: &[u8]) -> Option<Snapshot> {
    let (&choice, data) = input.split_first()?;
    let mut data = data.to_vec();
    put(&mut data, 0, &MAGIC.to_ne_bytes());
    put(&mut data, 8, &VERSION.to_ne_bytes());
    put(
        &mut data,
        12,
        &(size_of::<Descriptor>() as u32).to_ne_bytes(),
    );
    let mem = Bytes(&data);
    let mut descriptor = find::check(&mem, BASE).ok()?;
    if choice & 1 != 0 {
        put_right(&mut descriptor, choice & 4 != 0);
    }
    if choice & 2 != 0 {
        let d = &mut descriptor;
        let tables = [&mut d.units, &mut d.tags, &mut d.nodes, &mut d.modules];
        let counters = [
            &mut d.committed_at,
            &mut d.tag_count_at,
            &mut d.node_count_at,
            &mut d.module_count_at,
        ];
        for addr in tables.into_iter().chain(counters) {
            *addr = BASE + *addr % data.len() as u64;
        }
    }
    let found = Found {
        addr: BASE,
        descriptor,
    };
    let snapshot = Snapshot::read_found(&mem, Process::default(), &[found]).ok()?;
    let rows = rows(
        &snapshot,
        &mut Symbolizer::default(),
        &Helpers::default(),
        MergeBy::Line,
    );
    let sum: u64 = rows.iter().fold(0, |n, r| n.saturating_add(r.bytes));
    assert_eq!(sum, snapshot.total.bytes, "rows add up");
    rows.iter().for_each(|r| drop(to_allocinfo(r)));
    Some(snapshot)
}

/// Searches arbitrary bytes for descriptors, as if an object were mapped there.
pub fn search(input: &[u8]) -> usize {
    let mapping = crate::Mapping {
        start: BASE,
        end: BASE + input.len() as u64,
        offset: 0,
        readable: true,
        path: "/fuzz".into(),
        deleted: false,
    };
    let search = find::descriptors(&Bytes(input), &[mapping]);
    search.found.len() + search.other_versions.len() + search.bad
}

fn put(data: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = data.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

fn put_right(d: &mut Descriptor, compressed: bool) {
    (d.mode, d.unit_shift) = (0, 16);
    d.unit_stride = size_of::<UnitMeta>() as u32;
    d.tag_stride = size_of::<TagRow>() as u32;
    d.node_stride = size_of::<Node>() as u32;
    d.module_stride = size_of::<ModuleRecord>() as u32;
    (d.cell_size, d.site_base) = if compressed {
        (2, 1 << 12)
    } else {
        (4, memledger_abi::SITE_BASE)
    };
}
