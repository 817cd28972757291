//! The blocks that a real kernel logged.

mod common;

use memledger_formats::allocinfo::Row;
use memledger_formats::oom::{Block, Reader};
use memledger_formats::size::kernel;

fn blocks(log: &[u8]) -> Vec<Block> {
    Reader::new(log).map(|b| b.expect("memory")).collect()
}

fn printed(row: &Row) -> String {
    format!(
        "{:>12} {:>8} {}",
        kernel(row.bytes),
        row.calls,
        row.tag_info()
    )
}

#[test]
fn each_row_of_each_capture_is_read() {
    let Some(dir) = common::captures() else {
        return;
    };
    for (file, profiling) in [
        ("oom.dmesg.txt", true),
        ("show_mem.sysrq-m.txt", true),
        ("mode-compressed/show_mem.tail.txt", true),
        ("mode-off/show_mem.tail.txt", false),
    ] {
        let bytes = common::read(dir.join(file));
        let text = String::from_utf8_lossy(&bytes);
        let rows: Vec<&str> = text
            .lines()
            .filter(|l| l.contains(" func:"))
            .map(|l| l.split_once("] ").map_or(l, |(_, row)| row))
            .collect();
        let all = blocks(&bytes);
        assert!(!all.is_empty(), "{file}");
        assert!(
            all.iter()
                .all(|b| b.profiling == Some(profiling) && b.bad.is_empty()),
            "{file}"
        );
        let read: Vec<String> = all.iter().flat_map(|b| &b.rows).map(printed).collect();
        assert_eq!(read, rows, "{file}");
    }
}
