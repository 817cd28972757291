//! A program that accounts for itself: prints where its memory is.

#[global_allocator]
static A: memledger::Ledger = memledger::Ledger::new();

fn index_of(words: &str) -> std::collections::BTreeMap<String, Vec<usize>> {
    let mut index: std::collections::BTreeMap<String, Vec<usize>> = Default::default();
    for (at, word) in words.split_whitespace().enumerate() {
        index.entry(word.to_owned()).or_default().push(at);
    }
    index
}

fn main() {
    let text = "a rose is a rose is a rose ".repeat(10_000);
    let index = index_of(&text);
    let cache = memledger::alloc_hooks!(vec![0u8; 1 << 20]);
    match memledger::allocinfo() {
        Ok(report) => print!("{report}"),
        Err(e) => eprintln!("{e}"),
    }
    drop((index, cache));
}
