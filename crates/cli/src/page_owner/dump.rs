//! `memledger page-owner dump|stacks|handles|stacks-handles`: the kernel's text (mm/page_owner.c) of a process's page owner.

use super::Dump;
use crate::{Failure, Result};
use memledger_inspect::{Block, MigrateType, Owned, Owners, SymbolOptions, Symbolizer};
use std::io::{self, BufWriter, Write};

/// A word that is written to the kernel's file to select what it prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    /// `mode=`: stacks, handles.
    Mode(bool, bool),
    /// `nid=`: whether node 0 is in the list.
    Node(bool),
}

/// Reads one.
pub(crate) fn filter(word: &str) -> std::result::Result<Filter, String> {
    match word {
        "mode=stack" => return Ok(Filter::Mode(true, false)),
        "mode=handle" => return Ok(Filter::Mode(false, true)),
        "mode=stack_handle" => return Ok(Filter::Mode(true, true)),
        _ => {}
    }
    let bad = || format!("{word:?}: mode=stack, mode=handle, mode=stack_handle, or nid=0,2-3");
    let list = word.strip_prefix("nid=").ok_or_else(bad)?;
    let mut zero = false;
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (
            from.parse().map_err(|_| bad())?,
            to.parse().map_err(|_| bad())?,
        );
        if from > to {
            return Err(bad());
        }
        zero |= from == 0;
    }
    Ok(Filter::Node(zero))
}

/// A number as the kernel's files take it: decimal, or hexadecimal after 0x.
pub(crate) fn number(text: &str) -> std::result::Result<u64, String> {
    let n = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    n.map_err(|e| e.to_string())
}

fn read(pid: u32) -> Result<Owners> {
    let owners = Owners::read(pid)?.ok_or_else(|| {
        Failure::Message(format!(
            "process {pid}: its page owner is off (start it with MEMLEDGER=page_owner=on)"
        ))
    })?;
    let lost = owners.failures + owners.recursions + owners.torn;
    if lost > 0 {
        eprintln!(
            "memledger: of {} runs taken, {} have no stack (no room), {} were taken by signal handlers inside the allocator; {} \
             records could not be read",
            owners.taken, owners.failures, owners.recursions, owners.torn
        );
    }
    Ok(owners)
}

/// Prints all blocks.
pub(crate) fn run(args: &Dump) -> Result<u8> {
    let (mut stack, mut handle, mut node) = (true, false, true);
    for f in &args.filter {
        match *f {
            Filter::Mode(s, h) => (stack, handle) = (s, h),
            Filter::Node(zero) => node = zero,
        }
    }
    let owners = read(args.process.pid)?;
    let mut symbols = Symbolizer::new(SymbolOptions::default());
    let mut out = BufWriter::new(io::stdout().lock());
    for block in owners.blocks(args.seek).filter(|_| node) {
        record(&mut out, &owners, &block)?;
        let run = block.run;
        if stack {
            for line in owners.stack(run.handle, &mut symbols) {
                writeln!(out, " {line}")?;
            }
        }
        if handle {
            writeln!(out, "handle: {}", run.handle.0)?;
        }
        if let (true, Some((free, ts))) = (args.last_free, run.last_free) {
            writeln!(out, "page last free ts {ts} ns stack trace:")?;
            for line in owners.stack(free, &mut symbols) {
                writeln!(out, " {line}")?;
            }
        }
        writeln!(out)?;
    }
    out.flush()?;
    eprintln!("memledger: {} early pages", owners.early_pages());
    Ok(u8::from(owners.torn > 0))
}

/// The two lines that head a record.
fn record(out: &mut impl Write, owners: &Owners, block: &Block<'_>) -> io::Result<()> {
    let run = block.run;
    write!(
        out,
        "Page allocated via order {}, mask {:#x}({}), pid {}, tgid {} (",
        block.order,
        run.mask,
        mask_names(run.mask),
        run.pid,
        run.tgid
    )?;
    out.write_all(&run.comm)?;
    writeln!(out, "), ts {} ns", run.ts)?;
    let flags = if run.slab { "0x200(slab|" } else { "0x0(" };
    writeln!(
        out,
        "PFN {:#x} type {} Block {} type {} Flags {flags}node=0|zone=0)",
        block.pfn,
        type_name(run_type(run)),
        block.pfn >> 9,
        type_name(owners.block_type(block.pfn))
    )
}

fn run_type(run: &Owned) -> MigrateType {
    match run.slab {
        true => MigrateType::Unmovable,
        false => MigrateType::Movable,
    }
}

fn type_name(kind: MigrateType) -> &'static str {
    match kind {
        MigrateType::Unmovable => "Unmovable",
        MigrateType::Movable => "Movable",
    }
}

/// As `%pGg` prints the masks that occur.
fn mask_names(mask: u32) -> &'static str {
    match mask {
        0 => "",
        memledger_abi::owner::MASK_ZERO => "GFP_KERNEL|__GFP_ZERO",
        _ => "GFP_KERNEL",
    }
}

/// Prints stacks. With both, all of them, without numbers of pages, as the kernel does.
pub(crate) fn stacks(pid: u32, stack: bool, handle: bool, threshold: u64) -> Result<u8> {
    let owners = read(pid)?;
    let both = stack && handle;
    let mut symbols = Symbolizer::new(SymbolOptions::default());
    let mut out = BufWriter::new(io::stdout().lock());
    for (h, pages) in owners.stacks(both) {
        if !both && pages < threshold.max(1) {
            continue;
        }
        if stack {
            for line in owners.stack(h, &mut symbols) {
                writeln!(out, " {line}")?;
            }
        }
        if handle {
            writeln!(out, "handle: {}", h.0)?;
        }
        if !both {
            writeln!(out, "nr_base_pages: {pages}")?;
        }
        writeln!(out)?;
    }
    out.flush()?;
    Ok(u8::from(owners.torn > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_as_the_kernel_takes_them() {
        assert_eq!(filter("mode=stack_handle"), Ok(Filter::Mode(true, true)));
        assert_eq!(filter("nid=0,2-3"), Ok(Filter::Node(true)));
        assert_eq!(filter("nid=1-3"), Ok(Filter::Node(false)));
        for bad in ["mode=Stack", "mode=", "nid=", "nid=3-1", "x", "nid=-1"] {
            assert!(filter(bad).is_err(), "{bad}");
        }
        assert_eq!((number("0x10"), number("10")), (Ok(16), Ok(10)));
        assert!(number("-1").is_err() && number("").is_err());
    }
}
