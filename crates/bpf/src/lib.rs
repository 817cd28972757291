//! Kernel allocations, counted inside the kernel by BPF programs on the kmem tracepoints.
//!
//! The programs are some eighty instructions that only depend on where the kernel says its fields are, so they are assembled
//! when they are loaded ([`asm`]), with offsets that the caller took from `events/kmem/*/format`. So there is no object file, no
//! compiler for BPF, no type information to relocate, and a kernel with another layout needs no other program.
//!
//! [`Tracker`] holds the programs and their tables: one of call sites with their sums, and one of live objects, both bounded.
//! What does not fit is counted. Everything goes away with the file descriptors, however the process ends.
#![deny(unsafe_code)]

pub mod asm;
mod programs;
mod sys;
mod tracker;

pub use programs::{AllocLayout, FreeLayout, Kind, Select};
pub use sys::permitted;
pub use tracker::{Counts, Site, Snapshot, Tracepoint, Tracker};
