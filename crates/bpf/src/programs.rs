//! The two programs: what happens at an allocation, and what at a free.
//!
//! Tables: *sites* (call site, kind) -> [hits, requested, given, live objects, live bytes, failed], *objects* pointer -> [call
//! site, kind, bytes], *counts* one row of [`COUNTS`] sums. Sums are added to atomically, so several processors may run a
//! program for one site at a time. The free of an object that was allocated before the start, or that did not fit, finds no
//! object and is counted. A free comes before the memory is given to another, so an object that is in the table
//! already at its allocation is one whose free was missed (the kernel does not run a program inside another one on the same
//! processor): its site is relieved of it, and it is counted.

use crate::asm::{Asm, FRAME, If, Label, R0, R1, R2, R3, R4, R6, R7, R8, R9, Reg};

const LOOKUP: i32 = 1;
const UPDATE: i32 = 2;
const DELETE: i32 = 3;
const PID_TGID: i32 = 14;
const NOEXIST: i32 = 1;
const EEXIST: i32 = 17;

/// Bytes of a key of the table of sites.
pub(crate) const SITE_KEY: u32 = 16;
/// Numbers of a row of the table of sites.
pub(crate) const SITE_WORDS: usize = 6;
/// Bytes of a row of the table of objects.
pub(crate) const OBJECT_BYTES: u32 = 24;
/// Numbers of the row of counts.
pub(crate) const COUNTS: usize = 4;

/// Places in the row of counts.
pub(crate) const SITES_FULL: usize = 0;
pub(crate) const OBJECTS_FULL: usize = 1;
pub(crate) const UNKNOWN_FREES: usize = 2;
pub(crate) const STALE: usize = 3;

/// Offsets in the frame.
const KEY: i16 = -16;
const ROW: i16 = -64;
const PTR: i16 = -72;
const OBJECT: i16 = -96;
const ZERO: i16 = -104;

/// The allocator that a site called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `kmalloc`.
    Kmalloc,
    /// `kmem_cache_alloc`.
    Cache,
}

/// Where an allocation's record has its fields: offset in bytes; all are of 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocLayout {
    /// `call_site`.
    pub call_site: i16,
    /// `ptr`.
    pub ptr: i16,
    /// `bytes_req`.
    pub requested: i16,
    /// `bytes_alloc`.
    pub given: i16,
}

/// Where a free's record has its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeLayout {
    /// `ptr`.
    pub ptr: i16,
}

/// Which allocations to count. Frees are looked at in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Select {
    /// Only those by this process (its thread group, in the first pid namespace).
    pub pid: Option<u32>,
    /// Only those of at least this many bytes given.
    pub min: Option<u64>,
    /// Only those of at most this many bytes given.
    pub max: Option<u64>,
    /// Only those with a call site in one of these ranges (end excluded).
    pub sites: Vec<(u64, u64)>,
}

/// File descriptors of the tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tables {
    pub(crate) sites: i32,
    pub(crate) objects: i32,
    pub(crate) counts: i32,
}

/// `to = frame + offset`.
fn frame(asm: &mut Asm, to: Reg, offset: i16) {
    asm.mov(to, FRAME);
    asm.add(to, i32::from(offset));
}

/// Looks up the key at `key` of the frame; result in `r0`.
fn lookup(asm: &mut Asm, table: i32, key: i16) {
    asm.map(R1, table);
    frame(asm, R2, key);
    asm.call(LOOKUP);
}

/// Sets a row; result in `r0`.
fn update(asm: &mut Asm, table: i32, key: i16, value: i16, flags: i32) {
    asm.map(R1, table);
    frame(asm, R2, key);
    frame(asm, R3, value);
    asm.set(R4, flags);
    asm.call(UPDATE);
}

/// Adds 1 to one of the counts.
fn count(asm: &mut Asm, tables: Tables, which: usize) {
    let done = asm.label();
    asm.store_value(FRAME, ZERO, 0);
    lookup(asm, tables.counts, ZERO);
    asm.jump_if(R0, If::Eq, 0, done);
    asm.set(R1, 1);
    asm.atomic_add(R0, which as i16 * 8, R1);
    asm.bind(done);
}

/// Adds `by` (1 or -1) to the live objects of the row in `r0`, and the bytes in `bytes`, which has their sign.
fn live(asm: &mut Asm, row: Reg, by: i32, bytes: Reg) {
    asm.set(R1, by);
    asm.atomic_add(row, 24, R1);
    asm.atomic_add(row, 32, bytes);
}

/// Jumps to `out` unless the allocation in `r7` (site) and `r9` (bytes) is selected.
fn select(asm: &mut Asm, select: &Select, out: Label) {
    if let Some(pid) = select.pid {
        asm.call(PID_TGID);
        asm.shr(R0, 32);
        asm.set64(R1, u64::from(pid));
        asm.jump_if_reg(R0, If::Ne, R1, out);
    }
    if let Some(min) = select.min {
        asm.set64(R1, min);
        asm.jump_if_reg(R9, If::Lt, R1, out);
    }
    if let Some(above) = select.max.and_then(|max| max.checked_add(1)) {
        asm.set64(R1, above);
        asm.jump_if_reg(R9, If::Ge, R1, out);
    }
    if !select.sites.is_empty() {
        let inside = asm.label();
        for (low, high) in &select.sites {
            let next = asm.label();
            asm.set64(R1, *low);
            asm.jump_if_reg(R7, If::Lt, R1, next);
            asm.set64(R1, *high);
            asm.jump_if_reg(R7, If::Lt, R1, inside);
            asm.bind(next);
        }
        asm.jump(out);
        asm.bind(inside);
    }
}

