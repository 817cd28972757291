//! From `.eh_frame` to a rule.
//!
//! Theory: `.eh_frame_hdr` has a sorted table of functions; the entry of a function is a small program whose row for
//! the PC says where the CFA and the registers are. gimli runs it on a few hundred bytes of stack, without
//! allocation; [`eh`] answers first, at a fifth of the cost, where the tables are as they usually are. Only rbp and the return address matter; whatever cannot be said in a rule ends the walk. Entries of
//! signal trampolines (augmentation `S`) end it too: what lies beyond was interrupted, it did not call.

use crate::eh::{self, Tables};
use crate::platform::Object;
use crate::rule::{END, GUESS, KIND_DRAP, KIND_RBP, KIND_RSP, pack};
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, FrameDescriptionEntry, LittleEndian,
    Pointer, Register, RegisterRule, UnwindContext, UnwindContextStorage as Storage,
    UnwindExpression, UnwindSection, UnwindTableRow, X86_64,
};

type Bytes = EndianSlice<'static, LittleEndian>;

/// Room for a row: the callee-saved registers, the return address and some more.
pub(crate) struct Small;
impl Storage<usize> for Small {
    type Rules = [(Register, RegisterRule<usize>); 10];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// Rule of the call that ends at `pc` (the return address less 1) in `object`. `limit` = end of the mapped bytes that
/// hold the unwind tables.
///
/// # Safety
/// The segment that holds `.eh_frame_hdr` and `.eh_frame` is mapped readable up to `limit`, and stays so for the
/// duration of the call.
#[cold]
#[inline(never)]
pub(crate) unsafe fn rule_for(object: &Object, limit: usize, pc: usize) -> u32 {
    let header = object.eh_frame_hdr;
    if header == 0 {
        return GUESS;
    }
    // SAFETY: as promised by the caller.
    unsafe {
        match quick(object, limit, pc) {
            Some(rule) => rule,
            None => parse::<Small>(header, limit, pc).unwrap_or(GUESS),
        }
    }
}

/// The quick reader, where it can be used.
#[inline]
pub(crate) unsafe fn quick(object: &Object, limit: usize, pc: usize) -> Option<u32> {
    let header = object.eh_frame_hdr;
    // SAFETY: as promised by the caller of `rule_for`.
    let start = header.checked_add_signed(eh::frames(unsafe { bytes(header, limit) }?.slice())?)?;
    let base = start.min(header);
    if base < object.start {
        return None;
    }
    let tables = Tables {
        // SAFETY: as promised by the caller of `rule_for`: both tables are in one segment, which `limit` ends.
        bytes: unsafe { bytes(base, limit) }?.slice(),
        base,
        header: header - base,
        frames: start - base,
    };
    eh::rule(&tables, pc)
}

/// The general reader. `None` = no entry covers `pc`.
#[inline(never)]
pub(crate) unsafe fn parse<S: Storage<usize>>(
    header: usize,
    limit: usize,
    pc: usize,
) -> Option<u32> {
    // SAFETY: as promised by the caller of `rule_for`.
    let header_bytes = unsafe { bytes(header, limit) }?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header as u64);
    let parsed = EhFrameHdr::from(header_bytes).parse(&bases, 8).ok()?;
    let Pointer::Direct(start) = parsed.eh_frame_ptr() else {
        return Some(END);
    };
    let start = start as usize;
    // SAFETY: the tables are in one segment, which `limit` ends; `bytes` refuses an inverted range.
    let frame = EhFrame::from(unsafe { bytes(start, limit) }?);
    let bases = bases.set_eh_frame(start as u64);
    let Some(Pointer::Direct(entry)) = parsed.table()?.lookup(pc as u64, &bases).ok() else {
        return Some(END);
    };
    let offset = (entry as usize).checked_sub(start)?;
    let entry = frame
        .fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset)
        .ok()?;
    if !entry.contains(pc as u64) {
        return None;
    }
    if entry.is_signal_trampoline() {
        return Some(END);
    }
    Some(run::<S>(&frame, &bases, &entry, pc))
}

