//! The kernel's ring buffer: raw pages of `per_cpu/cpuN/trace_pipe_raw`, which trace.dat files are made of too.
//!
//! A [`Decoder`] is made of the descriptions in `events/` ([`EventFormat`], [`PageFormat`]); a [`RawCpu`] reads the pages of
//! one processor with it; [`Merge`](super::Merge) puts several in order. [`page_head`] and [`Cursor`] are the parts for
//! those who have a page at hand.

mod cpu;
mod decode;
mod expr;
mod format;
mod page;

pub use cpu::RawCpu;
pub use decode::{Decoder, Memo, Record};
pub use format::{EventFormat, Field, PageFormat, print_flags};
pub use page::{Cursor, Endian, Entry, Next, PageHead, page_head};
