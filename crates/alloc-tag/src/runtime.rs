//! The runtime's side: the process-wide table of tags.
//!
//! The table is kept by the *primary* runtime (see the crate's page). Which one that is, is decided at the first
//! registration: a runtime that is active already, else the first in link order. Both are the same from whichever
//! runtime one looks, so all decide alike; an active runtime never changes its mind, so there are no cycles.
//!
//! A runtime's [`memledger_abi::Descriptor`] must have `magic`, `version`, `size`, `register` and `unregister` set statically
//! or by the earliest constructor, because the constructors of other objects may call `register` first. After each
//! registration it must publish the slot that [`register_module`] returned (which marks it as active), [`tags_address`],
//! [`tag_count_address`] and [`lost_tags_address`].

use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use codetag::{Client, Module, Registry, Row, TagRange};
use memledger_abi::{Descriptor, FIRST_TAG, ModuleTags, TagRow};

pub use crate::caller::is_caller_row;
use crate::objects::{Runtime, runtimes, with_path};
use crate::{arch, module, slot};

/// Most tags of a process.
pub const TAG_CAPACITY: u32 = 65_536;

// SAFETY: `map` gives fresh anonymous pages that are never unmapped.
static REGISTRY: Registry = unsafe {
    Registry::new(Client {
        first_index: FIRST_TAG,
        capacity: TAG_CAPACITY,
        wait: yield_now,
        ..Client::new(map)
    })
};

// Readers outside know the rows as `TagRow`.
const _: () = {
    assert!(
        size_of::<Row>() == size_of::<TagRow>() && codetag::ROW_LOADED == memledger_abi::TAG_LOADED
    );
    assert!(FIRST_TAG + TAG_CAPACITY <= memledger_abi::SITE_BASE);
};

/// The primary: null = not decided, `self_mark()` = this one.
static PRIMARY: AtomicPtr<Descriptor> = AtomicPtr::new(null_mut());

fn self_mark() -> *mut Descriptor {
    (&raw const PRIMARY).cast_mut().cast()
}

fn yield_now() {
    // SAFETY: no preconditions.
    unsafe { libc::sched_yield() };
}

/// Zeroed pages, committed on first use. `errno` is kept: constructors and `dlopen` are no place to change it.
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping; `errno` is the calling thread's.
    let address = unsafe {
        let errno = *libc::__errno_location();
        let address = libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        *libc::__errno_location() = errno;
        address
    };
    if address == libc::MAP_FAILED {
        None
    } else {
        NonNull::new(address.cast())
    }
}

/// The primary if it is another runtime.
fn other_primary() -> Option<Runtime> {
    let known = PRIMARY.load(Ordering::Acquire);
    if known.is_null() || known == self_mark() {
        None
    } else {
        Some(Runtime { descriptor: known })
    }
}

/// Decides, once, who keeps the table.
fn decide() -> Option<Runtime> {
    if !PRIMARY.load(Ordering::Acquire).is_null() {
        return other_primary();
    }
    let all = runtimes(module::own_tags().start() as usize);
    let usable = || {
        all.iter()
            .enumerate()
            .filter(|(i, runtime)| runtime.usable() || all.is_own(*i))
    };
    let active = usable().find(|(i, runtime)| runtime.active() && !all.is_own(*i));
    let primary = match active.or_else(|| usable().next()) {
        Some((i, runtime)) if !all.is_own(i) => runtime.descriptor.cast_mut(),
        _ => self_mark(),
    };
    let _ = PRIMARY.compare_exchange(null_mut(), primary, Ordering::AcqRel, Ordering::Acquire);
    other_primary()
}

/// Registers a module's tags: what [`Descriptor::register`] does. Returns the distance from the thread pointer to the
/// current-tag slot that the module has to use. Registering twice does no harm. Takes a lock and maps memory: not to be
/// called from inside the allocator.
///
/// # Safety
/// `module` must describe an array of `CodeTag`s that stays mapped until [`unregister_module`].
pub unsafe fn register_module(module: &ModuleTags) -> i64 {
    let offset = match decide() {
        Some(primary) => primary.register(module),
        None => {
            // SAFETY: by the contract.
            unsafe { register_here(module) };
            arch::own_slot()
        }
    };
    if offset != 0 {
        slot::adopt(offset);
    }
    offset
}

/// # Safety
/// As [`register_module`].
unsafe fn register_here(module: &ModuleTags) {
    // SAFETY: by the contract.
    let tags = unsafe { range(module) };
    with_path(module.anchor as usize, |path| {
        // SAFETY: by the contract.
        unsafe {
            REGISTRY.register(Module {
                tags,
                name: module_name(path),
            })
        }
    });
}

/// # Safety
/// As [`register_module`].
unsafe fn range(module: &ModuleTags) -> TagRange {
    // SAFETY: by the contract.
    unsafe { TagRange::new(module.start as *const _, module.stop as *const _) }
}

/// Numbers of a registered module's tags, if this runtime keeps the table and has rows for them.
///
/// # Safety
/// As [`register_module`].
pub unsafe fn module_indexes(module: &ModuleTags) -> Option<core::ops::Range<u32>> {
    // SAFETY: by the contract.
    let tags = unsafe { range(module) };
    let mut indexes = tags.tags().map(codetag::CodeTag::index).filter(|&i| i != 0);
    let first = indexes.next()?;
    tag_row(first)?;
    // They follow each other; those without a number come last.
    Some(first..first + 1 + indexes.count() as u32)
}

