//! The common case of `.eh_frame`, read without a general parser.
//!
//! Theory: compilers for x86-64 emit one form of table (`.eh_frame_hdr` with 4-byte entries relative to itself), one
//! form of CIE (version 1, code alignment 1, data alignment -8, return address in column 16, 4-byte relative
//! pointers) and a handful of instructions, of which only those matter that move the CFA, rbp or the return address.
//! All else is declined (`None`), and [`crate::cfi`] takes the general way; both say the same where this one answers.
//! It is all safe code over one slice: every read is bounded, every loop consumes bytes. Layout: LSB 5.0 "Exception
//! Frames", opcodes: DWARF 5, 7.24.

use crate::rule::{END, GUESS, KIND_RBP, KIND_RSP, pack};
use core::slice::Iter;

/// `.eh_frame_hdr`: version 1, frame pointer pcrel|sdata4, count udata4, table datarel|sdata4.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// Where the table begins in the header.
const TABLE: usize = 12;
/// Bytes of a table entry: start of a function, place of its FDE, both from the header.
const ENTRY: usize = 8;
/// Pointer encoding pcrel|sdata4.
const PCREL4: u8 = 0x1b;
/// A CIE's alignment factors and return address column.
const FACTORS: [u8; 3] = [1, 0x78, 16];
/// DWARF numbers.
const RBP: u32 = 6;
const RSP: u32 = 7;
const RA: u32 = 16;
/// States that can be remembered at a time.
const REMEMBERED: usize = 4;
/// [`State::rbp`] and [`State::ra`]: in the register (or lost, for the return address).
const KEPT: u32 = u32::MAX;

/// The row of a function's table that matters so far.
#[derive(Clone, Copy)]
struct State {
    /// Register that the CFA is counted from, and the distance in bytes.
    base: u32,
    offset: u32,
    /// Where rbp and the return address are saved, in words below the CFA; or [`KEPT`].
    rbp: u32,
    ra: u32,
}

const START: State = State {
    base: u32::MAX,
    offset: 0,
    rbp: KEPT,
    ra: KEPT,
};

/// Bytes still to be read.
#[derive(Clone)]
struct Reader<'a>(Iter<'a, u8>);

impl<'a> Reader<'a> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (&head, rest) = self.0.as_slice().split_first_chunk::<N>()?;
        self.0 = rest.iter();
        Some(head)
    }

    #[inline(always)]
    fn u8(&mut self) -> Option<u8> {
        self.0.next().copied()
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.as_slice().split_at_checked(len)?;
        self.0 = rest.iter();
        Some(head)
    }

    /// A register of one byte.
    #[inline]
    fn register(&mut self) -> Option<u32> {
        let number = self.u8()?;
        (number < 0x80).then_some(number.into())
    }

    /// An unsigned LEB128 of at most 3 bytes.
    #[inline(always)]
    fn uleb(&mut self) -> Option<u32> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(first.into());
        }
        // By value, so that the common case keeps the reader in registers.
        let (value, rest) = self.clone().longer(first)?;
        *self = rest;
        Some(value)
    }

    #[inline(never)]
    fn longer(mut self, first: u8) -> Option<(u32, Self)> {
        let second = u32::from(self.u8()?);
        let value = u32::from(first) & 0x7f | (second & 0x7f) << 7;
        if second < 0x80 {
            return Some((value, self));
        }
        let third = u32::from(self.u8()?);
        (third < 0x80).then_some((value | third << 14, self))
    }
}

/// `at` moved by a signed distance.
#[inline]
fn moved(at: usize, by: u32) -> usize {
    at.wrapping_add(by as i32 as isize as usize)
}

/// Place of `.eh_frame` from its header, of which this is the beginning. `None`: an unusual header.
#[inline]
pub(crate) fn frames(head: &[u8]) -> Option<isize> {
    let [a, b, c, d, distance @ ..] = *head.first_chunk::<8>()?;
    ([a, b, c, d] == HEADER).then_some(4 + i32::from_le_bytes(distance) as isize)
}

/// Unwind tables in memory: `bytes` is at address `base` and has the header at `header` and `.eh_frame` at `frames`
/// (linkers differ in which comes first).
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) base: usize,
    pub(crate) header: usize,
    pub(crate) frames: usize,
}

