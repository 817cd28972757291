//! Code tags used for memory allocations: the current tag, hooks, sites and the index space.
//!
//! A tag says which line an allocation is charged to. [`alloc_hooks!`] makes a tag for its place and evaluates an
//! expression with it as the *current tag* of the thread; an allocator that knows this crate charges what is allocated
//! meanwhile to it. This is the kernel's `alloc_hooks()`, with the index of the tag in place of a pointer, so that what is
//! stored with an object stays valid when the tag's module is unloaded.
//!
//! # Sides
//! * *Users* (programs, libraries, plugins) use the macros. They work, and do nothing, without a runtime.
//! * A *runtime* is an allocator that keeps a ledger and publishes a [`memledger_abi::Descriptor`] with an ELF note. It uses
//!   [`runtime`], [`current`], [`sites`] and [`Settings`].
//!
//! # Whom to charge
//! [`alloc_hooks!`] charges the line it stands in. Functions that allocate for their callers come in two forms, `foo_noprof`
//! and `foo!` ([`alloc_hooks_macro!`]), or charge by `#[track_caller]` ([`charge_caller`]). What allocates later keeps a
//! [`SavedTag`]: [`Tagged`] values, [`TaggedFuture`]s, closures for other threads ([`inherit_tag`]). The innermost of all wins.
//!
//! # One slot
//! Each object file (executable, plugin, preloaded library) has its own copy of this crate, but they must share one
//! current-tag slot a thread, or tags get lost without a sign. The slot is 8 bytes of initial-exec TLS in the object of the
//! runtime; every copy reaches it as `fs:[offset]`, the offset being a variable of the copy. The constructor of each copy
//! looks for runtimes (by their notes), registers its tags with each and keeps the offset that the first returns. Only
//! runtimes use a slot of their own, so a plugin needs no static TLS, of which a process has little to give.
//!
//! When there is more than one runtime (a program linked with one, and another preloaded), the first in link order,
//! which is the executable's, is the *primary*; the others pass registrations on to it and use its slot and its
//! table. A runtime that is active stays primary when others come later. [`slot_state`] checks the result.
//! A runtime must never be unloaded (link it with `-z nodelete` if it can be the object of a `dlopen`).
//!
//! # Limits
//! * A static archive used from C: link it with `--whole-archive`, or its tags and constructor are left out.
//! * A tag in an object file without its own copy of this crate (Rust `dylib`s with `-C prefer-dynamic`) is not registered;
//!   its hooks change nothing.
//! * Copies in another `dlmopen` namespace find no runtime.
//! * Do not hold a hook over an `.await`: the [`Guard`] is not `Send`, so most executors refuse it at compile time. Use
//!   [`AllocTagged`].
//!
//! ```
//! use alloc_tag::{alloc_hooks, alloc_hooks_tag, alloc_tag, current, tag_row};
//!
//! // Without a runtime in the process, act as one (tests and examples).
//! assert!(alloc_tag::runtime::start_local());
//!
//! fn load(text: &str) -> Result<Vec<u8>, std::num::ParseIntError> {
//!     // Everything that this allocates is charged to this line; `?` works as usual.
//!     alloc_hooks!({
//!         let n: u8 = text.parse()?;
//!         assert_eq!(tag_row(current()).unwrap().line(), line!() - 2);
//!         Ok(vec![n; 10])
//!     })
//! }
//! assert!(load("7").is_ok() && load("x").is_err());
//! assert_eq!(current(), 0);
//!
//! // A tag kept by the caller: a container charges to whoever made it.
//! let tag = alloc_tag!();
//! let index = alloc_hooks_tag!(tag, current());
//! assert_eq!(index, tag.index());
//! ```
#![no_std]
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[doc(hidden)]
pub use codetag as __codetag;

#[path = "arch/x86_64.rs"]
mod arch;
mod caller;
mod future;
mod module;
mod objects;
pub mod runtime;
mod saved;
mod settings;
pub mod sites;
mod slot;
mod wrapper;

pub use caller::{PLACES, charge_caller, enter_caller, lost_callers};
pub use codetag::CodeTag;
pub use future::{AllocTagged, TaggedFuture};
pub use module::{SlotState, register_self, slot_is_shared, slot_state};
pub use runtime::tag_row;
pub use saved::{SavedTag, Tagged, TaggedMut, inherit_tag};
pub use settings::{MAX_DEPTH, Mode, Settings, SettingsError};
pub use slot::{Guard, current, enter, enter_index, set_current};

/// A static tag for this place; the value is a `&'static` [`CodeTag`].
#[macro_export]
macro_rules! alloc_tag {
    () => {
        $crate::__codetag::code_tag!("alloc_tags")
    };
}

/// The handle of a tag of this place, to be used later: a [`SavedTag`].
#[macro_export]
macro_rules! alloc_tag_record {
    () => {
        $crate::SavedTag::of($crate::alloc_tag!())
    };
}

/// Evaluates an expression with a tag of this place as the current tag, and gives its value.
///
/// The tag that was current before is restored when the expression is done, left early (`?`, `return`, `break`) or panics.
/// An inner hook wins over an outer one. While the module is not registered, nothing is changed.
#[macro_export]
macro_rules! alloc_hooks {
    ($expr:expr $(,)?) => {
        $crate::alloc_hooks_tag!($crate::alloc_tag!(), $expr)
    };
}

/// As [`alloc_hooks!`], with the given `&CodeTag`.
#[macro_export]
macro_rules! alloc_hooks_tag {
    ($tag:expr, $expr:expr $(,)?) => {{
        let __guard = $crate::enter($tag);
        $expr
    }};
}
