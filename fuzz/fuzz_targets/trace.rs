//! Any bytes are read as text, as pages of a ring buffer, as trace.dat and as perf.data, without a panic; statistics of what is
//! found keep their bounds.
#![no_main]

use std::io::Cursor;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use memledger_formats::trace::dat::{PerfData, TraceDat};
use memledger_formats::trace::ring::{Decoder, Endian, EventFormat, PageFormat, RawCpu};
use memledger_formats::trace::stats::{Options, Stats};
use memledger_formats::trace::{Merge, Names, Source, Text};

fn drain(source: &mut impl Source) {
    let mut names = Names::new();
    let mut stats = Stats::new(Options {
        max_live: 64,
        check: true,
        ..Options::default()
    });
    while let Ok(Some(item)) = source.next_item(&mut names) {
        stats.add(item, &names);
    }
    assert!(stats.classes.iter().all(|c| c.frees <= c.allocs + c.splits));
}

fuzz_target!(|bytes: &[u8]| {
    drain(&mut Text::new(bytes));
    // A description, then pages that it is the description of.
    let (head, pages) = bytes.split_at(bytes.len().min(600) / 2);
    let mut decoder = Decoder::new(Endian::Little, 8, 4096);
    if let Some(format) = EventFormat::parse(&String::from_utf8_lossy(head)) {
        let _ = format.flags("gfp_flags");
        decoder.add(&format);
    }
    let page = PageFormat {
        timestamp: (0, 8),
        commit: (8, 8),
        data: (16, 112),
    };
    drain(&mut RawCpu::new(pages, page, Arc::new(decoder), 0));
    if let Ok(dat) = TraceDat::open(|| Ok(Cursor::new(bytes.to_vec()))) {
        drain(&mut Merge::new(dat.cpus));
    }
    if let Ok(mut perf) = PerfData::open(Cursor::new(bytes.to_vec())) {
        drain(&mut perf);
    }
});
