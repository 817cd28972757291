//! Records made of anything read back as they were; and no input makes a parser panic.

use memledger_formats::page_owner::{Item, Reader, StackReader, tool};
use proptest::prelude::*;

/// Task names: 15 bytes at most, of the pieces that the grammar gives a meaning to.
fn comm() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\n"),
        Just("\n\n"),
        Just("\nPFN 0x1"),
        Just("), ts 1 ns"),
        Just(")"),
        Just("("),
        Just(", "),
        Just(" ts"),
        Just("tgid "),
        Just("Page allocated"),
        Just("\r"),
        Just("kworker/0:1"),
        Just("é"),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| {
        let mut text = pieces.concat();
        while text.len() > 15 {
            text.pop();
        }
        text
    })
}

#[derive(Debug, Clone)]
struct Written {
    order: u32,
    mask: u64,
    pid: i32,
    comm: String,
    ts: u64,
    free_ts: Option<u64>,
    pfn: u64,
    frames: Vec<String>,
    tail: Vec<&'static str>,
}

fn written() -> impl Strategy<Value = Written> {
    let tail = prop::sample::subsequence(
        vec![
            "handle: 7",
            "Page has been migrated, last migrate reason: compaction",
            "Slab cache page",
            "Charged (via objcg) to offline memcg a b",
            "Something new: 12",
        ],
        0..=5,
    );
    let frames = prop::collection::vec(
        "[a-z_.]{1,9}\\+0x[0-9a-f]{1,3}/0x[0-9a-f]{1,4}( \\[[a-z]{1,4}\\])?",
        0..6,
    );
    let head = (0..64_u32, any::<u64>(), any::<i32>(), comm(), any::<u64>());
    (
        head,
        proptest::option::of(any::<u64>()),
        any::<u64>(),
        frames,
        tail,
    )
        .prop_map(
            |((order, mask, pid, comm, ts), free_ts, pfn, frames, tail)| Written {
                order,
                mask,
                pid,
                comm,
                ts,
                free_ts,
                pfn,
                frames,
                tail,
            },
        )
}

impl Written {
    fn text(&self) -> String {
        let free = self
            .free_ts
            .map_or(String::new(), |ts| format!(", free_ts {ts} ns"));
        let mut text = format!(
            "Page allocated via order {}, mask {:#x}(GFP_KERNEL|__GFP_COMP), pid {}, tgid {} ({}), ts {} ns{free}\n\
             PFN {:#x} type Movable Block 5 type CMA Flags 0x0(node=1|zone=0)\n",
            self.order, self.mask, self.pid, self.pid, self.comm, self.ts, self.pfn
        );
        for frame in &self.frames {
            text.push_str(&format!(" {frame}\n"));
        }
        for line in &self.tail {
            text.push_str(&format!("{line}\n"));
        }
        text.push('\n');
        text
    }
}

proptest! {
    #[test]
    fn records_read_back(records in prop::collection::vec(written(), 1..6), junk in any::<bool>()) {
        let mut text = String::new();
        for record in &records {
            text.push_str(&record.text());
            if junk {
                text.push_str("no record\n\n");
            }
        }
        let mut reader = Reader::new(text.as_bytes());
        let (mut found, mut bad) = (0, 0);
        while let Some(item) = reader.next_item().unwrap() {
            let Item::Record(record) = item else {
                bad += 1;
                continue;
            };
            let expect = &records[found];
            found += 1;
            let (head, body) = (&record.head, record.body());
            prop_assert_eq!((head.order, head.mask), (expect.order, expect.mask));
            prop_assert_eq!(head.pages(), 1_u64 << expect.order);
            prop_assert_eq!((head.pid, head.tgid), (Some(expect.pid), Some(expect.pid)));
            prop_assert_eq!((head.ts, head.free_ts), (Some(expect.ts), expect.free_ts));
            prop_assert_eq!(record.comm(), expect.comm.as_bytes());
            prop_assert_eq!(record.place().pfn, expect.pfn);
            prop_assert_eq!(record.place().node(), Some(1));
            let frames: Vec<&[u8]> = body.frames().collect();
            let expect_frames: Vec<&[u8]> = expect.frames.iter().map(|f| f.as_bytes()).collect();
            prop_assert_eq!(frames, expect_frames);
            prop_assert_eq!(body.slab, expect.tail.contains(&"Slab cache page"));
            let expect_text = expect.text();
            prop_assert_eq!(record.text(), expect_text.trim_end_matches('\n').as_bytes().iter().chain(b"\n").copied().collect::<Vec<u8>>());
        }
        prop_assert_eq!(found, records.len());
        prop_assert_eq!(bad, if junk { records.len() } else { 0 });
    }

    #[test]
    fn nothing_panics(parts in prop::collection::vec(prop_oneof![written().prop_map(|w| w.text().into_bytes()), prop::collection::vec(any::<u8>(), 0..40), Just(b"Page allocated via order ".to_vec())], 0..8), cut in any::<prop::sample::Index>()) {
        let mut text = parts.concat();
        text.truncate(cut.index(text.len() + 1));
        let mut reader = Reader::new(&text[..]);
        while let Some(item) = reader.next_item().unwrap() {
            if let Item::Record(record) = item {
                prop_assert!(record.body_text().len() < record.text().len());
                let _ = (record.gfp(), record.place(), record.body());
            }
        }
        let mut stacks = StackReader::new(&text[..]);
        while stacks.next_item().unwrap().is_some() {}
        let mut blocks = tool::Blocks::new(&text[..]);
        let mut out = Vec::new();
        while let Some(block) = blocks.next_block().unwrap() {
            let _ = (tool::pid(block.text), tool::tgid(block.text), tool::pages(block.text), tool::time(block.text));
            let _ = (tool::comm(block.text), tool::allocator(&block), tool::stack(block.text));
            out.clear();
            tool::without_time(block.text, &mut out);
            prop_assert!(out.len() <= block.text.len());
        }
    }
}
