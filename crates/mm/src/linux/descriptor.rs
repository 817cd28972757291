//! The published descriptor and the note by which readers find it.

use super::MM;
use core::arch::global_asm;
use core::cell::UnsafeCell;
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, Ordering};
use memledger_abi::trace::SWITCH_TRACE;
use memledger_abi::{
    Descriptor, MAGIC, MODE_NEVER, ModuleRecord, ModuleTags, Node, SITE_BASE, TagRow, UNIT_SHIFT,
    VERSION, loss as losses,
};

/// A descriptor that the runtime writes and that readers outside read at any time.
#[repr(transparent)]
pub(super) struct Published(UnsafeCell<Descriptor>);

// SAFETY: written by `fill` (under the set-up lock), by `register` (its own fields) and by readers with ptrace rights;
// read in this process through atomics only.
unsafe impl Sync for Published {}

pub(super) static DESCRIPTOR: Published = Published(UnsafeCell::new(Descriptor {
    magic: MAGIC,
    version: VERSION,
    size: size_of::<Descriptor>() as u32,
    pid: 0,
    ready: 0,
    mem_profiling: 0,
    mode: 0,
    depth: 0,
    cell_size: 4,
    site_base: SITE_BASE,
    reserved0: 0,
    arena_base: 0,
    committed_at: 0,
    unit_shift: UNIT_SHIFT,
    unit_stride: size_of::<crate::unit::Unit>() as u32,
    units: 0,
    tags: 0,
    tag_stride: size_of::<TagRow>() as u32,
    reserved2: 0,
    tag_count_at: 0,
    nodes: 0,
    node_stride: size_of::<Node>() as u32,
    reserved3: 0,
    node_count_at: 0,
    modules: 0,
    module_stride: size_of::<ModuleRecord>() as u32,
    reserved4: 0,
    module_count_at: 0,
    loss_at: [0; 8],
    meta_bytes_at: [0; 4],
    register: 0,
    unregister: 0,
    current_tag_offset: 0,
    trace: 0,
    owner: 0,
    meta: 0,
    pools_at: 0,
    reserved1: [0; 2],
}));

// The note: name, type, and the distance from its content to the descriptor.
global_asm!(
    ".pushsection .note.memledger, \"a\", @note",
    ".p2align 2",
    ".long 10",
    ".long 8",
    ".long {note_type}",
    ".asciz \"memledger\"",
    ".p2align 2",
    "memledger_note_content:",
    ".quad {descriptor} - memledger_note_content",
    ".popsection",
    note_type = const memledger_abi::NOTE_TYPE,
    descriptor = sym DESCRIPTOR,
);

/// The switch.
#[inline(always)]
pub(super) fn switch() -> &'static AtomicU32 {
    // SAFETY: the field is 4-aligned, lives for ever, and is accessed in this process only through this atomic after set-up.
    unsafe { AtomicU32::from_ptr(&raw mut (*DESCRIPTOR.0.get()).mem_profiling) }
}

/// Address of the descriptor.
pub fn address() -> u64 {
    DESCRIPTOR.0.get() as u64
}

/// A copy of the descriptor, for readers inside the process.
pub fn descriptor() -> Descriptor {
    // SAFETY: plain data; fields that change concurrently (switch, tag table) are whole words.
    unsafe { DESCRIPTOR.0.get().read_volatile() }
}

/// `Descriptor::register`.
extern "C" fn register(module: *const ModuleTags) -> i64 {
    super::init();
    if descriptor().mode & MODE_NEVER != 0 {
        // No ledger: hooks stay without effect, and cost nothing.
        return 0;
    }
    // SAFETY: called by the constructor of a copy of `alloc-tag` with its own tags.
    let offset = unsafe { alloc_tag::runtime::register_module(&*module) };
    publish_tags(offset);
    offset
}

/// `Descriptor::unregister`.
extern "C" fn unregister(module: *const ModuleTags) {
    // SAFETY: as in `register`.
    unsafe {
        if super::hooks::closing() {
            super::unload::warn(&*module);
        }
        alloc_tag::runtime::unregister_module(&*module);
    }
}

