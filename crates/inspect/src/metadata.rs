//! Memory that a runtime needs for itself, by purpose: beside the ledger, never in its rows or their sum.
//!
//! The runtime publishes a table of counters (`memledger_abi::meta`); cells and bitmaps are reckoned from the unit table.

use crate::decode::{u32_at, u64_at};
use crate::mem::{Memory, Span};
use crate::slabinfo::Slabs;
use crate::snapshot::Sum;
use memledger_abi::meta::{META_ROWS_MAX, MetaRow, MetaTable};
use std::mem::offset_of;

/// Longest name believed.
const MAX_NAME: u32 = 64;

/// What slabs hold beside their slots.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SlabTails {
    /// Slabs.
    pub(crate) slabs: u64,
    /// Bytes of their cells.
    pub(crate) cells: u64,
    /// Bytes of their bitmaps.
    pub(crate) bitmaps: u64,
}

impl SlabTails {
    /// Of all slabs, with cells of `cell` bytes.
    pub(crate) fn new(slabs: &Slabs, cell: u32) -> Self {
        let mut out = SlabTails::default();
        for sum in slabs.values() {
            out.slabs += sum.slabs;
            let slots = u64::from(sum.slots);
            out.cells = out
                .cells
                .saturating_add((slots * u64::from(cell)).saturating_mul(sum.slabs));
            out.bitmaps = out
                .bitmaps
                .saturating_add((slots.div_ceil(64) * 8).saturating_mul(sum.slabs));
        }
        out
    }

    fn rows(&self) -> [(String, Sum); 2] {
        let row = |name: &str, bytes| {
            let calls = self.slabs;
            (name.to_owned(), Sum { bytes, calls })
        };
        [
            row("slab_cells", self.cells),
            row("slab_bitmaps", self.bitmaps),
        ]
    }
}

/// Name and size of each purpose: that of slabs, then the table at `at` (0 = there is none). What cannot be read is counted.
pub(crate) fn read(
    mem: &dyn Memory,
    at: u64,
    tails: &SlabTails,
    unread: &mut u64,
) -> Vec<(String, Sum)> {
    let mut out = tails.rows().to_vec();
    if at == 0 {
        return out;
    }
    let mut head = [0; size_of::<MetaTable>()];
    if mem.read(at, &mut head).is_err() {
        *unread += 1;
        return out;
    }
    let count = u32_at(&head, offset_of!(MetaTable, count));
    let stride = u32_at(&head, offset_of!(MetaTable, stride)) as usize;
    if count > META_ROWS_MAX || !(size_of::<MetaRow>()..=4096).contains(&stride) {
        *unread += 1;
        return out;
    }
    let mut rows = vec![0; count as usize * stride];
    if mem.read(at + head.len() as u64, &mut rows).is_err() {
        *unread += u64::from(count);
        return out;
    }
    for row in rows.chunks_exact(stride) {
        match one(mem, row) {
            Some(row) => out.push(row),
            None => *unread += 1,
        }
    }
    out
}

fn one(mem: &dyn Memory, row: &[u8]) -> Option<(String, Sum)> {
    let word = |at| u32_at(row, at);
    let long = |at| u64_at(row, at);
    let len = word(offset_of!(MetaRow, name_len)).min(MAX_NAME) as usize;
    let calls_at = long(offset_of!(MetaRow, calls_at));
    let calls_size = match word(offset_of!(MetaRow, calls_size)) {
        4 => 4,
        _ => 8,
    };
    let (mut name, mut bytes, mut calls) = (vec![0; len], [0; 8], [0; 8]);
    let mut spans = vec![
        Span::new(long(offset_of!(MetaRow, name)), &mut name),
        Span::new(long(offset_of!(MetaRow, bytes_at)), &mut bytes),
    ];
    if calls_at != 0 {
        spans.push(Span::new(calls_at, &mut calls[..calls_size]));
    }
    mem.read_many(&mut spans);
    if spans.iter().any(|span| !span.ok) {
        return None;
    }
    let shift = word(offset_of!(MetaRow, shift)).min(63);
    let per = u128::from(long(offset_of!(MetaRow, per)));
    let bytes = (u128::from(u64_at(&bytes, 0)) * per) >> shift;
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    let calls = match calls_at {
        0 => u64::from(bytes > 0),
        _ => u64_at(&calls, 0) >> shift,
    };
    let name = String::from_utf8_lossy(&name).into_owned();
    Some((name, Sum { bytes, calls }))
}
