//! `memledger page-owner pinned`.

use super::{Pinned, pin_json, place};
use crate::Result;
use crate::args::Colour;
use crate::output::{Resolver, Table, Target, frame_text, grouped};
use memledger_inspect::{Pin, Residency};
use serde_json::json;
use std::io::Write;

/// Reads and prints.
pub(crate) fn run(args: &Pinned, colour: Colour) -> Result<u8> {
    let residency = Resolver::new(&args.symbols)?.residency(args.process.pid)?;
    let mut target = Target::stdout(colour);
    let top = if args.top == 0 { usize::MAX } else { args.top };
    if args.json {
        let pins: Vec<_> = residency.pins.iter().take(top).map(pin_json).collect();
        let value = json!({
            "pid": residency.pid, "pinned": residency.arena.pinned, "rss": residency.rss, "sites": pins,
        });
        serde_json::to_writer_pretty(&mut target.out, &value)?;
        writeln!(target.out)?;
    } else {
        table(&mut target, args, &residency, top)?;
    }
    target.out.flush()?;
    Ok(u8::from(residency.arena.torn > 0))
}

fn table(target: &mut Target, args: &Pinned, r: &Residency, top: usize) -> Result<()> {
    let table = Table {
        exact: args.bytes,
        frames: None,
        palette: target.palette,
    };
    let size = |n: u64| table.size(i64::try_from(n).unwrap_or(i64::MAX));
    let strong = target.palette.strong;
    writeln!(
        target.out,
        "{strong}{:>12} {:>12} {:>12} {:>12} {:>8} {:>5}  WHO{strong:#}",
        "HELD", "ALONE", "OBJECTS", "LIVE", "SLABS", "FULL"
    )?;
    for pin in r.pins.iter().take(top) {
        writeln!(
            target.out,
            "{:>12} {:>12} {:>12} {:>12} {:>8} {:>4}%  {}",
            size(pin.held),
            size(pin.alone),
            count(pin.objects),
            size(pin.live),
            count(pin.slabs),
            percent(pin),
            place(pin)
        )?;
        if args.objects {
            let at: Vec<String> = pin.samples.iter().map(|a| format!("{a:#x}")).collect();
            writeln!(target.out, "{:>14}objects at {}", "", at.join(" "))?;
            for frame in &pin.row.frames {
                writeln!(target.out, "{:>14}{}", "", frame_text(frame))?;
            }
        }
    }
    if r.pins.len() > top {
        let rest: u64 = r.pins[top..].iter().map(|p| p.held).sum();
        let more = r.pins.len() - top;
        writeln!(target.out, "{:>12} in {more} more", size(rest))?;
    }
    writeln!(
        target.out,
        "{strong}{:>12} pinned, of {} resident{strong:#}",
        size(r.arena.pinned),
        size(r.rss)
    )?;
    Ok(())
}

fn count(n: u64) -> String {
    grouped(i64::try_from(n).unwrap_or(i64::MAX))
}

/// How full the slabs are, rounded down.
fn percent(pin: &Pin) -> u64 {
    (u128::from(pin.slab_live) * 100 / u128::from(pin.slab_bytes.max(1))) as u64
}
