//! The largest rows on standard error when an allocation fails: what the kernel's `show_mem()` does, in its form.
//!
//! Wished for by `MEMLEDGER=report_failed=on`, as programs may well ask for too much and go on. It runs on the thread whose
//! allocation failed, takes no lock and allocates nothing: the scan's sums are mapped, and if the system refuses that too,
//! the report says so. Symbols cannot be looked up here: tags have file and line, sites the module and offset of
//! each frame, innermost first. No more than one report in [`PAUSE_MS`]; the next one counts what was left out.

use super::misuse::Line;
use super::platform::Linux;
use super::sums::sums;
use crate::platform::Platform;
use alloc_tag::sites::depot;
use alloc_tag::tag_row;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use memledger_abi::{ModuleRecord, Node, RESERVED_NAMES, SITE_BASE};

/// Rows of a report, as in the kernel.
const ROWS: usize = 10;
/// Frames printed of a site, innermost first.
const FRAMES: usize = 4;
/// Milliseconds between two reports.
const PAUSE_MS: u64 = 10_000;

static WANTED: AtomicBool = AtomicBool::new(false);
/// When the last report began, in milliseconds; 0 = never.
static LAST: AtomicU64 = AtomicU64::new(0);
/// Failures since then.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Sets whether failures are reported.
pub(super) fn want(on: bool) {
    WANTED.store(on, Ordering::Relaxed);
}

