//! The layout of the page owner: one record for each unit of the arena, as the kernel keeps one for each page (mm/page_owner.c).
//!
//! Only the record of a run's first unit counts. One that was never written (`seq` 0) belongs to a run that was taken before the
//! page owner was ready: *early*.

use core::mem::size_of;

/// [`OwnerRecord::node`]: the run was taken by a signal handler that interrupted the allocator.
pub const NODE_RECURSION: u32 = u32::MAX;
/// [`OwnerRecord::node`]: no stack, or no room for it.
pub const NODE_FAILURE: u32 = u32::MAX - 1;
/// The least of such numbers.
pub const NODE_SPECIAL: u32 = u32::MAX - 15;
/// Frames kept of a stack, the allocator's own included; readers leave those out and show 16.
pub const OWNER_DEPTH: u32 = 28;

/// [`OwnerRecord::state`]: taken.
pub const OWNER_TAKEN: u8 = 1;
/// [`OwnerRecord::state`]: given back.
pub const OWNER_GIVEN: u8 = 2;

/// [`OwnerRecord::mask`] of memory that may have any content: the kernel's `GFP_KERNEL`.
pub const MASK_KERNEL: u32 = 0xcc0;
/// [`OwnerRecord::mask`] of zeroed memory: `GFP_KERNEL|__GFP_ZERO`.
pub const MASK_ZERO: u32 = 0xdc0;

/// Where the records are. 40 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OwnerControl {
    /// Address of the record of the arena's first unit; 0 = the page owner is off.
    pub records: u64,
    /// `size_of::<OwnerRecord>()`.
    pub stride: u32,
    /// Unused, 0.
    pub reserved: u32,
    /// Runs taken while the stack could not be kept: no stack, or no room.
    pub failures: u64,
    /// Runs taken by signal handlers inside the allocator.
    pub recursions: u64,
    /// Runs taken in all, since the start.
    pub taken: u64,
}

/// Who took a run, and who gave it back last. 64 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OwnerRecord {
    /// Odd while the record changes; 0 = never written.
    pub seq: u32,
    /// Number of the node of the stack that took the run, or `NODE_*`.
    pub node: u32,
    /// That of the stack that gave it back last; 0 = never.
    pub free_node: u32,
    /// Thread that took it.
    pub pid: u32,
    /// Its process.
    pub tgid: u32,
    /// `MASK_*`.
    pub mask: u32,
    /// When it was taken, in nanoseconds of `CLOCK_MONOTONIC`.
    pub ts: u64,
    /// When it was given back last; 0 = never.
    pub free_ts: u64,
    /// Units of the run when it was taken.
    pub units: u32,
    /// `OWNER_*`.
    pub state: u8,
    /// 0 = unmovable, 1 = movable (the kernel's migrate types).
    pub migrate: u8,
    /// Unused, 0.
    pub pad: u16,
    /// Name of the thread, padded with NULs.
    pub comm: [u8; 16],
}

const _: () = {
    assert!(size_of::<OwnerControl>() == 40);
    assert!(size_of::<OwnerRecord>() == 64);
};
