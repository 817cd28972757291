//! A module that is unloaded while memory is charged to its tags: said once, as the kernel does for its modules.
//!
//! The rows stay and keep their counts; the module's rows go on with them when it comes back. The objects themselves may
//! be fine (a host that keeps what a plugin gave it), so this is a warning. It runs in a destructor under the loader's
//! lock: it allocates nothing from the heap. It scans the whole ledger, once for each unloading of a module that has tags,
//! until the module has been warned about.

use super::misuse::Line;
use super::sums::{Sums, sums};
use alloc_tag::runtime::{is_caller_row, module_indexes};
use alloc_tag::tag_row;
use core::ops::Range;
use memledger_abi::{ModuleTags, TAG_LOADED};

/// Flag of a module's first row: it has been warned about. (Not for readers.)
const WARNED: u32 = 1 << 31;
/// Most tags listed.
const MOST: usize = 20;

/// Warns if memory is charged to the tags of a module that goes away. Called before it is unregistered.
///
/// # Safety
/// `module` describes tags that are mapped.
pub(super) unsafe fn warn(module: &ModuleTags) {
    // SAFETY: by the contract.
    let Some(own) = (unsafe { module_indexes(module) }) else {
        return;
    };
    let Some(first) = tag_row(own.start) else {
        return;
    };
    // Tags made at run time are modules of one tag each; they are looked at together with their object file's others.
    if first.flags() & WARNED != 0 || is_caller_row(first) {
        return;
    }
    let Some(sums) = sums() else { return };
    let held = Held {
        sums: &sums,
        own,
        name: first.module(),
    };
    let (tags, bytes, calls) = held
        .rows()
        .fold((0, 0, 0), |(t, b, c), row| (t + 1, b + row.1, c + row.2));
    if calls == 0 {
        return;
    }
    first.set_flags(WARNED);
    let mut line = Line::NEW;
    line.push(b"memledger: module ");
    line.push(held.name);
    line.push(b" is unloaded with live memory: ");
    amount(&mut line, bytes, calls);
    line.push(b"\n");
    line.write();
    held.list();
    if tags > MOST as u64 {
        let mut line = Line::NEW;
        line.push(b"memledger:   and ");
        line.decimal(tags - MOST as u64);
        line.push(b" tags with less\n");
        line.write();
    }
}

/// What is charged to one module.
struct Held<'a> {
    sums: &'a Sums,
    own: Range<u32>,
    name: &'static [u8],
}

impl Held<'_> {
    /// (index, bytes, calls) of its tags.
    fn rows(&self) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        self.sums.rows().filter(|&(index, ..)| {
            self.own.contains(&index)
                || tag_row(index).is_some_and(|row| {
                    is_caller_row(row) && row.module() == self.name && row.flags() & TAG_LOADED != 0
                })
        })
    }

    /// A line for each tag, largest first.
    fn list(&self) {
        let mut last = (u64::MAX, u32::MAX);
        for _ in 0..MOST {
            let smaller = self.rows().filter(|row| (row.1, row.0) < last);
            let Some((index, bytes, calls)) = smaller.max_by_key(|row| (row.1, row.0)) else {
                return;
            };
            last = (bytes, index);
            let Some(row) = tag_row(index) else { continue };
            let mut line = Line::NEW;
            line.push(b"memledger:   ");
            amount(&mut line, bytes, calls);
            line.push(b" ");
            line.push(row.file().as_bytes());
            line.push(b":");
            line.decimal(u64::from(row.line()));
            line.push(b" func:");
            line.push(row.func().as_bytes());
            line.push(b"\n");
            line.write();
        }
    }
}

fn amount(line: &mut Line, bytes: u64, calls: u64) {
    line.decimal(bytes);
    line.push(b" bytes in ");
    line.decimal(calls);
    line.push(if calls == 1 {
        b" object".as_slice()
    } else {
        b" objects"
    });
}
