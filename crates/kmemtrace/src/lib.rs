//! The tracer: events of allocations and frees in a ring of each thread, and sums that answer without the events.
//!
//! # The way of an event
//! A thread fills the next slot of its own ring and raises the ring's `head`: no lock, no system call, no allocation, no atomic
//! read-modify-write. Readers outside copy slots and look at `head` again to know which of them they got whole; the protocol and
//! all layouts are those of [`memledger_abi::trace`]. The first event of a thread takes a ring that an ended thread left, or maps one.
//!
//! # Sums
//! They are kept in tables of the thread, so that nobody shares them; a reader adds them up. The table of live objects is the only shared
//! one: a pointer belongs to one slot of one bucket, claimed with a compare-exchange at the allocation and cleared at the free. It has a
//! fixed size; what finds its bucket full is counted.
//!
//! # Signal handlers
//! A handler that interrupts the tracer on its thread writes no event; it is counted ([`TraceControl::lost_nested`]).
//!
//! [`TraceControl::lost_nested`]: memledger_abi::trace::TraceControl::lost_nested
#![no_std]

#[cfg(test)]
extern crate std;

mod control;
mod record;
mod ring;
mod stats;

pub use control::{Settings, Tracer};
pub use record::Fact;
pub use ring::{Ring, TraceSlot};

/// What the tracer needs of the system. All functions work inside `malloc` and leave `errno` alone.
pub trait System {
    /// Maps zeroed memory that need not be backed before it is touched; 0 = refused.
    fn map(bytes: usize) -> usize;
    /// Id of the calling thread.
    fn tid() -> u32;
    /// Address of the word that holds the number of the CPU of the calling thread, as long as the thread lives; negative
    /// numbers mean that it is not known.
    fn cpu_at() -> *const i32;
    /// Nanoseconds of `CLOCK_MONOTONIC` and `CLOCK_REALTIME`.
    fn clocks() -> (u64, u64);
}

/// Time stamp counter.
#[inline(always)]
pub fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has it; reading it has no effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}
