//! Capture and deduplication of call stacks in one walk: the context trie.
//!
//! A stack becomes one number. A node of the trie stands for "this return address, reached from these inner frames";
//! it keeps the unwind rule of its return address, so one walk unwinds, hashes and looks up, at a few nanoseconds a
//! frame, with or without frame pointers. It is made to run inside `malloc`: it does not allocate, block, fault,
//! panic or touch
//! `errno`, and a signal handler may interrupt it anywhere and walk itself.
//!
//! | file | idea |
//! | --- | --- |
//! | `node` | a node and its inline child |
//! | `table`, `trie` | hash table, insertion, growth without locks |
//! | `store` | the array of nodes |
//! | `rule`, `cfi`, `eh`, `cache` | unwind rules: applied, read from `.eh_frame` (`eh`: the usual case), kept |
//! | `bounds` | which memory is this thread's stack |
//! | `modules`, `unload` | object files, `dlclose` |
//! | `walk`, `paths` | the walk; whole walks that a thread has made before |
//! | `platform`, `linux` | the system |
//!
//! ```
//! use stackdepot::{Depot, StackBounds};
//! static DEPOT: Depot = Depot::new();
//! DEPOT.init().unwrap();
//! let mut bounds = StackBounds::ZERO; // one for each thread
//! // An allocator gets both from its naked entry: the place of the return address, and rbp.
//! let place = [main as fn() as usize + 1];
//! // SAFETY: a readable word of this thread's stack.
//! let walk = unsafe { DEPOT.walk(place.as_ptr() as usize, 0, 1, &mut bounds) };
//! assert_eq!(walk.node(), Some(1));
//! ```
#![no_std]
// `cfg(loom)` selects the model of the lock-free part; nothing else declares it.
#![allow(unexpected_cfgs)]

#[cfg(loom)]
extern crate std;

#[cfg(not(loom))]
mod bounds;
#[cfg(not(loom))]
mod cache;
#[cfg(not(loom))]
mod cfi;
#[cfg(not(loom))]
mod depot;
#[cfg(not(loom))]
mod eh;
#[cfg(all(not(loom), test))]
mod eh_tests;
#[cfg(not(loom))]
mod linux;
#[cfg(all(loom, test))]
mod model;
#[cfg(not(loom))]
mod modules;
#[cfg_attr(loom, allow(dead_code))]
mod node;
#[cfg(not(loom))]
mod paths;
#[cfg(not(loom))]
mod platform;
#[cfg(not(loom))]
mod rule;
#[cfg(not(loom))]
mod store;
#[cfg_attr(loom, allow(dead_code))]
mod sync;
#[cfg_attr(loom, allow(dead_code))]
mod table;
#[cfg_attr(loom, allow(dead_code))]
mod trie;
#[cfg(not(loom))]
mod unload;
#[cfg(not(loom))]
mod walk;

#[cfg(not(loom))]
pub use self::{
    bounds::StackBounds,
    depot::{Depot, InitError},
    linux::Linux,
    paths::Paths,
    platform::{Object, Platform},
    walk::Walk,
};
#[cfg(not(loom))]
pub(crate) use depot::View;
