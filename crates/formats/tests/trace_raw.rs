//! Raw pages of a real kernel: the number of events is the one the kernel itself printed.
mod common;

use memledger_formats::trace::{Item, Merge, Names};

#[test]
fn every_event_of_both_processors() {
    let Some(dir) = common::captures() else {
        return;
    };
    let mut names = Names::new();
    let mut counts = Vec::new();
    for mut cpu in common::raw(&dir) {
        let items = common::all(&mut cpu, &mut names);
        assert!(
            items
                .iter()
                .all(|i| matches!(i, Item::Event(_) | Item::Other(_)))
        );
        counts.push(items.len());
    }
    assert_eq!(counts, [21_596, 48_784]);
    let merged = common::all(&mut Merge::new(common::raw(&dir)), &mut names);
    assert_eq!(merged.len(), 70_380);
    let times: Vec<u64> = merged.iter().filter_map(Item::time).collect();
    assert!(times.is_sorted());
}
