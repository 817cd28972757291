//! `memledger rss`.

use super::{Rss, pin_json, place};
use crate::Result;
use crate::args::Colour;
use crate::output::{Resolver, Table, Target};
use memledger_inspect::Residency;
use serde_json::json;
use std::io::Write;

/// Reads and prints.
pub(crate) fn run(args: &Rss, colour: Colour) -> Result<u8> {
    let r = Resolver::new(&args.symbols)?.residency(args.process.pid)?;
    let mut target = Target::stdout(colour);
    let top = if args.top == 0 { usize::MAX } else { args.top };
    if args.json {
        let value = json!({
            "pid": r.pid, "comm": r.comm, "rss": r.rss, "vm_rss": r.vm_rss, "swap": r.swap,
            "lines": lines(&r).iter().map(|(key, n, _)| ((*key).to_owned(), json!(n)))
                .collect::<serde_json::Map<_, _>>(),
            "pinned_by": r.pins.iter().take(top).map(pin_json).collect::<Vec<_>>(),
        });
        serde_json::to_writer_pretty(&mut target.out, &value)?;
        writeln!(target.out)?;
    } else {
        table(&mut target, args, &r, top)?;
    }
    target.out.flush()?;
    Ok(u8::from(r.arena.torn > 0))
}

/// (key, resident bytes, what they are). They add up to `rss`.
fn lines(r: &Residency) -> Vec<(&'static str, i64, &'static str)> {
    let n = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let (a, o) = (&r.arena, &r.others);
    vec![
        ("small", n(a.small), "live objects in slabs"),
        ("large", n(a.large), "live large objects"),
        (
            "pinned",
            n(a.pinned),
            "free slots, pinned: in slabs with live objects",
        ),
        ("empty", n(a.empty), "free slots of empty slabs (caches)"),
        ("dirty", n(a.dirty), "free runs, given back in steps"),
        ("rounding", n(a.rounding), "rounding of large objects"),
        ("cells", n(a.cells), "metadata: the ledger's cells, bitmaps"),
        (
            "tables",
            n(a.tables),
            "metadata: units, heaps, tags, stacks",
        ),
        ("torn", n(a.torn), "allocator's, changing while it was read"),
        ("stacks", n(o.stacks), "stacks of threads"),
        ("files", n(o.files), "files: code and read-only data"),
        ("written", n(o.written), "files: written copies (variables)"),
        ("shared", n(o.shared), "shared memory"),
        ("brk", n(o.brk), "brk area"),
        ("anonymous", n(o.anonymous), "other anonymous mappings"),
        ("drift", r.drift, "changed between the readings; zero pages"),
    ]
}

fn table(target: &mut Target, args: &Rss, r: &Residency, top: usize) -> Result<()> {
    let table = Table {
        exact: args.bytes,
        frames: None,
        palette: target.palette,
    };
    let unsigned = |n: u64| table.size(i64::try_from(n).unwrap_or(i64::MAX));
    let strong = target.palette.strong;
    writeln!(
        target.out,
        "{strong}resident memory of {} ({}){strong:#}",
        r.pid,
        crate::output::clean(&r.comm)
    )?;
    for (key, bytes, what) in lines(r) {
        if bytes == 0 && !matches!(key, "small" | "large" | "pinned") {
            continue;
        }
        writeln!(target.out, "{:>14}  {what}", table.size(bytes))?;
        if key == "pinned" {
            for pin in r.pins.iter().filter(|p| p.held > 0).take(top) {
                writeln!(
                    target.out,
                    "{:>14}    {:>12} by {} objects: {}",
                    "",
                    unsigned(pin.held),
                    pin.objects,
                    place(pin)
                )?;
            }
        }
    }
    writeln!(
        target.out,
        "{strong}{:>14}  resident in all{strong:#} (VmRSS says {})",
        unsigned(r.rss),
        unsigned(r.vm_rss)
    )?;
    if r.swap > 0 {
        writeln!(
            target.out,
            "{:>14}  swapped out, not in the above",
            unsigned(r.swap)
        )?;
    }
    Ok(())
}
