//! Finds and reads the ledger of a process, and turns its sites into source lines.
//!
//! The ledger lies in plain private memory of the process; a reader needs its cooperation for nothing. What this crate
//! does, in order:
//! 1. [`find`]: look at the ELF notes of every mapped object, as they are in memory, for `memledger` descriptors.
//! 2. [`Snapshot::read`]: read the unit table and the cells of all live memory, sum bytes and calls per index, then read
//!    the tags, nodes and module records that explain the indexes. Nothing is stopped or attached to.
//! 3. [`Symbolizer`]: turn return addresses into function, file and line with inlined frames, from DWARF, separate debug
//!    files or symbol tables.
//! 4. [`rows`]: charge each site to its first frame that is no allocator helper ([`Helpers`]), merge, and give [`Row`]s;
//!    [`report`] gives also the helpers without a name that were guessed ([`Wrapper`]).
//!
//! ```no_run
//! use memledger_inspect::{Helpers, MergeBy, Snapshot, Symbolizer, rows};
//! # fn main() -> Result<(), memledger_inspect::Error> {
//! let snapshot = Snapshot::read(1234)?;
//! let mut symbols = Symbolizer::new(Default::default());
//! for row in rows(&snapshot, &mut symbols, &Helpers::default(), MergeBy::Line) {
//!     println!("{:>12} {:>8} {}:{} {}", row.bytes, row.calls, row.file, row.line, row.func);
//! }
//! # Ok(()) }
//! ```
//!
//! [`control`] reads and writes the switch of a process; [`mod@preflight`] tells before a run whether a command can be
//! measured at all. All memory comes through the [`Memory`] trait, so that a core file ([`Snapshot::read_core`]) can stand in
//! for a process.
//! Everything read from a process is taken as untrusted: sizes are capped, addresses and strides are checked.
#![deny(unsafe_code)]

mod blocks;
pub mod control;
pub mod corefile;
mod decode;
mod demangle;
mod eh_frame;
mod error;
mod files;
pub mod find;
#[doc(hidden)]
pub mod fuzz;
mod guess;
mod helpers;
#[allow(unsafe_code)]
pub mod mem;
mod metadata;
mod namespace;
mod object_file;
mod owners;
pub mod preflight;
mod proc;
mod residency;
mod rows;
mod scan;
mod slabinfo;
mod smaps;
mod snapshot;
mod symbols;
pub mod trace;
mod view;

pub use blocks::{Blocks, MigrateType, ORDERS};
pub use corefile::{CoreInfo, CoreMemory};
pub use error::{DeniedReason, Error, NoLedgerReason, Result};
pub use guess::Wrapper;
pub use helpers::Helpers;
pub use mem::{Memory, ProcessMemory};
pub use namespace::proc_is_foreign;
pub use owners::{Block, HANDLE_EARLY, Handle, Owned, Owners};
pub use preflight::preflight;
pub use proc::{Mapping, Process};
pub use residency::{Arena, Others, Pin, Residency};
pub use rows::{MergeBy, Report, Row, RowKind, metadata, report, rows, sites, to_allocinfo};
pub use slabinfo::{PoolInfo, SlabSum, slabinfo};
pub use snapshot::{Ledger, ModuleInfo, NodeInfo, Snapshot, Sum, TagInfo};
pub use symbols::{Frame, FunctionAt, SymbolOptions, Symbolizer};
