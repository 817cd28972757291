//! Any text is read without a panic, and what was read from it prints and reads back as the same caches.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memledger_formats::slabinfo::{read, write};

fuzz_target!(|bytes: &[u8]| {
    let all = read(bytes).expect("memory does not fail");
    let mut text = Vec::new();
    write(&mut text, &all.caches).expect("memory does not fail");
    let again = read(&text[..]).expect("memory does not fail");
    assert_eq!(all.caches.len(), again.caches.len());
});
