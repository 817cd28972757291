//! A cache type with two users: in the report, each user's cache is on the line that made it, however deep in the cache
//! the memory is allocated.

use allocator_api2::vec::Vec;
use memledger::{SavedTag, TaggedAlloc, TaggedHashMap};

#[global_allocator]
static A: memledger::Ledger = memledger::Ledger::new();

/// Texts by number. All its memory is charged to the tag that it was made with: the table and each text.
pub(crate) struct Cache {
    memory: TaggedAlloc,
    texts: TaggedHashMap<u64, Vec<u8, TaggedAlloc>>,
}

impl Cache {
    /// An empty cache, charged to the line that calls this.
    #[track_caller]
    pub(crate) fn new() -> Self {
        Cache::tagged(SavedTag::caller())
    }

    /// An empty cache, charged to a tag.
    pub(crate) fn tagged(tag: SavedTag) -> Self {
        let memory = TaggedAlloc::new(tag);
        Cache {
            memory,
            texts: TaggedHashMap::new_in(memory),
        }
    }

    /// Keeps a copy.
    pub(crate) fn put(&mut self, key: u64, text: &[u8]) {
        let mut copy = Vec::with_capacity_in(text.len(), self.memory);
        copy.extend_from_slice(text);
        self.texts.insert(key, copy);
    }

    /// The text of a number.
    pub(crate) fn get(&self, key: u64) -> Option<&[u8]> {
        self.texts.get(&key).map(Vec::as_slice)
    }

    /// Bytes of all slots that the cache holds, as the ledger counts them, and their number.
    pub(crate) fn live(&self) -> (u64, u64) {
        let table = match self.texts.allocation_size() {
            0 => (0, 0),
            // hashbrown does not show its block; one of that size has the same slot size.
            n => (slot_size(n), 1),
        };
        let texts = self.texts.values().map(|text| text.as_ptr());
        texts.fold(table, |(bytes, calls), text| {
            (bytes + memledger::usable_size(text) as u64, calls + 1)
        })
    }
}

fn slot_size(bytes: usize) -> u64 {
    let block = vec![0_u128; bytes.div_ceil(16)];
    memledger::usable_size(block.as_ptr().cast()) as u64
}

impl Default for Cache {
    #[track_caller]
    fn default() -> Self {
        Cache::new()
    }
}

fn fill(cache: &mut Cache, count: u64, size: usize) {
    for key in 0..count {
        cache.put(key, &vec![b'x'; size]);
    }
}

fn main() {
    let mut pages = Cache::new();
    let mut users = Cache::new();
    fill(&mut pages, 100, 4000);
    fill(&mut users, 1000, 80);
    assert_eq!(pages.get(99).map(<[u8]>::len), Some(4000));

    let report = memledger::allocinfo().expect("a ledger");
    for row in report.rows.iter().filter(|r| r.file == file!()) {
        println!(
            "{:>8} bytes in {:>4} objects: line {}",
            row.bytes, row.calls, row.line
        );
    }
    println!("pages: {:?}, users: {:?}", pages.live(), users.live());
}
