//! Any bytes behind the head of a file are read without a panic; blocks whose checksums were put right, too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memledger_formats::trace::own::{Blocks, MAGIC, OwnTrace, VERSION};
use memledger_formats::trace::{Names, Source};

fuzz_target!(|bytes: &[u8]| {
    let mut file = MAGIC.to_vec();
    file.extend(VERSION.to_le_bytes());
    // The first byte says of which kind a block of the rest is to be made.
    if let Some((kind, payload)) = bytes.split_first() {
        let mut head = u32::from(kind % 8).to_le_bytes().to_vec();
        head.extend((payload.len() as u32).to_le_bytes());
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head);
        sum.update(payload);
        head.extend(sum.finalize().to_le_bytes());
        file.extend(head);
        file.extend(payload);
    }
    file.extend(bytes);
    let mut blocks = Blocks::new(&file[..]);
    while blocks.next_block().expect("memory does not fail").is_some() {}
    let mut source = OwnTrace::new(&file[..]);
    source.learn(&file[..]).expect("as above");
    let mut names = Names::new();
    while source.next_item(&mut names).expect("as above").is_some() {}
});
