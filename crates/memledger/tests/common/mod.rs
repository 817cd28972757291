//! Rows as the tests look at them.
#![allow(dead_code, reason = "each test uses a part")]

/// Live (bytes, calls) of the rows of a line in a file.
pub(crate) fn row_at(report: &memledger::Allocinfo, file: &str, line: u32) -> (u64, u64) {
    let rows = report
        .rows
        .iter()
        .filter(|r| r.file == file && r.line == line);
    rows.fold((0, 0), |(b, c), r| (b + r.bytes, c + r.calls))
}

/// Live (bytes, calls) of the tags of a line at this moment: as the rows of `allocinfo`, without looking up any symbols.
pub(crate) fn now(file: &str, line: u32) -> (u64, u64) {
    let snapshot = memledger_inspect::Snapshot::read_self().expect("a ledger");
    let mut all = (0, 0);
    for ledger in &snapshot.ledgers {
        for (tag, sum) in ledger.tags.iter().zip(&ledger.tag_sums) {
            if tag.file == file && tag.line == line {
                all = (all.0 + sum.bytes, all.1 + sum.calls);
            }
        }
    }
    all
}

/// Slot size of a block that is charged in whole pages.
pub(crate) fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(4096)
}
