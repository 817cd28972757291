//! The words that threads meet at: those of `core`, or shuttle's when a model of the manager is checked (`--cfg shuttle`, see
//! `model`). Words in raw memory (records, cells) stay those of `core`; there [`point`] lets the model change threads.

#[cfg(not(all(test, shuttle)))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicUsize};
#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicUsize};

/// How often a lock is tried before its thread sleeps.
pub(crate) const SPINS: u32 = if cfg!(all(test, shuttle)) { 1 } else { 100 };

/// A place where another thread, or a signal handler, may come between.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(all(test, shuttle))]
    crate::model::point();
}
