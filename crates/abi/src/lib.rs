//! The layout of what a memledger runtime publishes and what its readers find.
//!
//! One runtime (the preloaded library, or a program linked with the `memledger` crate) publishes one
//! [`Descriptor`]. Readers find it by an ELF note (never by a symbol: stripped binaries lose those): a `PT_NOTE`
//! entry named [`NOTE_NAME`] of type [`NOTE_TYPE`] whose 8 descriptor bytes are the signed distance from the address
//! of those 8 bytes to the `Descriptor`. Everything is plain private memory of the process, read with
//! `process_vm_readv`, `/proc/PID/mem` or the segments of a core file. Integers are in the byte order of the machine;
//! every address is a virtual address of the process, as 8 bytes.
//!
//! ```text
//! note ─▶ Descriptor ─▶ units[committed >> 16]  one UnitMeta for each 64 KiB of the arena ─▶ cells: one index a slot
//!                    ├▶ tags[..]           TagRow, strings copied, outlives its module
//!                    ├▶ nodes[..]          Node of the context trie (parent, return address)
//!                    └▶ modules[..]        ModuleRecord: where an address of a node belonged to
//! ```
//!
//! # What an index means
//! Every live object has a 4-byte index in its cell ([`UnitMeta::cells`]), in its unit ([`UnitMeta::index`]) for a large
//! object, or in its [`BumpHeader`]. 0 = the slot is free. `1..FIRST_TAG` are the reserved rows (`INDEX_*`).
//! `FIRST_TAG..site_base` are tags: `tags[index - FIRST_TAG]`. From `site_base` on they are nodes: `nodes[index - site_base]`;
//! the stack of a node is its own `ra`, then its parent's, up to the root (node 0), outermost frame first: the children of
//! the root are the innermost frames.
//!
//! Readers must tolerate change while they read: check [`UnitMeta::seq`] before and after the cells of a unit, and treat an
//! index that is out of range as [`INDEX_FOREIGN`].
#![no_std]
#![forbid(unsafe_code)]

pub mod meta;
pub mod owner;
pub mod pool;
pub mod trace;

use core::mem::{offset_of, size_of};

/// First 8 bytes of a [`Descriptor`]: `memledgr` in memory order.
pub const MAGIC: u64 = u64::from_le_bytes(*b"memledgr");
/// Version of the layout. A reader refuses any other.
pub const VERSION: u32 = 1;
/// Name of the ELF note, without the terminating NUL (the note's `namesz` is 10, padded to 12).
pub const NOTE_NAME: &str = "memledger";
/// Type of the ELF note.
pub const NOTE_TYPE: u32 = 1;

/// Free slot.
pub const INDEX_NONE: u32 = 0;
/// Allocated while profiling was switched off.
pub const INDEX_UNTRACKED: u32 = 1;
/// Allocated before the runtime was ready.
pub const INDEX_EARLY: u32 = 2;
/// Allocated by memledger's own capture, or while the thread was inside the allocator (a signal handler).
pub const INDEX_RECURSION: u32 = 3;
/// The table of sites was full.
pub const INDEX_TABLE_FULL: u32 = 4;
/// No stack could be read, or the index is not one this runtime gave out.
pub const INDEX_FOREIGN: u32 = 5;
/// Index of the first tag; the smaller ones are reserved.
pub const FIRST_TAG: u32 = 16;
/// Usual value of [`Descriptor::site_base`] with 4-byte cells.
pub const SITE_BASE: u32 = 0x0100_0000;

/// Names of the reserved rows, by index; empty = not in use.
pub const RESERVED_NAMES: [&str; FIRST_TAG as usize] = [
    "",
    "untracked",
    "early",
    "recursion",
    "table_full",
    "foreign",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
];

/// Size of a unit of the arena, in bytes, as a shift.
pub const UNIT_SHIFT: u32 = 16;

/// [`Descriptor::mode`]: the switch is read-only and no ledger exists.
pub const MODE_NEVER: u32 = 1;
/// [`Descriptor::mode`]: cells are 2 bytes.
pub const MODE_COMPRESSED: u32 = 2;

/// Indexes of [`Descriptor::loss_at`].
pub mod loss {
    /// Names, by position.
    pub const NAMES: [&str; 8] = [
        "table_full",
        "recursion",
        "early",
        "foreign_free",
        "no_stack",
        "double_free",
        "no_tag_space",
        "",
    ];
    /// Allocations charged to the `table_full` row.
    pub const TABLE_FULL: usize = 0;
    /// Allocations charged to the `recursion` row.
    pub const RECURSION: usize = 1;
    /// Allocations charged to the `early` row.
    pub const EARLY: usize = 2;
    /// Frees of pointers that this allocator never gave out (ignored).
    pub const FOREIGN_FREE: usize = 3;
    /// Stacks of which not even the return address could be used.
    pub const NO_STACK: usize = 4;
    /// Frees of what was free already.
    pub const DOUBLE_FREE: usize = 5;
    /// Tags that did not fit in the tag table.
    pub const NO_TAG_SPACE: usize = 6;
}

