//! Text of a real kernel under all options: nothing is left unread, and what is read is what raw pages of the same run say.
mod common;

use memledger_formats::trace::{Event, Item, Merge, Names, Op, Text};

fn events(items: &[Item]) -> Vec<Event> {
    let event = |item: &Item| match item {
        Item::Event(event) => Some(*event),
        _ => None,
    };
    items.iter().filter_map(event).collect()
}

#[test]
fn every_option_reads_without_loss() {
    let Some(dir) = common::captures() else {
        return;
    };
    let mut files = 0;
    for entry in std::fs::read_dir(dir.join("trace-formats")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .expect("text")
            .to_owned();
        if !name.starts_with("trace.fmt-") && !name.starts_with("trace_pipe") {
            continue;
        }
        files += 1;
        let bytes = common::read(&path);
        let mut names = Names::new();
        let items = common::all(&mut Text::new(bytes.as_slice()), &mut names);
        let bad: Vec<_> = items.iter().filter(|i| matches!(i, Item::Bad(_))).collect();
        // Captures are cut at a number of lines or bytes; only the last line may be broken.
        assert!(bad.len() <= 1, "{name}: {bad:?}");
        let lost = items.iter().any(|i| matches!(i, Item::Lost(_)));
        assert_eq!(lost, name.contains("lost"), "{name}");
        let none = name.contains("raw") || name.contains("hex");
        assert_eq!(events(&items).is_empty(), none, "{name}");
    }
    assert!(files >= 22, "{files}");
}

#[test]
fn text_and_raw_pages_say_the_same() {
    let Some(dir) = common::captures() else {
        return;
    };
    let bytes = common::read(dir.join("trace.kmem-all.txt.xz"));
    let mut names = Names::new();
    let text = common::all(&mut Text::new(bytes.as_slice()), &mut names);
    let raw = common::all(&mut Merge::new(common::raw(&dir)), &mut names);
    assert_eq!((text.len(), raw.len()), (70_380, 70_380));
    let key = |e: &Event| {
        (
            e.op == Op::Free,
            e.class,
            e.cpu,
            e.pid,
            e.comm,
            e.cache,
            e.flags,
            e.order,
            e.migrate,
            e.requested,
            e.given,
            e.node,
        )
    };
    let micros = |ns: u64| (ns + 500) / 1000;
    let mut left: Vec<_> = events(&text)
        .iter()
        .map(|e| (micros(e.time), key(e)))
        .collect();
    let mut right: Vec<_> = events(&raw)
        .iter()
        .map(|e| (micros(e.time), key(e)))
        .collect();
    left.sort_unstable();
    right.sort_unstable();
    assert_eq!(left.len(), right.len());
    for (l, r) in left.iter().zip(&right) {
        assert_eq!(l, r);
    }
}