/// Finds or makes the row of the key in the frame; then it is in `r0`. Jumps to `out` if there is no room.
fn site_row(asm: &mut Asm, tables: Tables, out: Label) {
    let found = asm.label();
    lookup(asm, tables.sites, KEY);
    asm.jump_if(R0, If::Ne, 0, found);
    for word in 0..SITE_WORDS as i16 {
        asm.store_value(FRAME, ROW + 8 * word, 0);
    }
    update(asm, tables.sites, KEY, ROW, NOEXIST);
    lookup(asm, tables.sites, KEY);
    asm.jump_if(R0, If::Ne, 0, found);
    count(asm, tables, SITES_FULL);
    asm.jump(out);
    asm.bind(found);
}

/// Takes the object at `PTR` of the frame out of the books; jumps to `none` if it is not in the table. Uses `r8`.
fn release(asm: &mut Asm, tables: Tables, key: i16, none: Label) {
    let done = asm.label();
    lookup(asm, tables.objects, PTR);
    asm.jump_if(R0, If::Eq, 0, none);
    asm.load(R1, R0, 0, 8);
    asm.store(FRAME, key, R1);
    asm.load(R1, R0, 8, 8);
    asm.store(FRAME, key + 8, R1);
    asm.load(R8, R0, 16, 8);
    asm.map(R1, tables.objects);
    frame(asm, R2, PTR);
    asm.call(DELETE);
    asm.jump_if(R0, If::Ne, 0, none);
    lookup(asm, tables.sites, key);
    asm.jump_if(R0, If::Eq, 0, done);
    asm.neg(R8);
    live(asm, R0, -1, R8);
    asm.bind(done);
}

/// The program at an allocation. `None` if it cannot be written (too many ranges).
pub(crate) fn alloc(
    layout: AllocLayout,
    kind: Kind,
    chosen: &Select,
    tables: Tables,
) -> Option<Vec<u64>> {
    let mut asm = Asm::new();
    let asm_ = &mut asm;
    let (out, full, stored, not_stale) = (asm_.label(), asm_.label(), asm_.label(), asm_.label());
    asm_.mov(R6, R1);
    asm_.load(R7, R6, layout.call_site, 8);
    asm_.load(R9, R6, layout.given, 8);
    select(asm_, chosen, out);
    asm_.store(FRAME, KEY, R7);
    asm_.store_value(FRAME, KEY + 8, kind as i32);
    asm_.load(R8, R6, layout.ptr, 8);
    asm_.store(FRAME, PTR, R8);
    site_row(asm_, tables, out);
    asm_.mov(R7, R0);
    let failed = asm_.label();
    asm_.set(R1, 1);
    asm_.jump_if(R8, If::Eq, 0, failed);
    asm_.atomic_add(R7, 0, R1);
    asm_.load(R1, R6, layout.requested, 8);
    asm_.atomic_add(R7, 8, R1);
    asm_.atomic_add(R7, 16, R9);
    asm_.load(R1, FRAME, KEY, 8);
    asm_.store(FRAME, OBJECT, R1);
    asm_.store_value(FRAME, OBJECT + 8, kind as i32);
    asm_.store(FRAME, OBJECT + 16, R9);
    update(asm_, tables.objects, PTR, OBJECT, NOEXIST);
    asm_.jump_if(R0, If::Eq, 0, stored);
    asm_.jump_if(R0, If::Ne, -EEXIST, full);
    count(asm_, tables, STALE);
    release(asm_, tables, ROW, not_stale);
    asm_.bind(not_stale);
    update(asm_, tables.objects, PTR, OBJECT, NOEXIST);
    asm_.jump_if(R0, If::Ne, 0, full);
    asm_.bind(stored);
    live(asm_, R7, 1, R9);
    asm_.jump(out);
    asm_.bind(failed);
    asm_.atomic_add(R7, 40, R1);
    asm_.jump(out);
    asm_.bind(full);
    count(asm_, tables, OBJECTS_FULL);
    asm_.bind(out);
    asm_.set(R0, 0);
    asm_.exit();
    asm.finish()
}

/// The program at a free.
pub(crate) fn free(layout: FreeLayout, tables: Tables) -> Option<Vec<u64>> {
    let mut asm = Asm::new();
    let (out, none) = (asm.label(), asm.label());
    asm.load(R7, R1, layout.ptr, 8);
    asm.jump_if(R7, If::Eq, 0, out);
    asm.store(FRAME, PTR, R7);
    release(&mut asm, tables, KEY, none);
    asm.jump(out);
    asm.bind(none);
    count(&mut asm, tables, UNKNOWN_FREES);
    asm.bind(out);
    asm.set(R0, 0);
    asm.exit();
    asm.finish()
}
