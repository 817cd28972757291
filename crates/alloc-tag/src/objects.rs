//! The object files of the process, and the runtimes among them.
//!
//! `dl_iterate_phdr` walks the executable first and then the others in link order, allocates nothing, and works in a
//! constructor. A runtime is found by its note (see the `memledger-abi` crate); a note is believed only if note and
//! descriptor lie inside the mapped segments of the object that has it.

use core::ffi::{CStr, c_int, c_void};
use core::mem::{align_of, size_of};
use core::slice;

use libc::{Elf64_Phdr, PT_LOAD, PT_NOTE, dl_phdr_info};
use memledger_abi::{Descriptor, MAGIC, ModuleTags, NOTE_NAME, NOTE_TYPE, VERSION};

/// Most runtimes that are looked at; more than two are not expected.
const MOST: usize = 8;

type Register = unsafe extern "C" fn(*const ModuleTags) -> i64;
type Unregister = unsafe extern "C" fn(*const ModuleTags);

/// A runtime in this process.
#[derive(Clone, Copy)]
pub(crate) struct Runtime {
    pub(crate) descriptor: *const Descriptor,
}

/// Reads a field that its runtime may be changing.
macro_rules! field {
    ($runtime:expr, $name:ident) => {
        // SAFETY: `Runtime`s are only made for descriptors that are mapped, and runtimes are never unloaded.
        unsafe { (&raw const (*$runtime.descriptor).$name).read_volatile() }
    };
}

impl Runtime {
    pub(crate) fn register(&self, module: &ModuleTags) -> i64 {
        match field!(self, register) {
            0 => 0,
            // SAFETY: the layout says that this is the address of such a function.
            address => unsafe { core::mem::transmute::<usize, Register>(address as usize)(module) },
        }
    }

    pub(crate) fn unregister(&self, module: &ModuleTags) {
        match field!(self, unregister) {
            0 => {}
            // SAFETY: as in `register`.
            address => unsafe {
                core::mem::transmute::<usize, Unregister>(address as usize)(module)
            },
        }
    }

    /// Can register modules.
    pub(crate) fn usable(&self) -> bool {
        field!(self, register) != 0
    }

    /// Has decided which slot to use. (Not to be told from its table: the modules seen so far may have no tags.)
    pub(crate) fn active(&self) -> bool {
        self.slot() != 0
    }

    pub(crate) fn tags(&self) -> u64 {
        field!(self, tags)
    }

    pub(crate) fn tag_count_at(&self) -> u64 {
        field!(self, tag_count_at)
    }

    pub(crate) fn lost_tags_at(&self) -> u64 {
        field!(self, loss_at)[memledger_abi::loss::NO_TAG_SPACE]
    }

    pub(crate) fn slot(&self) -> i64 {
        field!(self, current_tag_offset)
    }
}

/// The runtimes of the process in link order; the executable's comes first.
pub(crate) struct Runtimes {
    found: [Option<Runtime>; MOST],
    /// Position of the one in the same object as the address given to [`runtimes`].
    own: Option<usize>,
    address: usize,
}

impl Runtimes {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Runtime> + '_ {
        self.found.iter().map_while(|runtime| *runtime)
    }

    pub(crate) fn is_own(&self, position: usize) -> bool {
        self.own == Some(position)
    }
}

/// Looks for runtimes; `address` is inside the caller's own object.
pub(crate) fn runtimes(address: usize) -> Runtimes {
    let mut all = Runtimes {
        found: [None; MOST],
        own: None,
        address,
    };
    each_object(&mut |object| {
        let Some(descriptor) = object.descriptor() else {
            return false;
        };
        let Some(position) = all.found.iter().position(Option::is_none) else {
            return true;
        };
        all.found[position] = Some(Runtime { descriptor });
        if object.contains(all.address, 1) {
            all.own = Some(position);
        }
        false
    });
    all
}

/// Calls `use_name` with the path of the object around an address, as the loader has it: empty for the executable.
pub(crate) fn with_path<R>(address: usize, use_name: impl FnOnce(&[u8]) -> R) -> R {
    let mut use_name = Some(use_name);
    let mut result = None;
    each_object(&mut |object| {
        if !object.contains(address, 1) {
            return false;
        }
        result = use_name.take().map(|f| f(object.path()));
        true
    });
    match (result, use_name) {
        (Some(result), _) => result,
        (None, Some(f)) => f(b"?"),
        (None, None) => unreachable!("use_name is taken only to make the result"),
    }
}

/// One loaded object file, valid during the callback.
struct Object<'a> {
    info: &'a dl_phdr_info,
    segments: &'a [Elf64_Phdr],
}

