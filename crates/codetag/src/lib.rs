//! Static source-location tags in a linker section, and a registry of the modules that bring them.
//!
//! A *tag* is a [`CodeTag`]: a static that names one place in the source. [`code_tag!`] puts it in a linker section whose
//! name the *client* of this crate chooses, so that the linker gathers the tags of all crates of an object file in one
//! array, bounded by `__start_SECTION` and `__stop_SECTION`. Nothing runs for a tag that is never used, and a tag in code
//! that is never called is kept as well. Generic and inlined functions share one tag among all their instances.
//!
//! A *module* is an object file (the executable or a shared object) with its array of tags. The client's [`Registry`]
//! gives the tags of each module consecutive numbers, writes them to [`CodeTag::index`], and keeps a [`Row`] for each
//! number with copies of the strings. Rows never move and outlive their module, so a number that was stored somewhere
//! stays meaningful after `dlclose`. A module that comes again with the same tags gets its old rows back.
//!
//! The crate knows nothing of what the tags are used for, takes all memory from the client, and needs no `std`.
//!
//! ```
//! use codetag::{CodeTag, Client, Module, Registry, TagRange};
//! use core::{alloc::Layout, ptr::NonNull};
//!
//! // The client: a section, a source of memory, a registry.
//! macro_rules! mark {
//!     () => {
//!         codetag::code_tag!("doc_marks")
//!     };
//! }
//! codetag::tag_section!(fn doc_marks() in "doc_marks", "__start_doc_marks", "__stop_doc_marks");
//! fn memory(bytes: usize) -> Option<NonNull<u8>> {
//!     let layout = Layout::from_size_align(bytes, 64).ok()?;
//!     // SAFETY: `Registry` never asks for 0 bytes. Never freed, so it is stable.
//!     NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
//! }
//! // SAFETY: `memory` is as `Client::memory` demands.
//! static REGISTRY: Registry =
//!     unsafe { Registry::new(Client { first_index: 1, capacity: 100, ..Client::new(memory) }) };
//!
//! fn place() -> &'static CodeTag {
//!     mark!()
//! }
//!
//! fn main() {
//!     let tags: TagRange = doc_marks();
//!     // SAFETY: the tags of this executable, which is never unloaded.
//!     let done = unsafe { REGISTRY.register(Module { tags, name: b"" }) };
//!     assert_eq!(done.added, 1);
//!     let row = REGISTRY.row(place().index()).unwrap();
//!     assert_eq!(row.file(), file!());
//!     assert!(row.func().ends_with("place"));
//! }
//! ```
#![no_std]

mod arena;
mod lock;
mod registry;
mod row;
mod tag;

pub use registry::{Client, Module, Registered, Registry};
pub use row::{ROW_LOADED, Row, RowText};
pub use tag::{ANCHOR, CodeTag, FOREIGN, TagRange, function_name};
