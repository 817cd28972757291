//! Allocation traces: the events of kernels and of the runtime tracer, in one model.
//!
//! All producers, whatever their format, are a [`Source`]: a stream of [`Item`]s in order of time. What an event names
//! (call sites, caches, tasks, flags) is a small number that [`Names`] gives out, so that an event has a fixed size and
//! statistics are vectors. Losses are items of the stream: whoever sums up events cannot overlook them.
//!
//! - [`event`](Event), [`Names`]: the model
//! - [`own`]: memledger's own file, written by `memledger trace record`
//! - [`Merge`]: several sources in order of time, with one item of each in memory

pub mod dat;
mod event;
mod merge;
mod names;
pub mod own;
pub mod ring;
pub mod stats;
mod text;

pub use event::{
    ANY_NODE, Bad, Class, Event, Info, Item, Lost, NO_MIGRATE_TYPE, Op, Source, UNKNOWN_PTR, Unit,
    migrate_name,
};
pub use merge::Merge;
pub use names::{MAX_FRAMES, Names, Site, SiteId, StackId, WordId};
pub use text::{MAX_LINE, Text};
