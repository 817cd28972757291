//! Recordings that describe themselves: `trace.dat` of trace-cmd and `perf.data`.

mod meta;
mod perf;
mod tracecmd;

pub use perf::{PerfData, is_perf_data};
pub use tracecmd::{TraceDat, is_trace_dat};
