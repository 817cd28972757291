//! The published table of this runtime's own memory, by purpose.

use super::{MM, owner, trace};
use crate::arena::MetaKind;
use crate::unit::{Cold, Unit};
use core::cell::UnsafeCell;
use core::mem::{offset_of, size_of};
use memledger_abi::UNIT_SHIFT;
use memledger_abi::meta::{MetaRow, MetaTable};
use memledger_abi::owner::OwnerRecord;
use memledger_abi::trace::TraceControl;

const ROWS: usize = 11;

#[repr(C)]
struct Table {
    head: MetaTable,
    rows: [MetaRow; ROWS],
}

struct Published(UnsafeCell<Table>);

// SAFETY: written by `publish` alone, under the set-up lock and before the descriptor points to it; then only read.
unsafe impl Sync for Published {}

const EMPTY: MetaRow = MetaRow {
    name: 0,
    name_len: 0,
    calls_size: 0,
    bytes_at: 0,
    calls_at: 0,
    per: 1,
    shift: 0,
    pad: 0,
};

static TABLE: Published = Published(UnsafeCell::new(Table {
    head: MetaTable {
        count: 0,
        stride: size_of::<MetaRow>() as u32,
        pad: 0,
    },
    rows: [EMPTY; ROWS],
}));

fn row(name: &'static str, bytes_at: u64, calls_at: u64, calls_size: u32) -> MetaRow {
    MetaRow {
        name: name.as_ptr() as u64,
        name_len: name.len() as u32,
        calls_size,
        bytes_at,
        calls_at,
        ..EMPTY
    }
}

/// `per` bytes for each unit that is committed.
fn units(name: &'static str, per: usize) -> MetaRow {
    let committed = MM.arena.committed_at();
    MetaRow {
        per: per as u64,
        shift: UNIT_SHIFT,
        ..row(name, committed, committed, 8)
    }
}

fn kind(name: &'static str, kind: MetaKind) -> MetaRow {
    let [bytes, pieces] = MM.arena.meta_sums(kind);
    row(name, bytes.as_ptr() as u64, pieces.as_ptr() as u64, 8)
}

/// Fills the table; returns its address. The set-up lock is held.
pub(super) fn publish(never: bool) -> u64 {
    let depot = alloc_tag::sites::depot();
    let [tables, nodes] = depot.meta_bytes_at();
    let tags = alloc_tag::runtime::table_bytes_address();
    let tag_count = alloc_tag::runtime::tag_count_address();
    let traced = trace::TRACER.address() + offset_of!(TraceControl, mapped_bytes) as u64;
    let all = [
        Some(units("unit_table", size_of::<Unit>() + size_of::<Cold>())),
        Some(kind("thread_heaps", MetaKind::Heap)),
        Some(kind("thread_stacks", MetaKind::Stack)),
        Some(kind("shared_stacks", MetaKind::Shared)),
        Some(kind("kept_walks", MetaKind::Walks)),
        Some(kind("pools", MetaKind::Pool)),
        Some(row("stack_nodes", nodes, depot.node_count_at(), 4)),
        Some(row("stack_tables", tables, 0, 0)),
        Some(row("tag_table", tags, tag_count, 4)),
        Some(row("tracer", traced, 0, 0)).filter(|_| !never),
        Some(units("page_owner", size_of::<OwnerRecord>())).filter(|_| owner::OWNER.on()),
    ];
    // SAFETY: the set-up lock is held, and nothing points to the table yet.
    let table = unsafe { &mut *TABLE.0.get() };
    for (to, row) in table.rows.iter_mut().zip(all.into_iter().flatten()) {
        *to = row;
        table.head.count += 1;
    }
    TABLE.0.get() as u64
}