/// To be called when `size` bytes could not be allocated; reports that if it is wished for. Leaves `errno` alone.
#[cold]
#[inline(never)]
pub fn allocation_failed(size: usize) {
    if !WANTED.load(Ordering::Relaxed) {
        return;
    }
    let (now, last) = (Linux::now_ms().max(1), LAST.load(Ordering::Relaxed));
    let early = last != 0 && now.saturating_sub(last) < PAUSE_MS;
    if early
        || LAST
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
    {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut line = Line::NEW;
    line.push(b"memledger: allocation of ");
    line.decimal(size as u64);
    line.push(b" bytes failed");
    let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
    if left_out > 0 {
        line.push(b", and ");
        line.decimal(left_out);
        line.push(b" others since the last report");
    }
    line.push(b"\n");
    line.write();
    report();
}

/// Writes the block.
fn report() {
    let Some(sums) = sums() else {
        let mut line = Line::NEW;
        line.push(b"memledger: no memory to add the ledger up\n");
        line.write();
        return;
    };
    let mut line = Line::NEW;
    line.push(b"Memory allocations (profiling is currently turned ");
    let on = super::enabled();
    line.push(if on { b"on):\n".as_slice() } else { b"off):\n" });
    line.write();
    let mut last = (u64::MAX, u32::MAX);
    for _ in 0..ROWS {
        let smaller = sums
            .rows()
            .map(|(index, bytes, calls)| ((bytes, index), calls))
            .filter(|&(key, _)| key < last);
        let Some((key, calls)) = smaller.max_by_key(|&(key, _)| key) else {
            return;
        };
        last = key;
        row(key.1, key.0, calls);
    }
}

/// Writes one row: `"%12s %8llu FILE:LINE [MODULE] func:NAME"`.
fn row(index: u32, bytes: u64, calls: u64) {
    let mut line = Line::NEW;
    let mut text = Line::NEW;
    size(&mut text, bytes);
    right(&mut line, text.bytes(), 12);
    line.push(b" ");
    let mut text = Line::NEW;
    text.decimal(calls);
    right(&mut line, text.bytes(), 8);
    line.push(b" ");
    if let Some(tag) = tag_row(index) {
        line.push(tag.file().as_bytes());
        line.push(b":");
        line.decimal(u64::from(tag.line()));
        line.push(b" [");
        line.push(tag.module());
        line.push(b"] func:");
        line.push(tag.func().as_bytes());
    } else if let Some(node) = index.checked_sub(SITE_BASE) {
        site(&mut line, node);
    } else {
        let name = RESERVED_NAMES.get(index as usize).unwrap_or(&"");
        line.push(b"memledger:0 func:");
        line.push(name.as_bytes());
    }
    line.push(b"\n");
    line.write();
}

/// Appends `text` behind blanks, so that both are `width` wide.
fn right(line: &mut Line, text: &[u8], width: usize) {
    for _ in text.len()..width {
        line.push(b" ");
    }
    line.push(text);
}

/// Appends a site: `MODULE:0 func:MODULE+0xOFFSET`, of the innermost frame, and further ones behind `<-`.
fn site(line: &mut Line, node: u32) {
    // The innermost frames are found last: the walk goes from the outermost one towards the root.
    let mut frames = [(0, 0); FRAMES];
    let mut count = 0_usize;
    let mut at = node;
    while at != 0 && at < depot().node_count() && count < 256 {
        // SAFETY: nodes below the count are mapped for good; `key` and `parent` never change once a node's number was given
        // out, and an index in a cell was.
        let found = unsafe {
            let found = (depot().nodes_address() as *const Node).add(at as usize);
            ((*found).key, (*found).parent)
        };
        frames[count % FRAMES] = (found.0 & 0xffff_ffff_ffff, (found.0 >> 48) as u32);
        count += 1;
        at = found.1;
    }
    for i in 0..count.min(FRAMES) {
        let (address, module) = frames[(count - 1 - i) % FRAMES];
        let (name, bias) = module_of(module);
        if i == 0 {
            line.push(name);
            line.push(b":0 func:");
        } else {
            line.push(b"<-");
        }
        line.push(name);
        line.push(b"+");
        line.hex((address - bias.min(address)) as usize);
    }
    if count == 0 {
        line.push(b"memledger:0 func:unknown");
    }
}

/// Name of a module without its folders, and its bias.
fn module_of(number: u32) -> (&'static [u8], u64) {
    if number == 0 || number >= depot().module_count() {
        return (b"unknown", 0);
    }
    // SAFETY: records below the count are mapped for good; their names are copies that stay.
    let (name, bias) = unsafe {
        let record = (depot().modules_address() as *const ModuleRecord).add(number as usize);
        let (at, len) = ((*record).name as *const u8, (*record).name_len as usize);
        let name: &[u8] = if len == 0 || at.is_null() {
            b"exe"
        } else {
            core::slice::from_raw_parts(at, len)
        };
        (name, (*record).bias)
    };
    (name.rsplit(|&b| b == b'/').next().unwrap_or(name), bias)
}

/// Appends a size as the kernel's `string_get_size()` prints it: three digits, binary units.
fn size(line: &mut Line, bytes: u64) {
    let power = (bytes.max(1).ilog2() / 10) as usize;
    if power == 0 && bytes == 0 {
        line.push(b"0 B");
        return;
    }
    let mut whole = bytes >> (10 * power);
    let mut fraction = match power {
        0 => 0,
        _ => ((bytes >> (10 * (power - 1)) & 1023) * 1000) >> 10,
    };
    let (half, unit) = match whole {
        0..10 => (5, 10),
        10..100 => (50, 100),
        _ => (500, 1000),
    };
    fraction += half;
    if fraction >= 1000 {
        fraction -= 1000;
        whole += 1;
    }
    line.decimal(whole);
    let digits = fraction / unit;
    if unit < 1000 {
        line.push(b".");
        if unit == 10 && digits < 10 {
            line.push(b"0");
        }
        line.decimal(digits);
    }
    line.push(b" ");
    if power > 0 {
        line.push(&[b"KMGTPE"[power - 1], b'i']);
    }
    line.push(b"B");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_kernels() {
        for (bytes, text) in [
            (0, "0 B"),
            (8, "8.00 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (36 << 20, "36.0 MiB"),
            (167 << 20, "167 MiB"),
            (8_566_866, "8.17 MiB"),
        ] {
            let mut line = Line::NEW;
            size(&mut line, bytes);
            assert_eq!(core::str::from_utf8(line.bytes()).unwrap(), text);
        }
    }
}