/// What a runtime publishes. 320 bytes, 8-aligned.
///
/// Fields that end in `_at` are addresses of counters that stand elsewhere in the runtime, where they are counted.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// `size_of::<Descriptor>()`.
    pub size: u32,
    /// The process that this descriptor speaks of (rewritten in a forked child).
    pub pid: u32,
    /// 0 until the runtime is initialised, then 1.
    pub ready: u32,
    /// Control word: bit 0 = profiling is on, bit 1 = tracing is on ([`trace::SWITCH_ON`], [`trace::SWITCH_TRACE`]). A reader with
    /// ptrace rights may write it, unless `mode` says never.
    pub mem_profiling: u32,
    /// `MODE_*` bits.
    pub mode: u32,
    /// Frames kept of a site (N).
    pub depth: u32,
    /// Bytes of a cell: 4, or 2 when compressed.
    pub cell_size: u32,
    /// Index of node 0.
    pub site_base: u32,
    /// Unused, 0.
    pub reserved0: u32,
    /// Lowest address of the arena; a multiple of the unit size.
    pub arena_base: u64,
    /// Address of a `u64`: committed bytes of the arena from `arena_base` on. So many units (bytes >> `unit_shift`) have a
    /// [`UnitMeta`].
    pub committed_at: u64,
    /// log2 of the unit size in bytes: [`UNIT_SHIFT`].
    pub unit_shift: u32,
    /// Distance of two `UnitMeta`, in bytes (at least `size_of::<UnitMeta>()`).
    pub unit_stride: u32,
    /// Address of the first `UnitMeta`.
    pub units: u64,
    /// Address of the first [`TagRow`].
    pub tags: u64,
    /// `size_of::<TagRow>()`.
    pub tag_stride: u32,
    /// Unused, 0.
    pub reserved2: u32,
    /// Address of a `u32`: tags registered so far.
    pub tag_count_at: u64,
    /// Address of [`Node`] 0, the root.
    pub nodes: u64,
    /// `size_of::<Node>()`.
    pub node_stride: u32,
    /// Unused, 0.
    pub reserved3: u32,
    /// Address of a `u32`: nodes made so far, the root included.
    pub node_count_at: u64,
    /// Address of [`ModuleRecord`] 0, which stands for "no module".
    pub modules: u64,
    /// `size_of::<ModuleRecord>()`.
    pub module_stride: u32,
    /// Unused, 0.
    pub reserved4: u32,
    /// Address of a `u32`: module records made so far, record 0 included.
    pub module_count_at: u64,
    /// Addresses of `u64` counts of what was lost, by [`loss`]; 0 = not counted.
    pub loss_at: [u64; 8],
    /// Addresses of `u64`s: bytes of memory used by memledger itself (heaps, nodes, tags, ...), in no row; 0 = none. Their sum
    /// is the overhead, next to the cells, which stand in the slabs.
    pub meta_bytes_at: [u64; 4],
    /// `extern "C" fn(*const ModuleTags) -> i64`: registers a module's tags; returns the distance from the thread pointer
    /// to the current-tag slot, or 0 if this runtime takes no tags. Called by the constructor of a module with tags, which
    /// may be before the runtime's own constructor: to be set statically, like `magic`, `version` and `size`.
    pub register: u64,
    /// `extern "C" fn(*const ModuleTags)`: the module goes away; its rows stay.
    pub unregister: u64,
    /// Distance from the thread pointer to the current-tag slot of this runtime, in bytes.
    pub current_tag_offset: i64,
    /// Address of the [`trace::TraceControl`]; 0 = this runtime cannot trace.
    pub trace: u64,
    /// Address of the [`owner::OwnerControl`]; 0 = this runtime has no page owner.
    pub owner: u64,
    /// Address of the [`meta::MetaTable`]: own memory by purpose; 0 = not told.
    pub meta: u64,
    /// Address of a `u64` that holds the address of the first [`pool::PoolRecord`], or 0; 0 = no named caches.
    pub pools_at: u64,
    /// Unused, 0.
    pub reserved1: [u64; 2],
}

/// What a module passes to [`Descriptor::register`].
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ModuleTags {
    /// Address of the module's first `CodeTag`.
    pub start: u64,
    /// End of the module's tags.
    pub stop: u64,
    /// Any address inside the module (to find its name by).
    pub anchor: u64,
    /// Distance from the thread pointer to the module's own current-tag slot; 0 = it has none.
    pub current_tag_offset: i64,
}

/// A unit of the arena belongs to nobody; its memory may be returned.
pub const KIND_FREE: u8 = 0;
/// First unit of a slab: `slots` objects of `bytes` bytes from `start` on, their indexes at `cells`.
pub const KIND_SLAB: u8 = 1;
/// A further unit of the run that begins `back` units before. Hot fields are copies of the first unit's.
pub const KIND_CONTINUED: u8 = 2;
/// First unit of one large object: `bytes` bytes (page-rounded) at `start`, charged to `index`.
pub const KIND_LARGE: u8 = 3;
/// A bump region: [`BumpHeader`] records from `start` on, up to one whose size is 0 or the end of the run.
pub const KIND_BUMP: u8 = 4;
/// Memory of memledger itself.
pub const KIND_META: u8 = 5;

