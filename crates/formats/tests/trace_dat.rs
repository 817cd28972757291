//! perf.data and trace.dat of a real kernel, compared with what perf and trace-cmd print of them.
mod common;

use std::io::Cursor;

use memledger_formats::trace::dat::{PerfData, TraceDat};
use memledger_formats::trace::{Event, Item, Merge, Names, Op, Source, Text};

/// What can be compared: all but the last digits of times, and call sites, which are names in text.
fn keys(items: &[Item], names: &Names) -> Vec<String> {
    let key = |e: &Event| {
        let free = e.op == Op::Free;
        format!(
            "{:?}{free} {:#x} {} {} {} {} {} {} {}",
            e.class,
            e.ptr,
            e.requested,
            e.given,
            e.cpu,
            e.pid,
            names.text(e.cache),
            names.text(e.flags),
            names.text(e.comm)
        )
    };
    items
        .iter()
        .filter_map(|item| match item {
            Item::Event(event) => Some(key(event)),
            Item::Other(name) => Some(format!("other {}", names.text(*name))),
            _ => None,
        })
        .collect()
}

fn text(path: std::path::PathBuf) -> Vec<String> {
    let bytes = common::read(path);
    let mut names = Names::new();
    let items = common::all(&mut Text::new(bytes.as_slice()), &mut names);
    keys(&items, &names)
}

#[test]
fn perf_data_is_what_perf_script_prints() {
    let Some(dir) = common::captures() else {
        return;
    };
    let bytes = common::read(dir.join("perf/perf.kmem-all.data.xz"));
    let mut names = Names::new();
    let mut perf = PerfData::open(Cursor::new(bytes)).expect("a perf.data");
    let items = common::all(&mut perf, &mut names);
    assert!(
        !items
            .iter()
            .any(|i| matches!(i, Item::Bad(_) | Item::Lost(_)))
    );
    let times: Vec<u64> = items.iter().filter_map(Item::time).collect();
    // perf itself says that one event comes a round too late.
    assert!(times.windows(2).filter(|t| t[0] > t[1]).count() <= 1);
    let (mut left, mut right) = (
        keys(&items, &names),
        text(dir.join("perf/perf.script.txt.xz")),
    );
    assert_eq!((left.len(), right.len()), (47_006, 47_006));
    left.sort_unstable();
    right.sort_unstable();
    for (l, r) in left.iter().zip(&right) {
        assert_eq!(l, r);
    }
}

#[test]
fn call_chains_and_losses_of_perf() {
    let Some(dir) = common::captures() else {
        return;
    };
    let bytes = common::read(dir.join("perf/perf.kmem-page.data.xz"));
    let mut names = Names::new();
    let mut perf = PerfData::open(Cursor::new(bytes)).expect("a perf.data");
    let items = common::all(&mut perf, &mut names);
    let events: Vec<&Event> = items
        .iter()
        .filter_map(|i| match i {
            Item::Event(e) => Some(e),
            _ => None,
        })
        .collect();
    assert_eq!(events.len(), 20_914);
    assert!(events.iter().all(|e| names.frames(e.stack).len() > 1));
    let lost: Vec<_> = items
        .iter()
        .filter_map(|i| match i {
            Item::Lost(l) => l.events,
            _ => None,
        })
        .collect();
    assert_eq!(lost, [176]);
}

#[test]
fn trace_dat_is_what_trace_cmd_reports() {
    let Some(dir) = common::captures() else {
        return;
    };
    let bytes = common::read(dir.join("trace-cmd/trace.dat"));
    let dat = TraceDat::open(|| Ok(Cursor::new(bytes.clone()))).expect("a trace.dat");
    assert_eq!(dat.version, 7);
    assert!(dat.symbols.near(0xffff_ffff_8100_0001).is_some());
    let mut names = Names::new();
    let items = common::all(&mut Merge::new(dat.cpus), &mut names);
    let report = text(dir.join("trace-cmd/trace.dat.report.first15000.txt.xz"));
    assert!(report.len() >= 14_990, "{}", report.len());
    let all = keys(&items, &names);
    assert!(all.len() > report.len());
    // Other events have no time in the model, so that their place among those of other processors is not kept.
    let events = |keys: Vec<String>| keys.into_iter().filter(|k| !k.starts_with("other"));
    let (left, right): (Vec<_>, Vec<_>) = (events(all).collect(), events(report).collect());
    assert!(left.len() > right.len());
    let different: Vec<_> = left
        .iter()
        .zip(&right)
        .filter(|(l, r)| l != r)
        .take(5)
        .collect();
    assert_eq!(different, []);
}

#[test]
fn trace_dat_with_stacks() {
    let Some(dir) = common::captures() else {
        return;
    };
    let bytes = common::read(dir.join("trace-cmd/trace.stack.dat.xz"));
    let dat = TraceDat::open(|| Ok(Cursor::new(bytes.clone()))).expect("a trace.dat");
    let mut names = Names::new();
    let mut merge = Merge::new(dat.cpus);
    let mut events = 0;
    while let Some(item) = merge.next_item(&mut names).expect("memory") {
        if let Item::Event(event) = item {
            events += 1;
            assert!(names.frames(event.stack).len() > 2);
        }
    }
    assert!(events > 100, "{events}");
}

#[test]
fn cut_files_are_errors_or_losses() {
    let Some(dir) = common::captures() else {
        return;
    };
    for (file, step) in [
        ("trace-cmd/trace.dat", 9973),
        ("perf/perf.kmem-g.data", 9973),
    ] {
        let bytes = common::read(dir.join(file));
        for end in (0..bytes.len()).step_by(step) {
            let cut = bytes[..end].to_vec();
            let mut names = Names::new();
            if let Ok(mut perf) = PerfData::open(Cursor::new(cut.clone())) {
                while let Ok(Some(_)) = perf.next_item(&mut names) {}
            }
            if let Ok(dat) = TraceDat::open(|| Ok(Cursor::new(cut.clone()))) {
                let mut merge = Merge::new(dat.cpus);
                while let Ok(Some(_)) = merge.next_item(&mut names) {}
            }
        }
    }
}
