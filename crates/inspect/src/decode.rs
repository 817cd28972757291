//! Takes the contract's structures out of bytes, field by field: no unsafe code, no trust in the source.

use core::mem::offset_of;
use memledger_abi::{BumpHeader, Descriptor, ModuleRecord, Node, TagRow, UnitMeta};

/// `N` bytes at `at`; zeros beyond the end.
fn bytes<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    b.get(at..)
        .and_then(|b| b.first_chunk())
        .copied()
        .unwrap_or([0; N])
}

/// A 64-bit integer at `at`; 0 beyond the end.
pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes(b, at))
}

/// A 32-bit integer at `at`; 0 beyond the end.
pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes(b, at))
}

/// A 16-bit integer at `at`; 0 beyond the end.
pub(crate) fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes(b, at))
}

macro_rules! decoder {
    ($(#[$doc:meta])* $name:ident -> $T:ident { $($f:ident: $t:ty),* $(,)? }) => {
        $(#[$doc])*
        pub(crate) fn $name(b: &[u8]) -> $T {
            $T { $($f: <$t>::from_ne_bytes(bytes(b, offset_of!($T, $f))),)* ..ZERO.$name }
        }
    };
}

/// Values for the fields that no reader looks at.
struct Zero {
    unit: UnitMeta,
    bump: BumpHeader,
    tag: TagRow,
    node: Node,
}

const ZERO: Zero = Zero {
    unit: UnitMeta {
        start: 0,
        recip: 0,
        cells: 0,
        bytes: 0,
        slots: 0,
        index: 0,
        kind: 0,
        class: 0,
        flags: 0,
        seq: 0,
        back: 0,
        units: 0,
        pad: 0,
    },
    bump: BumpHeader {
        size: 0,
        index: 0,
        requested: 0,
        pad: 0,
    },
    tag: TagRow {
        file: 0,
        func: 0,
        module: 0,
        path: 0,
        file_len: 0,
        func_len: 0,
        module_len: 0,
        path_len: 0,
        line: 0,
        column: 0,
        flags: 0,
        pad: 0,
    },
    node: Node {
        key: 0,
        parent: 0,
        rule: 0,
        child_ra: 0,
        child: 0,
        flags: 0,
    },
};

decoder! {
    /// A unit record.
    unit -> UnitMeta { start: u64, cells: u64, bytes: u64, slots: u32, index: u32, kind: u8, class: u8, flags: u16, seq: u32, units: u32 }
}
decoder! {
    /// A header in a bump region.
    bump -> BumpHeader { size: u32, index: u32, requested: u32 }
}
decoder! {
    /// A tag.
    tag -> TagRow {
        file: u64, func: u64, module: u64, path: u64, file_len: u32, func_len: u32, module_len: u32, path_len: u32,
        line: u32, column: u32, flags: u32,
    }
}
decoder! {
    /// A node.
    node -> Node { key: u64, parent: u32, flags: u32 }
}

/// A module record.
pub(crate) fn module(b: &[u8]) -> ModuleRecord {
    type M = ModuleRecord;
    M {
        start: u64_at(b, offset_of!(M, start)),
        end: u64_at(b, offset_of!(M, end)),
        bias: u64_at(b, offset_of!(M, bias)),
        name: u64_at(b, offset_of!(M, name)),
        name_len: u32_at(b, offset_of!(M, name_len)),
        state: u32_at(b, offset_of!(M, state)),
        build_id: bytes(b, offset_of!(M, build_id)),
        build_id_len: u32_at(b, offset_of!(M, build_id_len)),
        pad: [0; 2],
    }
}

/// A descriptor.
pub(crate) fn descriptor(b: &[u8]) -> Descriptor {
    type D = Descriptor;
    let w = |at| u32_at(b, at);
    let l = |at| u64_at(b, at);
    D {
        magic: l(offset_of!(D, magic)),
        version: w(offset_of!(D, version)),
        size: w(offset_of!(D, size)),
        pid: w(offset_of!(D, pid)),
        ready: w(offset_of!(D, ready)),
        mem_profiling: w(offset_of!(D, mem_profiling)),
        mode: w(offset_of!(D, mode)),
        depth: w(offset_of!(D, depth)),
        cell_size: w(offset_of!(D, cell_size)),
        site_base: w(offset_of!(D, site_base)),
        arena_base: l(offset_of!(D, arena_base)),
        committed_at: l(offset_of!(D, committed_at)),
        unit_shift: w(offset_of!(D, unit_shift)),
        unit_stride: w(offset_of!(D, unit_stride)),
        units: l(offset_of!(D, units)),
        tags: l(offset_of!(D, tags)),
        tag_stride: w(offset_of!(D, tag_stride)),
        tag_count_at: l(offset_of!(D, tag_count_at)),
        nodes: l(offset_of!(D, nodes)),
        node_stride: w(offset_of!(D, node_stride)),
        node_count_at: l(offset_of!(D, node_count_at)),
        modules: l(offset_of!(D, modules)),
        module_stride: w(offset_of!(D, module_stride)),
        module_count_at: l(offset_of!(D, module_count_at)),
        loss_at: std::array::from_fn(|i| l(offset_of!(D, loss_at) + 8 * i)),
        meta_bytes_at: std::array::from_fn(|i| l(offset_of!(D, meta_bytes_at) + 8 * i)),
        register: l(offset_of!(D, register)),
        unregister: l(offset_of!(D, unregister)),
        current_tag_offset: l(offset_of!(D, current_tag_offset)).cast_signed(),
        trace: l(offset_of!(D, trace)),
        reserved0: 0,
        owner: l(offset_of!(D, owner)),
        meta: l(offset_of!(D, meta)),
        pools_at: l(offset_of!(D, pools_at)),
        reserved1: Default::default(),
        reserved2: 0,
        reserved3: 0,
        reserved4: 0,
    }
}
