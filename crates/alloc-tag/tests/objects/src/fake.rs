//! The smallest runtime: it publishes a descriptor with a note, registers modules, and looks at the current tag.

use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use alloc_tag::runtime;
use memledger_abi::{Descriptor, MAGIC, ModuleTags, TagRow, VERSION, loss};

const BEFORE: usize = offset_of!(Descriptor, register) / 8;
const AFTER: usize = size_of::<Descriptor>() / 8 - BEFORE - 2;

/// `memledger_abi::Descriptor` with its functions as pointers, which a constant can hold, and the rest as words.
#[repr(C)]
pub struct Published {
    before: [AtomicU64; BEFORE],
    register: AtomicPtr<()>,
    unregister: AtomicPtr<()>,
    after: [AtomicU64; AFTER],
}

pub static DESCRIPTOR: Published = Published {
    before: before(),
    register: AtomicPtr::new(if LATE { null_mut() } else { register as *mut () }),
    unregister: AtomicPtr::new(if LATE { null_mut() } else { unregister as *mut () }),
    after: [const { AtomicU64::new(0) }; AFTER],
};

/// Whether the functions are published only by a constructor.
const LATE: bool = cfg!(feature = "by_constructor");

/// The constructor. Placed by `fake_note`, so that object files without a runtime do not keep this code.
pub extern "C" fn publish() {
    DESCRIPTOR.register.store(register as *mut (), Ordering::Release);
    DESCRIPTOR.unregister.store(unregister as *mut (), Ordering::Release);
}

const fn before() -> [AtomicU64; BEFORE] {
    let mut words = [const { AtomicU64::new(0) }; BEFORE];
    words[0] = AtomicU64::new(MAGIC);
    words[1] = AtomicU64::new(VERSION as u64 | (size_of::<Descriptor>() as u64) << 32);
    words[offset_of!(Descriptor, tag_stride) / 8] = AtomicU64::new(size_of::<TagRow>() as u64);
    words
}

/// A word of the descriptor by its offset.
fn word(offset: usize) -> &'static AtomicU64 {
    match offset / 8 {
        i if i < BEFORE => &DESCRIPTOR.before[i],
        i => &DESCRIPTOR.after[i - BEFORE - 2],
    }
}

unsafe extern "C" fn register(module: *const ModuleTags) -> i64 {
    // SAFETY: the caller's promise.
    let offset = unsafe { runtime::register_module(&*module) };
    word(offset_of!(Descriptor, tags)).store(runtime::tags_address(), Ordering::Release);
    word(offset_of!(Descriptor, tag_count_at)).store(runtime::tag_count_address(), Ordering::Release);
    word(offset_of!(Descriptor, loss_at) + 8 * loss::NO_TAG_SPACE).store(runtime::lost_tags_address(), Ordering::Release);
    word(offset_of!(Descriptor, current_tag_offset)).store(offset as u64, Ordering::Release);
    offset
}

unsafe extern "C" fn unregister(module: *const ModuleTags) {
    // SAFETY: the caller's promise.
    unsafe { runtime::unregister_module(&*module) }
}

/// Puts the note and the constructor into the object file that uses this macro. Argument: the path of this module.
#[macro_export]
macro_rules! fake_note {
    ($($fake:ident)::+) => {
        #[used]
        #[unsafe(link_section = ".init_array.00100")]
        static PUBLISH: extern "C" fn() = $($fake)::+::publish;
        core::arch::global_asm!(
            ".pushsection .note.memledger, \"a\", @note",
            ".p2align 2",
            ".long 10, 8, 1",
            ".asciz \"memledger\"",
            ".zero 2",
            "77: .quad {descriptor} - 77b",
            ".popsection",
            descriptor = sym $($fake)::+::DESCRIPTOR,
        );
    };
}

/// What a runtime says of itself: the current tag it sees, its table, how many rows, and whether it is the primary.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub current: u32,
    pub count: u32,
    pub tags: u64,
    pub primary: bool,
}

pub fn seen() -> Seen {
    Seen {
        current: alloc_tag::current(),
        count: runtime::tag_count(),
        tags: word(offset_of!(Descriptor, tags)).load(Ordering::Acquire),
        primary: runtime::is_primary(),
    }
}