impl Object<'_> {
    fn path(&self) -> &[u8] {
        if self.info.dlpi_name.is_null() {
            return b"";
        }
        // SAFETY: the loader's name is a C string that lives as long as the object.
        unsafe { CStr::from_ptr(self.info.dlpi_name) }.to_bytes()
    }

    /// Whether the bytes are inside one mapped segment.
    fn contains(&self, address: usize, bytes: usize) -> bool {
        self.segments
            .iter()
            .filter(|s| s.p_type == PT_LOAD)
            .any(|s| {
                let start = (self.info.dlpi_addr as usize).wrapping_add(s.p_vaddr as usize);
                let offset = address.wrapping_sub(start);
                offset < s.p_memsz as usize && bytes <= s.p_memsz as usize - offset
            })
    }

    fn descriptor(&self) -> Option<*const Descriptor> {
        self.segments
            .iter()
            .filter(|s| s.p_type == PT_NOTE)
            .find_map(|s| {
                let start = (self.info.dlpi_addr as usize).wrapping_add(s.p_vaddr as usize);
                if !self.contains(start, s.p_filesz as usize) {
                    return None;
                }
                // SAFETY: the bytes are inside a mapped segment; segments with notes are readable and constant.
                let notes =
                    unsafe { slice::from_raw_parts(start as *const u8, s.p_filesz as usize) };
                let at = note_position(notes, if s.p_align == 8 { 8 } else { 4 })?;
                let distance = i64::from_ne_bytes(notes.get(at..at + 8)?.try_into().ok()?);
                self.check((start + at).wrapping_add_signed(distance as isize))
            })
    }

    fn check(&self, address: usize) -> Option<*const Descriptor> {
        let fits = self.contains(address, size_of::<Descriptor>());
        if !fits || !address.is_multiple_of(align_of::<Descriptor>()) {
            return None;
        }
        let runtime = Runtime {
            descriptor: address as *const Descriptor,
        };
        let known = field!(runtime, magic) == MAGIC && field!(runtime, version) == VERSION;
        (known && field!(runtime, size) as usize >= size_of::<Descriptor>())
            .then_some(runtime.descriptor)
    }
}

/// Position of the 8 descriptor bytes of memledger's note.
fn note_position(notes: &[u8], align: usize) -> Option<usize> {
    let word = |at: usize| {
        Some(u32::from_ne_bytes(
            notes.get(at..at.checked_add(4)?)?.try_into().ok()?,
        ))
    };
    let mut at = 0;
    loop {
        let (name_size, bytes, kind) = (word(at)? as usize, word(at + 4)? as usize, word(at + 8)?);
        let name = notes.get(at + 12..at + 12 + name_size)?;
        let start = (at + 12 + name_size).next_multiple_of(align);
        if kind == NOTE_TYPE && bytes == 8 && name.strip_suffix(b"\0") == Some(NOTE_NAME.as_bytes())
        {
            return Some(start);
        }
        at = (start + bytes).next_multiple_of(align);
    }
}

/// Calls `f` for each object until it returns true.
fn each_object(f: &mut dyn FnMut(&Object) -> bool) {
    let mut f = f;
    // SAFETY: `call` casts the pointer back to what it is made of here; it is used only during the call.
    unsafe { libc::dl_iterate_phdr(Some(call), (&raw mut f).cast()) };
}

unsafe extern "C" fn call(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the `f` of `each_object`; the loader passes a valid record whose program headers are mapped.
    unsafe {
        let f = &mut *data.cast::<&mut dyn FnMut(&Object) -> bool>();
        let info = &*info;
        let segments = match info.dlpi_phdr.is_null() {
            true => &[][..],
            false => slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize),
        };
        c_int::from(f(&Object { info, segments }))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn note(name: &[u8], kind: u32, bytes: &[u8], align: usize) -> Vec<u8> {
        let mut note = Vec::new();
        note.extend((name.len() as u32).to_ne_bytes());
        note.extend((bytes.len() as u32).to_ne_bytes());
        note.extend(kind.to_ne_bytes());
        note.extend(name);
        note.resize(note.len().next_multiple_of(align), 0);
        note.extend(bytes);
        note.resize(note.len().next_multiple_of(align), 0);
        note
    }

    #[test]
    fn finds_its_note_among_others_and_bounds_every_read() {
        for align in [4, 8] {
            let other = note(b"GNU\0", 3, &[1; 20], align);
            let ours = note(b"memledger\0", 1, &[7; 8], align);
            let all = [other.clone(), ours.clone()].concat();
            let at = note_position(&all, align).unwrap();
            assert_eq!(&all[at..at + 8], &[7; 8]);
            for cut in 0..all.len() {
                let at = note_position(&all[..cut], align);
                assert!(at.is_none_or(|at| at >= other.len()));
            }
            assert_eq!(note_position(&other, align), None);
            assert_eq!(
                note_position(&note(b"memledger\0", 2, &[7; 8], align), align),
                None
            );
            assert_eq!(
                note_position(&note(b"memledger\0", 1, &[7; 4], align), align),
                None
            );
            assert_eq!(
                note_position(&note(b"memledgers", 1, &[7; 8], align), align),
                None
            );
        }
        let huge = [0xff_u8; 24];
        assert_eq!(note_position(&huge, 4), None);
    }

    #[test]
    fn the_executable_has_no_name_and_libc_has_one() {
        assert_eq!(
            with_path(note_position as *const () as usize, |p| p.len()),
            0
        );
        let libc = with_path(libc::getpid as *const () as usize, <[u8]>::to_vec);
        assert!(
            std::string::String::from_utf8(libc)
                .unwrap()
                .contains("libc")
        );
        assert_eq!(with_path(1, <[u8]>::to_vec), b"?");
    }
}
