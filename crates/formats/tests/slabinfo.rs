//! `/proc/slabinfo`: a kernel's files come back byte for byte, any row reads back as it was printed, and no input panics.

mod common;

use memledger_formats::slabinfo::{Cache, read, write};
use proptest::prelude::*;

#[test]
fn captures_come_back_byte_for_byte() {
    let Some(dir) = common::captures() else {
        return;
    };
    let mut files = 0;
    for entry in std::fs::read_dir(dir.join("state")).unwrap().flatten() {
        if !entry.file_name().to_string_lossy().starts_with("slabinfo.") {
            continue;
        }
        let text = common::read(entry.path());
        let all = read(&text[..]).unwrap();
        assert_eq!((all.bad_lines, &all.bad[..]), (0, &[][..]));
        assert!(all.caches.len() > 100);
        let mut out = Vec::new();
        write(&mut out, &all.caches).unwrap();
        assert!(out == text, "{:?}", entry.path());
        assert_eq!(all.to_string().into_bytes(), text);
        let kmalloc = all.caches.iter().find(|c| c.name == "kmalloc-64").unwrap();
        assert_eq!((kmalloc.objsize, kmalloc.objperslab), (64, 64));
        files += 1;
    }
    assert_eq!(files, 6);
}

#[test]
fn odd_lines() {
    let text = "slabinfo - version: 2.1 (statistics)\r\n\
        # name ...\n\n\
        size-64(DMA) x   1   2  64 59 1 : tunables  120   60    8 : slabdata      1 3      4 : globalstat 1 2 : cpustat 3\r\n\
        short 1 2 3 4 : tunables 0 0 0 : slabdata 0 0 0\n\
        1 2 3 4 5 : tunables 0 0 0 : slabdata 0 0 0\n\
        neg -1 2 3 4 5 : tunables 0 0 0 : slabdata 0 0 0\n\
        last 1 2 3 4 5 : tunables 0 0 0 : slabdata 6 7 8";
    let all = read(text.as_bytes()).unwrap();
    assert_eq!(all.bad, [5, 6, 7]);
    let [first, last] = &all.caches[..] else {
        panic!("{all:?}");
    };
    assert_eq!(first.name, "size-64(DMA) x");
    assert_eq!(
        (first.limit, first.num_slabs, first.sharedavail),
        (120, 3, 4)
    );
    assert_eq!(
        (last.name.as_str(), last.active_slabs, last.sharedavail),
        ("last", 6, 8)
    );
    let long = format!(
        "{}\nx 1 2 3 4 5 : tunables 0 0 0 : slabdata 6 7 8\n",
        "y".repeat(200_000)
    );
    let all = read(long.as_bytes()).unwrap();
    assert_eq!((all.bad, all.caches.len()), (vec![1], 1));
}

proptest! {
    #[test]
    fn printed_reads_back(
        name in "[a-zA-Z][a-zA-Z0-9_:()-]{0,80}",
        n in prop::array::uniform11(prop_oneof![0..100_000_u64, any::<u64>()]),
    ) {
        let cache = Cache {
            name, active_objs: n[0], num_objs: n[1], objsize: n[2], objperslab: n[3], pagesperslab: n[4], limit: n[5],
            batchcount: n[6], sharedfactor: n[7], active_slabs: n[8], num_slabs: n[9], sharedavail: n[10],
        };
        prop_assert_eq!(Cache::parse(&cache.to_string()), Some(cache));
    }

    #[test]
    fn anything_is_read(bytes in prop::collection::vec(any::<u8>(), 0..2000), text in "[a-z0-9 :\n]{0,200}( : tunables )?[0-9 ]{0,9}( : slabdata )?[0-9 ]{0,9}") {
        for input in [&bytes[..], text.as_bytes()] {
            let all = read(input).unwrap();
            let mut out = Vec::new();
            write(&mut out, &all.caches).unwrap();
            prop_assert_eq!(read(&out[..]).unwrap().caches.len(), all.caches.len());
        }
    }
}
