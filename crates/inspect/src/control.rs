//! The switch of a process: reads and writes `mem_profiling`.

use crate::Result;

/// Is profiling on in process `pid`? One answer for each ledger in it.
pub fn get(_pid: u32) -> Result<Vec<bool>> {
    todo!()
}

/// Switches profiling on or off in all ledgers of process `pid`; returns how many there are.
pub fn set(_pid: u32, _on: bool) -> Result<usize> {
    todo!()
}