fn publish_tags(offset: i64) {
    let d = DESCRIPTOR.0.get();
    // SAFETY: aligned words of the descriptor; several registrations write the same values.
    unsafe {
        (&raw mut (*d).tags).write_volatile(alloc_tag::runtime::tags_address());
        (&raw mut (*d).tag_count_at).write_volatile(alloc_tag::runtime::tag_count_address());
        (&raw mut (*d).current_tag_offset).write_volatile(offset);
        (&raw mut (*d).loss_at[losses::NO_TAG_SPACE])
            .write_volatile(alloc_tag::runtime::lost_tags_address());
    }
}

/// Sets what can only be known at run time, as early as possible: other objects' constructors may look for it.
pub(super) fn fill_entry_points() {
    let d = DESCRIPTOR.0.get();
    // SAFETY: aligned words; whoever writes them writes the same.
    unsafe {
        (&raw mut (*d).register).write_volatile(register as *const () as u64);
        (&raw mut (*d).unregister).write_volatile(unregister as *const () as u64);
    }
}

/// Publishes a manager that has been set up. The set-up lock is held.
pub(super) fn fill(depth: u32, mode: u32, on: bool, trace: bool) {
    fill_entry_points();
    fill_sites();
    let d = DESCRIPTOR.0.get();
    let depot = alloc_tag::sites::depot();
    // What has no address here cannot happen in this runtime.
    let mut loss_at = [0; 8];
    loss_at[losses::TABLE_FULL] = alloc_tag::sites::TABLE_FULL.as_ptr() as u64;
    loss_at[losses::NO_STACK] = alloc_tag::sites::NO_STACK.as_ptr() as u64;
    loss_at[losses::FOREIGN_FREE] = MM.foreign_frees.as_ptr() as u64;
    // SAFETY: the set-up lock is held, and readers take the descriptor for empty until `ready` is set.
    unsafe {
        (*d).depth = depth;
        (*d).mode = mode;
        (*d).arena_base = MM.arena.base() as u64;
        (*d).committed_at = MM.arena.committed_at();
        (*d).units = MM.arena.hot_address() as u64;
        (*d).loss_at = loss_at;
        let [mapped, nodes] = depot.meta_bytes_at();
        let tags = alloc_tag::runtime::table_bytes_address();
        (*d).meta_bytes_at = [MM.arena.meta_bytes.as_ptr() as u64, mapped, nodes, tags];
        if mode & MODE_NEVER == 0 {
            (*d).trace = super::trace::TRACER.address();
            (*d).owner = super::owner::OWNER.address();
        }
        (*d).meta = super::meta::publish(mode & MODE_NEVER != 0);
        (*d).pools_at = MM.pools.head_at();
        set_pid();
        core::sync::atomic::fence(Ordering::Release);
        (&raw mut (*d).ready).write_volatile(1);
    }
    let trace = if trace { SWITCH_TRACE } else { 0 };
    switch().store(u32::from(on) | trace, Ordering::Relaxed);
}

/// Publishes the depot. The set-up lock is held, or this is the constructor.
pub(super) fn fill_sites() {
    let d = DESCRIPTOR.0.get();
    let depot = alloc_tag::sites::depot();
    // SAFETY: aligned words; `nodes` last: readers take 0 for "no nodes".
    unsafe {
        (&raw mut (*d).node_count_at).write_volatile(depot.node_count_at());
        (&raw mut (*d).modules).write_volatile(depot.modules_address() as u64);
        (&raw mut (*d).module_count_at).write_volatile(depot.module_count_at());
        core::sync::atomic::fence(Ordering::Release);
        (&raw mut (*d).nodes).write_volatile(depot.nodes_address() as u64);
    }
}

/// Writes the process's own number; again in a forked child.
pub(super) fn set_pid() {
    // SAFETY: no arguments; an aligned word of the descriptor.
    unsafe {
        let pid = super::sys::syscall(libc::SYS_getpid, [0; 6]) as u32;
        (&raw mut (*DESCRIPTOR.0.get()).pid).write_volatile(pid);
    }
}
