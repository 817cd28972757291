//! The layout of the table of own memory: what a runtime needs for itself, by purpose. None of it is in a row of the ledger.
//!
//! Cells and bitmaps are not in the table: they stand at the end of their slabs, so that the unit table tells them. A slab has one
//! cell (`Descriptor::cell_size` bytes) and one bit a slot, bits in whole 8-byte words.

use core::mem::size_of;

/// Most rows that a reader believes.
pub const META_ROWS_MAX: u32 = 64;

/// Head of the table. 16 bytes; the rows follow.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MetaTable {
    /// Rows that follow.
    pub count: u32,
    /// `size_of::<MetaRow>()`.
    pub stride: u32,
    /// Unused, 0.
    pub pad: u64,
}

/// One purpose. 48 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MetaRow {
    /// Address of its name, in UTF-8.
    pub name: u64,
    /// Bytes of `name`.
    pub name_len: u32,
    /// Bytes of the counter at `calls_at`: 4 or 8.
    pub calls_size: u32,
    /// Address of a `u64`. That value times `per`, shifted right by `shift`, is the bytes in use.
    pub bytes_at: u64,
    /// Address of the number of pieces; 0 = one, if there are bytes.
    pub calls_at: u64,
    /// See `bytes_at`.
    pub per: u64,
    /// See `bytes_at`. It holds for the counter at `calls_at`, too, which has no factor.
    pub shift: u32,
    /// Unused, 0.
    pub pad: u32,
}

const _: () = {
    assert!(size_of::<MetaTable>() == 16);
    assert!(size_of::<MetaRow>() == 48);
};
