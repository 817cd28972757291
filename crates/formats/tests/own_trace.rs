//! memledger's own trace file: what is written reads back the same, and damage is seen.

use memledger_formats::trace::own::{Block, Blocks, OwnTrace, Raw, SiteFrame, SiteInfo, Writer};
use memledger_formats::trace::{Item, Names, Op, Source};
use proptest::prelude::*;

fn raw() -> impl Strategy<Value = Raw> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u16>());
    let more = (0..16u8, 0..16u8, any::<u8>(), any::<u32>());
    (numbers, more, any::<u64>(), any::<u64>()).prop_map(
        |((time, ptr, index, cpu), (op, kind, flags, tid), requested, given)| Raw {
            time,
            ptr,
            op,
            kind,
            flags,
            index,
            cpu,
            tid,
            requested,
            given,
        },
    )
}

fn site() -> impl Strategy<Value = SiteInfo> {
    let frame = (".{0,9}", ".{0,9}", any::<u32>(), ".{0,9}", any::<u64>()).prop_map(
        |(func, file, line, module, addr)| SiteFrame {
            func,
            file,
            line,
            module,
            addr,
        },
    );
    let frames = proptest::collection::vec(frame, 0..4);
    (any::<u32>(), 0..3u8, 0..4u32, frames).prop_map(|(index, kind, charged, frames)| SiteInfo {
        index,
        kind,
        charged,
        frames,
    })
}

fn file(events: &[Raw], sites: &[SiteInfo]) -> Vec<u8> {
    let mut w = Writer::new(Vec::new(), &[("comm", "prog".to_owned())]).unwrap();
    w.events(events).unwrap();
    w.lost(1, 2, 3).unwrap();
    w.sites(sites).unwrap();
    w.finish().unwrap()
}

/// (events, sites, lost, ended, bad).
fn read(bytes: &[u8]) -> (Vec<Raw>, Vec<SiteInfo>, u64, bool, bool) {
    let mut all = (Vec::new(), Vec::new(), 0, false, false);
    let mut blocks = Blocks::new(bytes);
    while let Some(block) = blocks.next_block().unwrap() {
        match block {
            Ok(Block::Events(e)) => all.0.extend(e),
            Ok(Block::Sites(s)) => all.1.extend(s),
            Ok(Block::Lost(1, 2, n)) => all.2 += n,
            Ok(Block::End(events, lost)) => {
                assert_eq!((events, lost), (all.0.len() as u64, all.2));
                all.3 = true;
            }
            Ok(Block::About(about)) => assert_eq!(about, [("comm".into(), "prog".into())]),
            Ok(other) => panic!("{other:?}"),
            Err(_) => all.4 = true,
        }
    }
    all
}

proptest! {
    #[test]
    fn reads_back_the_same(
        events in proptest::collection::vec(raw(), 0..300),
        sites in proptest::collection::vec(site(), 0..20),
    ) {
        let all = read(&file(&events, &sites));
        prop_assert_eq!(all, (events, sites, 3, true, false));
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut file = b"mltrace\n\x01\0\0\0".to_vec();
        file.extend(bytes);
        read_source(&file);
    }

    #[test]
    fn damage_is_seen(
        events in proptest::collection::vec(raw(), 1..50),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let mut bytes = file(&events, &[]);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let all = read(&bytes);
        prop_assert!(all.4, "byte {at} of {}", bytes.len());
        // Nothing that was read before the damage is changed by it.
        prop_assert!(events.starts_with(&all.0));
    }
}

fn read_source(bytes: &[u8]) -> Vec<Item> {
    let mut source = OwnTrace::new(bytes);
    source.learn(bytes).unwrap();
    let mut names = Names::new();
    let mut items = Vec::new();
    while let Some(item) = source.next_item(&mut names).unwrap() {
        items.push(item);
    }
    items
}

#[test]
fn truncated_anywhere_it_is_read_to_the_last_whole_block() {
    let events: Vec<Raw> = (0..20_000)
        .map(|i| Raw {
            time: i * 100,
            ptr: 0x7f00_0000_0000 + i * 48,
            op: 1,
            index: 16,
            tid: 7,
            requested: 40,
            given: 48,
            ..Raw::default()
        })
        .collect();
    let whole = file(&events, &[]);
    // Compact: 14 bytes an event, against 64 of its words.
    assert!(whole.len() < events.len() * 14, "{}", whole.len());
    let mut before = 0;
    for cut in (12..whole.len()).step_by(4999).chain([whole.len() - 1]) {
        let (got, _, _, ended, _) = read(&whole[..cut]);
        assert!(!ended && got.len() >= before && events.starts_with(&got));
        assert!(got.len() % 8192 == 0 || got.len() == events.len());
        before = got.len();
        assert!(matches!(
            read_source(&whole[..cut]).last(),
            Some(Item::Bad(_))
        ));
    }
    assert_eq!(before, events.len());
}

#[test]
fn sites_described_behind_their_events_have_their_names() {
    let frame = |func: &str, line| SiteFrame {
        func: func.to_owned(),
        file: "a.c".to_owned(),
        line,
        module: "prog".to_owned(),
        addr: 0x10,
    };
    let site = SiteInfo {
        index: 99,
        kind: 0,
        charged: 1,
        frames: vec![frame("xmalloc", 3), frame("leak", 7)],
    };
    let event = Raw {
        op: 1,
        index: 99,
        tid: 5,
        requested: 10,
        given: 16,
        ..Raw::default()
    };
    let bytes = file(&[event], &[site]);
    let mut source = OwnTrace::new(&bytes[..]);
    source.learn(&bytes[..]).unwrap();
    let mut names = Names::new();
    let Some(Item::Event(e)) = source.next_item(&mut names).unwrap() else {
        panic!("an event");
    };
    assert_eq!((e.op, e.requested, e.given, e.pid), (Op::Alloc, 10, 16, 5));
    assert_eq!(names.text(e.comm), "prog");
    let memledger_formats::trace::Site::Text(word) = names.get_site(e.site) else {
        panic!("a text");
    };
    assert_eq!(names.text(word), "leak a.c:7");
}
