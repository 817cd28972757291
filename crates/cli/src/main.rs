//! The `memledger` command: runs programs under the ledger, and reads, prints and switches ledgers.
//!
//! This file only sorts out what was asked for and turns results into exit codes: 0 = done, 1 = done, but something was
//! lost or could not be parsed, 2 = wrong usage or failure. `memledger run` passes on the status of its command. A reader
//! that goes away (broken pipe) is success.
#![forbid(unsafe_code)]

mod allocinfo;
mod args;
mod ctl;
mod generate;
mod kernel;
mod mount;
mod output;
mod page_owner;
mod run;
mod slabinfo;
mod source;
mod trace;
mod tracer;

use clap::Parser;
use std::io;
use std::process::ExitCode;

/// What a subcommand ended with.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A failure, told to the user in one line.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody reads the output any more.
    BrokenPipe,
    /// Text of the line.
    Message(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Failure::BrokenPipe
        } else {
            Failure::Message(error.to_string())
        }
    }
}

impl From<memledger_inspect::Error> for Failure {
    fn from(error: memledger_inspect::Error) -> Self {
        Failure::Message(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

fn main() -> ExitCode {
    if let Some(code) = run::launch::shim() {
        return ExitCode::from(code);
    }
    if let Some(code) = kernel::keep() {
        return ExitCode::from(code);
    }
    let args = args::Args::parse_from(page_owner::multi_call(std::env::args_os().collect()));
    let colour = args.color;
    let result = match args.command {
        args::Command::Run(run) => run::run(&run, colour),
        args::Command::Allocinfo(allocinfo) => allocinfo::run(&allocinfo, colour),
        args::Command::Rss(rss) => page_owner::rss::run(&rss, colour),
        args::Command::PageOwner(owner) => page_owner::run(&owner, colour),
        args::Command::Slabinfo(slabinfo) => slabinfo::run(&slabinfo),
        args::Command::Ctl(ctl) => ctl::run(&ctl),
        args::Command::Trace(trace) => trace::run(&trace),
        args::Command::Kernel(kernel) => kernel::run(&kernel),
        args::Command::Mount(mount) => mount::run(&mount),
        args::Command::Generate(generate) => generate::run(&generate),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Message(message)) => {
            eprintln!("memledger: {message}");
            ExitCode::from(2)
        }
    }
}
