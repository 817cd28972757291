//! Every captured page_owner file reads without loss, and adds up to what an independent count of its lines gives.
//!
//! The captures are not part of the repository. `MEMLEDGER_SHARED` names the folder that has `kernel-data/`; default
//! `../shared` beside the workspace. `xz` unpacks them.

mod common;
use common::kernel_data;
use memledger_formats::page_owner::{Bad, Item, Reader, Stack, StackItem, StackReader};
use std::path::Path;
use std::process::Command;

/// The bytes of a file, unpacked; `None` without `xz`.
fn bytes(path: &Path) -> Option<Vec<u8>> {
    if path.extension().is_none_or(|e| e != "xz") {
        return Some(std::fs::read(path).expect("readable"));
    }
    let Ok(output) = Command::new("xz").arg("-dc").arg(path).output() else {
        println!("skipped: no xz");
        return None;
    };
    assert!(output.status.success(), "{}", path.display());
    Some(output.stdout)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    records: u64,
    pages: u64,
    slab: u64,
    charged: u64,
    migrated: u64,
    frames: u64,
    early: u64,
    newlines: u64,
}

fn sums(text: &[u8]) -> (Sums, Vec<Bad>) {
    let (mut sums, mut bad) = (Sums::default(), Vec::new());
    let mut reader = Reader::new(text);
    while let Some(item) = reader.next_item().expect("memory") {
        let record = match item {
            Item::Record(record) => record,
            Item::Bad(loss) => {
                bad.push(loss);
                continue;
            }
        };
        let body = record.body();
        sums.records += 1;
        sums.pages += record.head.pages();
        sums.slab += u64::from(body.slab);
        sums.charged += u64::from(body.memcg.is_some());
        sums.migrated += u64::from(body.migrated.is_some());
        sums.frames += body.frames().count() as u64;
        sums.early += u64::from(body.stack.starts_with(b" register_early_stack"));
        sums.newlines += u64::from(record.comm().contains(&b'\n'));
        assert_eq!(record.place().block, Some(record.place().pfn >> 9));
    }
    (sums, bad)
}

/// The same by the starts of lines.
fn count(text: &[u8]) -> Sums {
    let text = String::from_utf8_lossy(text);
    let mut sums = Sums::default();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Page allocated via order ") {
            let order: u32 = rest
                .split(',')
                .next()
                .expect("a word")
                .parse()
                .expect("a number");
            sums.records += 1;
            sums.pages += 1 << order;
            sums.newlines += u64::from(!line.ends_with(" ns"));
        }
        sums.slab += u64::from(line == "Slab cache page");
        sums.charged += u64::from(line.starts_with("Charged "));
        sums.migrated += u64::from(line.starts_with("Page has been migrated"));
        sums.frames += u64::from(line.starts_with(' '));
        sums.early += u64::from(line.starts_with(" register_early_stack"));
    }
    sums
}

#[test]
fn dumps_read_without_loss() {
    let Some(dir) = kernel_data() else { return };
    let dir = dir.join("linux-7.3/page_owner");
    for name in [
        "page_owner.0-boot.txt.xz",
        "page_owner.3-background.txt.xz",
        "page_owner.filter.mode_stack_handle.every48.txt.xz",
        "page_owner.filter.mode_handle.every48.txt",
        "page_owner.filter.nid_0-1_mode_handle.every48.txt",
        "page_owner.filter.nid_1.every48.txt",
    ] {
        let Some(text) = bytes(&dir.join(name)) else {
            return;
        };
        let (found, bad) = sums(&text);
        assert_eq!(bad, [], "{name}");
        assert_eq!(found, count(&text), "{name}");
        if name.contains("3-background") {
            assert_eq!((found.records, found.pages), (80_772, 98_647));
            assert_eq!((found.slab, found.migrated), (2_755, 1_024));
        }
    }
}

#[test]
fn odd_files() {
    let Some(dir) = kernel_data() else { return };
    let edge = dir.join("page_owner_sort/edge");
    let read = |name: &str| sums(&std::fs::read(edge.join(name)).expect("readable"));
    let base = read("base.txt");
    assert!(base.0.records > 200 && base.1.is_empty());
    // The third has an empty line inside of a stack.
    for name in ["crlf.txt", "no-final-blank.txt", "double-blank.txt"] {
        assert_eq!(read(name), base, "{name}");
    }
}

#[test]
fn stacks_read_without_loss() {
    let Some(dir) = kernel_data() else { return };
    let dir = dir.join("linux-7.3/page_owner");
    let read = |name: &str| -> Vec<Stack> {
        let text =
            std::fs::read(dir.join(format!("page_owner_stacks.{name}.txt"))).expect("readable");
        let mut reader = StackReader::new(&text[..]);
        let mut stacks = Vec::new();
        while let Some(item) = reader.next_item().expect("memory") {
            match item {
                StackItem::Stack(stack) => stacks.push(stack),
                StackItem::Bad(bad) => panic!("{name}: {bad:?}"),
            }
        }
        let lines = String::from_utf8_lossy(&text)
            .lines()
            .filter(|l| l.is_empty())
            .count();
        assert_eq!(stacks.len(), lines, "{name}");
        stacks
    };
    let pages = |stacks: &[Stack]| stacks.iter().filter_map(|s| s.pages).sum::<u64>();
    let stacks = read("show_stacks");
    assert!(
        stacks
            .iter()
            .all(|s| s.pages.is_some() && !s.frames.is_empty())
    );
    assert!(pages(&stacks) > 70_000);
    let handles = read("show_handles");
    assert!(
        handles
            .iter()
            .all(|s| s.handle.is_some() && s.frames.is_empty())
    );
    assert!(pages(&handles) > 70_000);
    let both = read("show_stacks_handles");
    assert!(both.iter().all(|s| s.handle.is_some() && s.pages.is_none()));
    assert!(
        read("show_stacks.threshold100")
            .iter()
            .all(|s| s.pages >= Some(100))
    );
}