/// The module goes away; its rows stay. What [`Descriptor::unregister`] does.
///
/// # Safety
/// As [`register_module`].
pub unsafe fn unregister_module(module: &ModuleTags) {
    match other_primary() {
        Some(primary) => primary.unregister(module),
        // SAFETY: by the contract.
        None => REGISTRY.unregister(&unsafe { range(module) }),
    }
}

/// To be called in the child after `fork`.
///
/// # Safety
/// The process has one thread, and that is not inside [`register_module`] or [`unregister_module`].
pub unsafe fn after_fork() {
    // SAFETY: by the contract.
    unsafe { REGISTRY.after_fork() };
}

/// Registers the tags of this object file in a table and a slot of its own, for programs without a runtime: tests,
/// examples, allocators that publish nothing. Returns false if the slot of a runtime is in use.
pub fn start_local() -> bool {
    if other_primary().is_some() || !(slot::offset() == 0 || slot::offset() == arch::own_slot()) {
        return false;
    }
    // SAFETY: these are the tags of this object file.
    unsafe { register_here(&module::own_module()) };
    LOCAL.store(register_local as *mut (), Ordering::Release);
    slot::adopt(arch::own_slot())
}

/// Set by [`start_local`]. A pointer, so that objects that never call that have no use for a slot of their own.
static LOCAL: AtomicPtr<()> = AtomicPtr::new(null_mut());

fn register_local(range: &ModuleTags) {
    // SAFETY: tags of this object file, made for ever.
    unsafe { register_here(range) };
}

/// Registers tags of this object file in the table of [`start_local`], if that was called.
pub(crate) fn register_if_local(range: &ModuleTags) {
    let register = LOCAL.load(Ordering::Acquire);
    if !register.is_null() {
        // SAFETY: `start_local` stored a function of this type.
        unsafe { core::mem::transmute::<*mut (), fn(&ModuleTags)>(register)(range) };
    }
}

/// Address of the first [`TagRow`]; 0 before the first registration. For [`Descriptor::tags`].
pub fn tags_address() -> u64 {
    match other_primary() {
        Some(primary) => primary.tags(),
        None => REGISTRY.table_address() as u64,
    }
}

/// Address of the count of tags registered, a `u32`. For [`Descriptor::tag_count_at`].
pub fn tag_count_address() -> u64 {
    match other_primary() {
        Some(primary) => primary.tag_count_at(),
        None => &raw const *REGISTRY.counts().0 as u64,
    }
}

/// Address of the count of tags that got no row, a `u64`. For [`memledger_abi::loss::NO_TAG_SPACE`].
pub fn lost_tags_address() -> u64 {
    match other_primary() {
        Some(primary) => primary.lost_tags_at(),
        None => &raw const *REGISTRY.counts().1 as u64,
    }
}

/// Address of the count of bytes that this runtime's table uses, a `u64`. For [`Descriptor::meta_bytes_at`].
pub fn table_bytes_address() -> u64 {
    &raw const *REGISTRY.counts().2 as u64
}

/// Tags registered.
pub fn tag_count() -> u32 {
    match tag_count_address() {
        0 => 0,
        // SAFETY: the address of a count that a runtime keeps; runtimes are never unloaded.
        address => unsafe { (address as *const u32).read_volatile() },
    }
}

/// Tags that got no row.
pub fn lost_tags() -> u64 {
    match lost_tags_address() {
        0 => 0,
        // SAFETY: as in `tag_count`.
        address => unsafe { (address as *const u64).read_volatile() },
    }
}

/// Whether this runtime keeps the table; false before the first registration, and where another runtime does.
pub fn is_primary() -> bool {
    PRIMARY.load(Ordering::Acquire) == self_mark()
}

/// The row of a tag's index, if this object file keeps the table.
pub fn tag_row(index: u32) -> Option<&'static Row> {
    REGISTRY.row(index)
}

/// What is shown of an object's path: the file's name without directory and without `.so` and what follows it.
pub fn module_name(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    let end = (1..name.len()).find(|&i| {
        name[i..]
            .strip_prefix(b".so")
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
    });
    &name[..end.unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_find_the_rows_by_address() {
        assert!(start_local());
        let index = crate::alloc_hooks!(crate::current());
        let line = line!() - 1;
        assert!(index >= FIRST_TAG && index < FIRST_TAG + tag_count());
        assert_eq!((lost_tags(), is_primary()), (0, false));
        // SAFETY: the table has that many rows of this layout.
        let row = unsafe { &*(tags_address() as *const TagRow).add((index - FIRST_TAG) as usize) };
        // SAFETY: addresses and lengths of strings that are never freed.
        let text =
            |start, len| unsafe { core::slice::from_raw_parts(start as *const u8, len as usize) };
        assert_eq!(text(row.file, row.file_len), file!().as_bytes());
        assert_eq!(text(row.path, row.path_len), module_path!().as_bytes());
        assert!(text(row.func, row.func_len).ends_with(b"readers_find_the_rows_by_address"));
        assert_eq!(
            (row.line, row.module_len, row.flags),
            (line, 0, memledger_abi::TAG_LOADED)
        );
        assert!(row.column > 8);
    }

    #[test]
    fn module_names() {
        let cases: [(&[u8], &[u8]); 9] = [
            (b"", b""),
            (b"/usr/lib/libssl.so.3", b"libssl"),
            (b"libc.so.6", b"libc"),
            (b"./plugin.so", b"plugin"),
            (b"/x/libstdc++.so.6.0.30", b"libstdc++"),
            (b"/x/lib.source.so.1", b"lib.source"),
            (b"/x.so/prog", b"prog"),
            (b"/x/.so", b".so"),
            (b"linux-vdso.so.1", b"linux-vdso"),
        ];
        for (path, name) in cases {
            assert_eq!(module_name(path), name);
        }
    }
}
