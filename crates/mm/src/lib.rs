//! The memory manager whose ledger is the account.
//!
//! A general-purpose allocator in which every live object has an *index* (who allocated it, see `memledger_abi`) stored
//! out of line, in a cell that belongs to its slot. An allocation stores the index, a free clears it, and reading the
//! account is a scan of the cells: nothing is counted on the hot path.
//!
//! # Glossary
//! * **unit**: 64 KiB of the arena; has a 64-byte hot record ([`unit::Unit`], the published `UnitMeta`) and a cold one.
//! * **run**: consecutive units used for one thing: a slab, a large object, own metadata.
//! * **slab**: a run cut into equal slots of one size class, with its cells and its bitmap of free slots at its end.
//! * **cell**: 4 bytes, the index of a slot; 0 = free. *Cached* slots (on a stack) have a zero cell, too.
//! * **entry**: (slot address, cell address), what a thread's stacks hold.
//! * **heap**: one thread's stacks, one for each class. **central**: what the threads share, one for each class.
//!
//! # Layers
//! `class` < `lock` < `unit` < `arena` < `slab` < `central` < `heap` < `large`, `bump` < `manager`, `lifecycle` < `ledger` < `linux`.
//! Everything up to `ledger` is generic over [`Platform`]; `linux` is the one instance of a process.
//!
//! # Locks
//! One a class, one for the arena, one for the list of heaps; taken in that order, never while memory of the program is
//! touched. A signal handler that allocates while its thread is inside the manager never waits for that thread: it uses its
//! second heap, then the bump region (see [`manager`]).
#![no_std]

#[cfg(test)]
extern crate std;

pub mod arena;
pub mod bump;
pub mod central;
pub mod class;
pub mod heap;
pub mod large;
pub mod ledger;
mod lifecycle;
#[cfg(not(all(test, shuttle)))]
pub mod linux;
pub mod lock;
pub mod manager;
#[cfg(all(test, shuttle))]
mod model;
pub mod platform;
pub mod pool;
pub mod slab;
mod sync;
pub mod unit;

pub use manager::Manager;
pub use platform::Platform;