fn run<S: Storage<usize>>(
    frame: &EhFrame<Bytes>,
    bases: &BaseAddresses,
    entry: &FrameDescriptionEntry<Bytes>,
    pc: usize,
) -> u32 {
    let mut context = UnwindContext::<usize, S>::new_in();
    match entry.unwind_info_for_address(frame, bases, &mut context, pc as u64) {
        Ok(row) => translate(frame, row),
        Err(_) => END,
    }
}

fn translate<S: Storage<usize>>(frame: &EhFrame<Bytes>, row: &UnwindTableRow<usize, S>) -> u32 {
    if !matches!(row.register(X86_64::RA), Some(RegisterRule::Offset(-8))) {
        return END;
    }
    let rbp = row.register(X86_64::RBP);
    let (kind, offset) = match row.cfa() {
        CfaRule::RegisterAndOffset {
            register: X86_64::RSP,
            offset,
        } => (KIND_RSP, *offset),
        CfaRule::RegisterAndOffset {
            register: X86_64::RBP,
            offset,
        } => (KIND_RBP, *offset),
        CfaRule::RegisterAndOffset { .. } => return END,
        CfaRule::Expression(expression) => {
            let at_rbp = matches!(&rbp, Some(RegisterRule::Expression(e)) if rbp_plus(frame, e, false) == Some(0));
            return match rbp_plus(frame, expression, true) {
                Some(offset) if at_rbp => pack(KIND_DRAP, offset, 0, false),
                _ => END,
            };
        }
    };
    match rbp {
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => {
            pack(kind, offset, 0, false)
        }
        Some(RegisterRule::Offset(saved)) if saved < 0 => {
            pack(kind, offset, saved.saturating_neg(), false)
        }
        Some(_) => pack(kind, offset, 0, true),
    }
}

/// The k of the expression `rbp + k`, or of `*(rbp + k)` if `deref`.
fn rbp_plus(
    frame: &EhFrame<Bytes>,
    expression: &UnwindExpression<usize>,
    deref: bool,
) -> Option<i64> {
    let code = expression.get(frame).ok()?.0.slice();
    let (&[op], rest) = code.split_first_chunk::<1>()?;
    if op != gimli::DW_OP_breg6.0 {
        return None;
    }
    let (value, rest) = sleb(rest)?;
    match rest {
        [] if !deref => Some(value),
        [op] if deref && *op == gimli::DW_OP_deref.0 => Some(value),
        _ => None,
    }
}

/// A signed LEB128 of at most 4 bytes.
fn sleb(code: &[u8]) -> Option<(i64, &[u8])> {
    let mut value = 0i64;
    for (index, &byte) in code.iter().enumerate().take(4) {
        let shift = 7 * index as u32;
        value |= i64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            let unused = 64 - 7 - shift;
            return Some((value << unused >> unused, code.get(index + 1..)?));
        }
    }
    None
}

/// # Safety
/// `[start, end)` is mapped readable while the result is in use.
unsafe fn bytes(start: usize, end: usize) -> Option<Bytes> {
    let len = end.checked_sub(start)?;
    // SAFETY: as promised by the caller; mapped code and tables are not written.
    let slice =
        unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(start), len) };
    Some(EndianSlice::new(slice, LittleEndian))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_numbers() {
        assert_eq!(sleb(&[0x78]), Some((-8, &[][..])));
        assert_eq!(sleb(&[0x00, 0x06]), Some((0, &[6][..])));
        assert_eq!(sleb(&[0x80, 0x7f]), Some((-128, &[][..])));
        assert_eq!(sleb(&[0xff, 0x00]), Some((127, &[][..])));
        assert_eq!(sleb(&[0x80]), None);
        assert_eq!(sleb(&[]), None);
    }

    #[test]
    fn the_context_is_small() {
        assert!(size_of::<UnwindContext<usize, Small>>() < 2048);
    }
}
