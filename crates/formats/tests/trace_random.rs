//! No reader of traces panics, whatever it is given, and the statistics never count more frees than they saw.
use std::io::Cursor;
use std::sync::Arc;

use memledger_formats::trace::dat::{PerfData, TraceDat};
use memledger_formats::trace::ring::{Decoder, Endian, EventFormat, PageFormat, RawCpu};
use memledger_formats::trace::stats::{Options, Stats};
use memledger_formats::trace::{Merge, Names, Source, Text};
use proptest::prelude::*;

const KMALLOC: &str = "name: kmalloc\nID: 1\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\tfield:unsigned long call_site;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:void * ptr;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\
    \tfield:size_t bytes_req;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:size_t bytes_alloc;\toffset:16;\tsize:8;\tsigned:0;\n";

fn drain(source: &mut impl Source) {
    let mut names = Names::new();
    let mut stats = Stats::new(Options {
        max_live: 64,
        check: true,
        ..Options::default()
    });
    let mut items = 0;
    while let Ok(Some(item)) = source.next_item(&mut names) {
        stats.add(item, &names);
        items += 1;
        assert!(items < 1_000_000, "does not end");
    }
    assert!(stats.live.len() <= 64 + 64 * 20);
    assert!(stats.classes.iter().all(|c| c.frees <= c.allocs + c.splits));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn text(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        drain(&mut Text::new(bytes.as_slice()));
    }

    #[test]
    fn text_that_looks_like_one(lines in proptest::collection::vec("(a-1 \\[00[0-3]\\] ..... 1.00000[0-9]: (kmalloc|kfree|mm_page_alloc|mm_page_free): (call_site=f ptr=[0-9]{1,2} bytes_req=[0-9]{1,3} bytes_alloc=[0-9]{1,3}|pfn=0x[0-9a-f]{1,2} order=[0-4] migratetype=[0-5])|# .{0,20}| => .{0,20}|CPU:[0-9] \\[LOST [0-9]{1,3} EVENTS\\])", 0..60)) {
        drain(&mut Text::new(lines.join("\n").as_bytes()));
    }

    #[test]
    fn pages(mut bytes in proptest::collection::vec(any::<u8>(), 0..1000), big in any::<bool>()) {
        let page = PageFormat { timestamp: (0, 8), commit: (8, 8), data: (16, 112) };
        // Commit words that fit, so that the data is looked at.
        for chunk in bytes.chunks_mut(128).filter(|c| c.len() > 16) {
            chunk[8..16].fill(0);
            chunk[if big { 15 } else { 8 }] = 112;
        }
        let mut decoder = Decoder::new(if big { Endian::Big } else { Endian::Little }, 8, 4096);
        decoder.add(&EventFormat::parse(KMALLOC).expect("a description"));
        drain(&mut RawCpu::new(bytes.as_slice(), page, Arc::new(decoder), 0));
    }

    #[test]
    fn descriptions(text in "(name: [a-z]{1,5}\n|ID: [0-9]{1,6}\n|\tfield:[a-z \\[\\]]{0,12};\toffset:[0-9]{1,12};\tsize:[0-9]{1,3};\tsigned:[01];\n|print fmt: .{0,40}__print_flags\\(REC->gfp_flags, \"\\|\", \\{[(0-9<|)~ ]{0,20}, \"A\"\\}\n){0,12}") {
        if let Some(format) = EventFormat::parse(&text) {
            let _ = format.flags("gfp_flags");
            Decoder::new(Endian::Little, 8, 4096).add(&format);
        }
        let _ = PageFormat::parse(&text);
    }

    #[test]
    fn recordings(tail in proptest::collection::vec(any::<u8>(), 0..600), version in 5_u8..9) {
        let mut dat = b"\x17\x08\x44tracing".to_vec();
        dat.extend([b'0' + version, 0, 0, 8, 0, 16, 0, 0]);
        dat.extend(&tail);
        if let Ok(open) = TraceDat::open(|| Ok(Cursor::new(dat.clone()))) {
            drain(&mut Merge::new(open.cpus));
        }
        let mut perf = b"PERFILE2".to_vec();
        perf.extend([104, 0, 0, 0, 0, 0, 0, 0, 144, 0, 0, 0, 0, 0, 0, 0]);
        perf.extend(&tail);
        if let Ok(mut perf) = PerfData::open(Cursor::new(perf)) {
            drain(&mut perf);
        }
    }
}
