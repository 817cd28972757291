//! Any bytes are read without a panic, by the reader of dumps, of stacks and of the kernel's tool; how the input is cut
//! into reads makes no difference.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memledger_formats::page_owner::{Item, Reader, StackReader, tool};
use std::io::Read;

/// Gives some bytes at once.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.1.min(self.0.len()).min(buf.len());
        buf[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

/// Records and losses as text.
fn all(bytes: &[u8], step: usize) -> Vec<String> {
    let mut reader = Reader::new(Slow(bytes, step));
    let mut found = Vec::new();
    while let Some(item) = reader.next_item().expect("memory does not fail") {
        found.push(match item {
            Item::Record(r) => format!(
                "{} {:?} {:?} {:?} {:?} {}",
                r.line,
                r.head,
                r.comm(),
                r.place(),
                r.body(),
                r.text().escape_ascii()
            ),
            Item::Bad(bad) => format!("{} {:?}", bad.line, bad.kind),
        });
    }
    found
}

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(all(bytes, usize::MAX), all(bytes, 3));
    let mut stacks = StackReader::new(bytes);
    while stacks.next_item().expect("memory does not fail").is_some() {}
    let mut blocks = tool::Blocks::new(bytes);
    let mut out = Vec::new();
    while let Some(block) = blocks.next_block().expect("memory does not fail") {
        let text = block.text;
        let _ = (tool::pid(text), tool::tgid(text), tool::pages(text));
        let _ = (tool::comm(text), tool::time(text), tool::allocator(&block));
        out.clear();
        tool::without_time(text, &mut out);
        assert!(out.len() <= text.len());
    }
});
