//! The switch of a process: reads and writes `mem_profiling`.
//!
//! It is one aligned word that the program's threads load at each allocation, so a write by `process_vm_writev` takes effect
//! at once and needs nothing else.

use crate::error::{Error, Result};
use crate::proc;
use crate::snapshot::open;
use memledger_abi::trace::SWITCH_ON;
use memledger_abi::{Descriptor, MODE_NEVER};
use std::mem::offset_of;

/// Is profiling on in process `pid`? One answer for each ledger in it.
///
/// # Errors
/// Those of finding a ledger; [`Error::Never`] if all of them were started with `never`.
pub fn get(pid: u32) -> Result<Vec<bool>> {
    let (_, _, found) = open(pid)?;
    if found.iter().all(|f| f.descriptor.mode & MODE_NEVER != 0) {
        return Err(Error::Never { pid });
    }
    Ok(found
        .iter()
        .map(|f| f.descriptor.mem_profiling & SWITCH_ON != 0 && f.descriptor.mode & MODE_NEVER == 0)
        .collect())
}

/// Switches profiling on or off in all ledgers of process `pid`; returns how many were written.
///
/// # Errors
/// Those of finding a ledger; [`Error::Never`] if all of them were started with `never`; permission.
pub fn set(pid: u32, on: bool) -> Result<usize> {
    let (mem, _, found) = open(pid)?;
    let mut written = 0;
    for f in found.iter().filter(|f| f.descriptor.mode & MODE_NEVER == 0) {
        let addr = f.addr + offset_of!(Descriptor, mem_profiling) as u64;
        // The tracer's bit stays as it is.
        let word = f.descriptor.mem_profiling & !SWITCH_ON | u32::from(on);
        mem.write(addr, &word.to_ne_bytes())
            .map_err(|e| proc::failure(pid, "switch", e))?;
        written += 1;
    }
    if written == 0 {
        Err(Error::Never { pid })
    } else {
        Ok(written)
    }
}
