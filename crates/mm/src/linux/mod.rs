//! The one instance of the manager in a process on Linux: system calls, thread-local state, set-up, the published descriptor, and
//! the functions that the global allocator and the preloaded library are made of.
//!
//! # Set-up
//! It happens at the first allocation, which may be the loader's, before any constructor; nothing in it allocates or
//! calls what could. The constructor in `.init_array` comes later and adds what needs a working libc: the `fork` handlers.
//!
//! # TLS
//! All thread-local state is one initial-exec block defined in assembly (`tls.rs`): no call, no allocation, no destructor.

mod api;
mod descriptor;
mod emergency;
pub mod hooks;
mod init;
mod meta;
mod misuse;
mod owner;
mod platform;
mod pool;
mod sums;
mod sys;
mod tls;
mod trace;
mod unload;

pub use api::{
    ENOMEM, SetError, Totals, allocate, allocate_aligned, allocate_fast, allocate_for_site,
    allocate_zeroed, enabled, free, reallocate, scan, set_enabled, totals, trim, usable_size,
};
pub use descriptor::{address as descriptor_address, descriptor};
pub use emergency::allocation_failed;
pub use init::init;
pub use platform::Linux;
pub use pool::{
    Cache, pool_allocate, pool_create, pool_destroy, pool_free, pool_objects, pool_shrink,
};
pub use sums::{Sums, sums};
pub use trace::{Request, allocate_traced, set_tracing, tracing};

use crate::Manager;

/// The manager of this process.
pub static MM: Manager<Linux> = Manager::new();