/// What is known of one unit of the arena. 64 bytes, one cache line.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct UnitMeta {
    /// Address of slot 0 or of the large object.
    pub start: u64,
    /// `floor(2^64 / bytes) + 1` for slabs, else 0: the high half of `(p - start) * recip` is the slot's number.
    pub recip: u64,
    /// Address of the cells, one a slot; 0 under `never`.
    pub cells: u64,
    /// Bytes of a slot, or of the large object as accounted.
    pub bytes: u64,
    /// Slots of the slab.
    pub slots: u32,
    /// Index of the large object; 0 = free.
    pub index: u32,
    /// `KIND_*`.
    pub kind: u8,
    /// Size class of the slab; [`pool::CLASS_POOL`] of that of a named cache.
    pub class: u8,
    /// Number of the named cache; else without meaning.
    pub flags: u16,
    /// Odd while the other fields change; differs after each change.
    pub seq: u32,
    /// Units back to the first unit of the run (0 for the first).
    pub back: u32,
    /// Units of the run (in the first unit).
    pub units: u32,
    /// Unused.
    pub pad: u64,
}

/// Stands before each object of a bump region. 16 bytes; the object follows.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct BumpHeader {
    /// Bytes from this header to the next one, a multiple of 16; 0 ends the region.
    pub size: u32,
    /// Index; 0 = freed.
    pub index: u32,
    /// Bytes asked for.
    pub requested: u32,
    /// Unused.
    pub pad: u32,
}

/// A tag as the table keeps it. 64 bytes. The strings are copies in memory of the runtime.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TagRow {
    /// UTF-8 text of the source file.
    pub file: u64,
    /// UTF-8 text of the function.
    pub func: u64,
    /// UTF-8 text of the object file's name, to be shown as `[module]`; length 0 for the executable.
    pub module: u64,
    /// UTF-8 text of the source module's path (`module_path!`).
    pub path: u64,
    /// Bytes of `file`.
    pub file_len: u32,
    /// Bytes of `func`.
    pub func_len: u32,
    /// Bytes of `module`.
    pub module_len: u32,
    /// Bytes of `path`.
    pub path_len: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Bit 0: the module is loaded. Bit 1: the row is inaccurate.
    pub flags: u32,
    /// Unused.
    pub pad: u32,
}
/// [`TagRow::flags`]: the module is loaded.
pub const TAG_LOADED: u32 = 1;
/// [`TagRow::flags`]: some allocations could not be charged to it.
pub const TAG_INACCURATE: u32 = 2;

/// A node of the context trie. 32 bytes, half a cache line.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Return address in the low 48 bits, number of its [`ModuleRecord`] in the high 16.
    pub key: u64,
    /// Number of the parent node (the frame that was called from here); the root's is 0.
    pub parent: u32,
    /// Unwind rule of the return address; private to the runtime.
    pub rule: u32,
    /// Return address of the child seen first; private to the runtime.
    pub child_ra: u64,
    /// Number of that child.
    pub child: u32,
    /// Bit 0: dead (its module was unloaded). Bits 8..16: depth (the root's children have 1).
    pub flags: u32,
}

/// Return address of a [`Node::key`].
pub const fn node_ra(key: u64) -> u64 {
    key & 0x0000_ffff_ffff_ffff
}
/// Module record number of a [`Node::key`].
pub const fn node_module(key: u64) -> u32 {
    (key >> 48) as u32
}

/// An object file that was mapped when a node was made in it. 80 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ModuleRecord {
    /// Lowest address of its mapping.
    pub start: u64,
    /// End of its mapping.
    pub end: u64,
    /// What to subtract from an address to get the address in the file's own terms (`l_addr`).
    pub bias: u64,
    /// Address of its path, as the loader has it, copied; length 0 for the executable.
    pub name: u64,
    /// Bytes of the path.
    pub name_len: u32,
    /// 1 = loaded, 2 = unloaded.
    pub state: u32,
    /// GNU build-id, `build_id_len` bytes of it.
    pub build_id: [u8; 20],
    /// Bytes of `build_id`; 0 = none.
    pub build_id_len: u32,
    /// Unused.
    pub pad: [u64; 2],
}

const _: () = {
    assert!(size_of::<Descriptor>() == 320);
    assert!(size_of::<UnitMeta>() == 64);
    assert!(size_of::<BumpHeader>() == 16);
    assert!(size_of::<TagRow>() == 64);
    assert!(size_of::<Node>() == 32);
    assert!(size_of::<ModuleRecord>() == 80);
    assert!(offset_of!(Descriptor, pid) == 16);
};
