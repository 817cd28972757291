//! `memledger kernel`: allocations of the running kernel, from its tracepoints.

pub(crate) mod args;
mod bpf;
mod reader;
mod record;
mod session;
mod stat;
mod trace;
mod tracefs;

use crate::{Failure, Result};
use std::io::Write;
pub(crate) use tracefs::keep;

/// Does what was asked for.
pub(crate) fn run(kernel: &args::Kernel) -> Result<u8> {
    match &kernel.command {
        args::Command::Trace(trace) => trace::run(trace),
        args::Command::Stat(stat) => stat::run(stat),
        args::Command::Record(record) => record::run(record),
        args::Command::Check => check(),
    }
}

/// Prints what there is.
fn check() -> Result<u8> {
    let mut out = std::io::stdout().lock();
    let mut code = 0;
    for facility in availability() {
        let word = if facility.usable { "yes" } else { "no" };
        writeln!(out, "{:<16} {word:<4} {}", facility.name, facility.text)?;
        code |= u8::from(!facility.usable);
    }
    Ok(code)
}

/// Something that the machine has or has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facility {
    /// What.
    pub(crate) name: &'static str,
    /// Whether it can be used.
    pub(crate) usable: bool,
    /// Why not, and what to do; or what it is good for.
    pub(crate) text: String,
}

/// What there is for watching the kernel's allocations, and what is missing and why.
pub(crate) fn availability() -> Vec<Facility> {
    let facility = |name, result: std::result::Result<String, String>| Facility {
        name,
        usable: result.is_ok(),
        text: result.unwrap_or_else(|why| why),
    };
    let words = |failure| match failure {
        Failure::Message(text) => text,
        Failure::BrokenPipe => "broken pipe".to_owned(),
    };
    let tracefs = tracefs::Tracefs::find().map_err(words);
    let events = tracefs.clone().and_then(|tracefs| {
        let missing: Vec<_> = session::EVENTS
            .iter()
            .filter(|e| !tracefs.has(e))
            .copied()
            .collect();
        if missing.is_empty() {
            Ok("all events that memory is accounted by".to_owned())
        } else {
            Err(format!("this kernel lacks {}", missing.join(", ")))
        }
    });
    let instance = tracefs.clone().and_then(|tracefs| {
        tracefs::Instance::new(&tracefs, 64).map_err(words)?;
        Ok("trace instances can be made and removed".to_owned())
    });
    let bpf = memledger_bpf::permitted()
        .map(|()| "programs for tracepoints can be loaded".to_owned())
        .map_err(|error| format!("bpf(2): {error}"));
    let symbols = session::kallsyms()
        .map(|all| format!("{} functions", all.len()))
        .map_err(words);
    vec![
        facility(
            "tracefs",
            tracefs.map(|t| format!("mounted at {}", t.0.display())),
        ),
        facility("kmem events", events),
        facility("trace instances", instance),
        facility("BPF", bpf),
        facility("kallsyms", symbols),
    ]
}
