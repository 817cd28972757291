//! What a copy of this crate does for its own object file: registers its tags with the runtimes of the process when the
//! object is loaded, and takes leave when it is unloaded.

use codetag::TagRange;
use memledger_abi::ModuleTags;

use crate::objects::{runtimes, with_path};
use crate::{caller, slot};

codetag::tag_section!(
    /// The tags of the object file that this copy is linked into.
    pub(crate) fn own_tags() in "alloc_tags", "__start_alloc_tags", "__stop_alloc_tags"
);

// After the runtime's own constructors, before those of the program. `.fini_array` runs in the opposite order.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static LOADED: extern "C" fn() = loaded;
#[used]
#[unsafe(link_section = ".fini_array.00101")]
static UNLOADED: extern "C" fn() = unloaded;

extern "C" fn loaded() {
    register_self();
}

extern "C" fn unloaded() {
    let module = own_module();
    // The executable is never unloaded: it is the process that ends, and who reports then should still see it.
    if !with_path(module.anchor as usize, <[u8]>::is_empty) {
        let all = runtimes(module.anchor as usize);
        let unregister = |range: &ModuleTags| all.iter().for_each(|r| r.unregister(range));
        unregister(&module);
        caller::each_range(unregister);
    }
}

/// Registers tags made at run time with all runtimes, or in the table of [`crate::runtime::start_local`].
pub(crate) fn register_range(range: &ModuleTags) {
    let mut registered = false;
    for runtime in runtimes(range.anchor as usize).iter() {
        registered |= runtime.register(range) != 0;
    }
    if !registered {
        crate::runtime::register_if_local(range);
    }
}

/// What is told to a runtime of this object file.
pub(crate) fn own_module() -> ModuleTags {
    let tags: TagRange = own_tags();
    ModuleTags {
        start: tags.start() as u64,
        stop: tags.stop() as u64,
        anchor: tags.start() as u64,
        current_tag_offset: 0,
    }
}

/// Registers the tags of this object file with the runtimes of the process, and takes over the slot. Done by a
/// constructor; to be called again only where a runtime becomes usable later than that (it does no harm).
/// Returns whether there is a slot now.
pub fn register_self() -> bool {
    let module = own_module();
    let mut first = 0;
    for runtime in runtimes(module.anchor as usize).iter() {
        let offset = runtime.register(&module);
        if first == 0 {
            first = offset;
        }
    }
    if first != 0 {
        slot::adopt(first);
    }
    slot::offset() != 0
}

/// Whether the copies of this crate in the process agree on the current-tag slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Nobody takes tags: there is no runtime, or it is switched off for good. Hooks do nothing.
    NoRuntime,
    /// All runtimes read the slot that the hooks of this object file write.
    Shared,
    /// Some runtime does not see the tags of this object file.
    Split,
}

/// Compares the slot of this object file with those that the runtimes of the process have published.
pub fn slot_state() -> SlotState {
    let own = slot::offset();
    let found = runtimes(own_tags().start() as usize);
    let mut slots = found.iter().map(|runtime| runtime.slot());
    match own {
        0 if slots.all(|slot| slot == 0) => SlotState::NoRuntime,
        0 => SlotState::Split,
        _ if slots.all(|slot| slot == own) => SlotState::Shared,
        _ => SlotState::Split,
    }
}

/// Whether tags set in this object file reach all runtimes of the process, of which there is at least one.
pub fn slot_is_shared() -> bool {
    slot_state() == SlotState::Shared
}
