//! Whatever is found in a process, the reader neither panics, hangs nor takes much memory.

use memledger_abi::{Descriptor, UnitMeta};
use memledger_inspect::fuzz;
use proptest::prelude::*;
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// Peak of the own address space, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .unwrap();
    line.split_ascii_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// A value that a field may hold: small, at a border, or any.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..64u64,
        (0..64u32).prop_map(|n| (1u64 << n).wrapping_sub(1)),
        any::<u64>(),
        (0..4096u64).prop_map(|n| fuzz::BASE + n)
    ]
}

/// Memory with a descriptor of such values, and records of such values behind it.
fn memory() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::collection::vec(value(), 40..600);
    (any::<u8>(), words).prop_map(|(choice, words)| {
        let mut out = vec![choice];
        words.iter().for_each(|w| out.extend(w.to_ne_bytes()));
        out
    })
}

fn bounded<T>(f: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let out = f();
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "took {:?}",
        start.elapsed()
    );
    assert!(peak() < 700 << 10, "took {} KiB", peak());
    out
}

/// Memory that gets far: a sane descriptor, then units with the given values, 16 slots of cells each, nodes of any kind.
fn plausible(units: &[(u8, u64, u32, u32, u32)], cells: &[u32]) -> Vec<u8> {
    let mut data = vec![0u8; 16 << 10];
    let put = |data: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        data[at..at + bytes.len()].copy_from_slice(bytes)
    };
    let base = fuzz::BASE;
    let arena = 0x7000_0000u64;
    type D = Descriptor;
    for (at, v) in [
        (offset_of!(D, arena_base), arena),
        (offset_of!(D, committed_at), base + 1024),
        (offset_of!(D, units), base + 2048),
        (offset_of!(D, nodes), base + 8192),
        (offset_of!(D, node_count_at), base + 1032),
        (offset_of!(D, tags), base + 8192),
        (offset_of!(D, tag_count_at), base + 1032),
    ] {
        put(&mut data, at, &v.to_ne_bytes());
    }
    put(&mut data, 1024, &((units.len() as u64) << 16).to_ne_bytes());
    put(&mut data, 1032, &100u32.to_ne_bytes());
    for (i, c) in cells.iter().enumerate() {
        put(&mut data, 4096 + 4 * i, &c.to_ne_bytes());
        put(&mut data, 8192 + 8 + 32 * (i % 100), &c.to_ne_bytes());
    }
    for (i, (kind, bytes, slots, seq, count)) in units.iter().enumerate() {
        let at = 2048 + i * size_of::<UnitMeta>();
        type U = UnitMeta;
        put(
            &mut data,
            at + offset_of!(U, start),
            &(arena + ((i as u64) << 16)).to_ne_bytes(),
        );
        put(
            &mut data,
            at + offset_of!(U, cells),
            &(base + 4096).to_ne_bytes(),
        );
        put(&mut data, at + offset_of!(U, bytes), &bytes.to_ne_bytes());
        put(&mut data, at + offset_of!(U, slots), &slots.to_ne_bytes());
        put(&mut data, at + offset_of!(U, kind), &[*kind]);
        put(&mut data, at + offset_of!(U, seq), &seq.to_ne_bytes());
        put(&mut data, at + offset_of!(U, units), &count.to_ne_bytes());
    }
    data.insert(0, 1);
    data
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_descriptor(memory in memory()) {
        let _ = bounded(|| fuzz::ledger(&memory));
    }

    #[test]
    fn any_bytes(memory in prop::collection::vec(any::<u8>(), 0..2048)) {
        bounded(|| (fuzz::ledger(&memory), fuzz::search(&memory)));
    }

    #[test]
    fn any_units_and_nodes(
        units in prop::collection::vec((0..7u8, value(), 0..40u32, 0..3u32, prop_oneof![0..4u32, any::<u32>()]), 1..30),
        cells in prop::collection::vec(prop_oneof![0..120u32, 0x0100_0000..0x0100_0080u32, any::<u32>()], 1..800),
    ) {
        let s = bounded(|| fuzz::ledger(&plausible(&units, &cells))).expect("the descriptor is sane");
        prop_assert!(s.torn_units() <= units.len() as u64);
    }

    #[test]
    fn any_program_headers(
        offset in value(), count in any::<u16>(), segments in prop::collection::vec((0..7u32, value(), value(), value()), 0..6),
        notes in prop::collection::vec(value(), 0..64),
    ) {
        let mut data = b"\x7fELF\x02\x01\x01\0".to_vec();
        data.resize(64, 0);
        data[32..40].copy_from_slice(&(if count % 4 == 0 { offset } else { 64 }).to_ne_bytes());
        data[54..56].copy_from_slice(&56u16.to_ne_bytes());
        data[56..58].copy_from_slice(&(if count % 3 == 0 { count } else { segments.len() as u16 }).to_ne_bytes());
        for (kind, offset, vaddr, size) in &segments {
            for w in [u64::from(*kind), *offset, *vaddr, *vaddr, *size, *size, 4] {
                data.extend(w.to_ne_bytes());
            }
        }
        notes.iter().for_each(|w| data.extend(w.to_ne_bytes()));
        bounded(|| fuzz::search(&data));
    }
}

#[test]
fn plausible_memory_is_read() {
    // 10 slots: indexes 1..=10; node 1 is its own parent.
    let cells: Vec<u32> = (0..10)
        .map(|i| if i == 9 { 0x0100_0001 } else { i + 1 })
        .collect();
    let s = fuzz::ledger(&plausible(&[(1, 16, 10, 0, 1), (3, 100, 0, 0, 1)], &cells)).unwrap();
    assert_eq!((s.total.bytes, s.total.calls, s.torn_units()), (160, 10, 0));
}