/// Rule for `pc`. `None`: ask the general reader.
pub(crate) fn rule(tables: &Tables<'_>, pc: usize) -> Option<u32> {
    let (head, rest) = tables
        .bytes
        .get(tables.header..)?
        .split_first_chunk::<TABLE>()?;
    let [.., a, b, c, d] = *head;
    let count = u32::from_le_bytes([a, b, c, d]) as usize;
    let table = rest.get(..count.checked_mul(ENTRY)?)?;
    let target = pc.wrapping_sub(tables.base).wrapping_sub(tables.header);
    let at = find(table, i32::try_from(target as isize).ok()?)?;
    let at = moved(tables.header, at);
    // The general reader wants the entry in `.eh_frame`.
    if at < tables.frames {
        return None;
    }
    entry(tables, at, pc)
}

/// Distance from the header to the FDE of the last function that begins at `target` or below.
#[inline]
fn find(table: &[u8], target: i32) -> Option<u32> {
    let (rows, _) = table.as_chunks::<ENTRY>();
    let start = |row: &[u8; ENTRY]| i32::from_le_bytes([row[0], row[1], row[2], row[3]]);
    let mut rows = rows;
    while rows.len() > 1 {
        let (low, high) = rows.split_at_checked(rows.len() / 2)?;
        rows = if start(high.first()?) <= target {
            high
        } else {
            low
        };
    }
    let &row = rows.first()?;
    if start(&row) > target {
        return None;
    }
    Some(u32::from_le_bytes([row[4], row[5], row[6], row[7]]))
}

/// Reads the FDE at `at`.
fn entry(tables: &Tables<'_>, at: usize, pc: usize) -> Option<u32> {
    let (mut fde, body) = record(tables.bytes, at)?;
    let cie_at = body.checked_sub(fde.u32()? as usize)?;
    if cie_at < tables.frames || cie_at == body {
        return None;
    }
    let cie = Cie::read(record(tables.bytes, cie_at)?.0)?;
    let place = tables.base.wrapping_add(body + 4);
    let begin = moved(place, fde.u32()?);
    let len = fde.u32()?;
    let after = pc.wrapping_sub(begin);
    // As a signed number the length would be negative; and no code lies so high that its end could wrap.
    if len > i32::MAX as u32 || begin > usize::MAX / 2 {
        return None;
    }
    let pointers = fde.uleb()?;
    if pointers < cie.pointers {
        return None;
    }
    fde.take(pointers as usize)?;
    if after >= len as usize {
        return Some(GUESS);
    }
    if cie.signal {
        return Some(END);
    }
    let state = run(fde, cie.state, Some((after as u32, cie.state)))?;
    state.rule()
}

/// The record at `at` behind its length, and where that begins.
#[inline]
fn record(bytes: &[u8], at: usize) -> Option<(Reader<'_>, usize)> {
    let mut all = Reader(bytes.get(at..)?.iter());
    let len = all.u32()?;
    // 0 ends the section, all ones announce a 64-bit length: longer than any section.
    Some((Reader(all.take(len as usize)?.iter()), at + 4)).filter(|_| len != 0)
}

struct Cie {
    /// Bytes that the augmentation of an FDE has at least.
    pointers: u32,
    signal: bool,
    /// What the initial instructions come to.
    state: State,
}

impl Cie {
    /// The bytes behind the identifier of the commonest CIE: "zR", pcrel|sdata4, CFA = rsp + 8, return address below.
    const COMMON: [u8; 14] = *b"\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01";

    #[inline]
    fn read(mut cie: Reader<'_>) -> Option<Self> {
        if cie.u32()? != 0 {
            return None;
        }
        match cie.0.as_slice().split_first_chunk() {
            Some((common, rest)) if *common == Self::COMMON && rest == [0, 0] => Some(Self {
                pointers: 0,
                signal: false,
                state: State {
                    base: RSP,
                    offset: 8,
                    rbp: KEPT,
                    ra: 1,
                },
            }),
            _ => Self::general(cie),
        }
    }

    #[inline(never)]
    fn general(mut cie: Reader<'_>) -> Option<Self> {
        let [1, b'z'] = cie.array()? else {
            return None;
        };
        // What the letters stand for comes after the NUL, the factors and the length of the augmentation.
        let end = cie
            .0
            .as_slice()
            .iter()
            .take(8)
            .position(|&byte| byte == 0)?;
        let letters = cie.take(end)?;
        let [0, a, b, c] = cie.array()? else {
            return None;
        };
        if [a, b, c] != FACTORS {
            return None;
        }
        let len = cie.uleb()? as usize;
        let mut data = Reader(cie.take(len)?.iter());
        let (mut signal, mut pointers, mut relative) = (false, 0, false);
        for letter in letters {
            match letter {
                b'R' => relative = data.u8()? == PCREL4,
                b'L' => pointers = pointer_size(data.u8()?)?,
                b'P' => {
                    let size = pointer_size(data.u8()?)?;
                    data.take(size as usize)?;
                }
                b'S' => signal = true,
                _ => return None,
            }
        }
        if !relative {
            return None;
        }
        let state = run(cie, START, None)?;
        if state.base == START.base {
            return None;
        }
        Some(Self {
            pointers,
            signal,
            state,
        })
    }
}

