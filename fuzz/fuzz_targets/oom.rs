//! Any log is read without a panic, and no block has more rows than a kernel prints.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memledger_formats::oom::{ROWS, Reader};

fuzz_target!(|bytes: &[u8]| {
    for block in Reader::new(bytes) {
        let block = block.expect("memory does not fail");
        assert!(block.rows.len() <= ROWS && block.bad.len() <= ROWS);
    }
});
