//! `memledger ctl`: the switches of a running process.

use crate::Result;
use crate::args::Ctl;
use memledger_inspect::control;
use std::io::{self, Write};

/// Does the settings one after the other.
pub(crate) fn run(ctl: &Ctl) -> Result<u8> {
    let mut out = io::stdout().lock();
    for setting in &ctl.settings {
        if let Some(on) = setting.value {
            control::set(ctl.pid, on)?;
        } else {
            for on in control::get(ctl.pid)? {
                writeln!(out, "mem_profiling={}", u8::from(on))?;
            }
        }
    }
    out.flush()?;
    Ok(0)
}