/// Bytes of a pointer of an encoding that needs no more than its own place.
fn pointer_size(encoding: u8) -> Option<u32> {
    // Indirect or not; absolute or relative to its place.
    match encoding & 0x6f {
        0x03 | 0x0b => Some(4),
        0x00 | 0x04 | 0x0c => Some(8),
        _ => None,
    }
}

/// Runs a program. For an FDE: up to the row of the byte at `stop.0`, with `stop.1` the CIE's state.
#[inline(always)]
fn run(mut code: Reader<'_>, mut state: State, stop: Option<(u32, State)>) -> Option<State> {
    let mut at = 0u64;
    let mut kept = [START; REMEMBERED];
    let mut depth = 0;
    while let Some(op) = code.u8() {
        let low = u32::from(op & 0x3f);
        let step = match op {
            0x40..=0x7f => low,
            0x80..=0xbf => {
                let words = code.uleb()?;
                state.save(low, words);
                continue;
            }
            0xc0..=0xff => {
                state.restore(low, stop?.1);
                continue;
            }
            0x00 => continue,
            0x02 => u32::from(code.u8()?),
            0x03 => u32::from(u16::from_le_bytes(code.array()?)),
            0x04 => code.u32()?,
            // remember_state, restore_state
            0x0a => {
                stop?;
                *kept.get_mut(depth)? = state;
                depth += 1;
                continue;
            }
            0x0b => {
                depth = depth.checked_sub(1)?;
                state = *kept.get(depth)?;
                continue;
            }
            // def_cfa, def_cfa_register, def_cfa_offset
            0x0c => {
                state.base = code.register()?;
                state.offset = code.uleb()?;
                continue;
            }
            0x0d => {
                stop?;
                state.base = code.register()?;
                continue;
            }
            0x0e => {
                stop?;
                state.offset = code.uleb()?;
                continue;
            }
            _ => {
                code = state.seldom(op, code, stop)?;
                continue;
            }
        };
        // The sum of two 32-bit numbers at most.
        at += u64::from(step);
        if at > u64::from(stop?.0) {
            break;
        }
    }
    Some(state)
}

impl State {
    #[inline]
    fn save(&mut self, register: u32, words: u32) {
        if register == RBP {
            self.rbp = words;
        } else if register == RA {
            self.ra = words;
        }
    }

    #[inline]
    fn restore(&mut self, register: u32, from: Self) {
        if register == RBP {
            self.rbp = from.rbp;
        } else if register == RA {
            self.ra = from.ra;
        }
    }

    #[cold]
    #[inline(never)]
    fn seldom<'a>(
        &mut self,
        op: u8,
        mut code: Reader<'a>,
        stop: Option<(u32, Self)>,
    ) -> Option<Reader<'a>> {
        match op {
            // offset_extended
            0x05 => {
                let register = code.register()?;
                self.save(register, code.uleb()?);
            }
            // restore_extended
            0x06 => self.restore(code.register()?, stop?.1),
            // undefined, same_value: for rbp there is no difference
            0x07 | 0x08 => self.save(code.register()?, KEPT),
            // expression of a register that does not matter
            0x10 => {
                let register = code.register()?;
                if matches!(register, RBP | RA) {
                    return None;
                }
                let len = code.uleb()? as usize;
                code.take(len)?;
            }
            // GNU_args_size
            0x2e => {
                code.uleb()?;
            }
            _ => return None,
        }
        Some(code)
    }

    fn rule(self) -> Option<u32> {
        if self.ra != 1 {
            return Some(END);
        }
        let kind = match self.base {
            RSP => KIND_RSP,
            RBP => KIND_RBP,
            _ => return Some(END),
        };
        let saved = if self.rbp == KEPT { 0 } else { self.rbp };
        Some(pack(
            kind,
            self.offset.into(),
            i64::from(saved) * 8,
            self.rbp == 0,
        ))
    }
}
