//! Unwind rules in one word, and their application.
//!
//! Theory: at a fixed PC the way to the caller's frame is fixed. Of all that DWARF can say, compilers use little at
//! call sites: CFA = rsp + k or rbp + k; for functions that realign their stack (gcc's DRAP) CFA = *(rbp + k) with
//! the caller's rbp at *rbp. The return address is at CFA - 8; the caller's rbp is at a fixed distance below the CFA,
//! or still in rbp. Everything else ends the walk. Return addresses lie at strictly rising places, so a walk ends,
//! and each read is checked to lie above the last return address and below the end of the stack.
//!
//! ```text
//! bits 0..3    kind, `KIND_*`; 0 (rsp) so that the commonest rule, which keeps rbp, is known by ten zero bits
//! bits 3..10   words from the place of the saved rbp up to the CFA; 0 = rbp unchanged, 127 = rbp lost
//! bits 10..32  words from the base to the CFA (or to the place that holds it), signed; from rsp at least 1
//! ```
//! A rule is never 0: that is a node whose rule nobody needed yet.

/// CFA from rsp.
pub(crate) const KIND_RSP: u32 = 0;
/// CFA from rbp.
pub(crate) const KIND_RBP: u32 = 2;
/// CFA read from a place given by rbp; the caller's rbp at rbp.
pub(crate) const KIND_DRAP: u32 = 3;
/// Nothing known of this address: perhaps a frame with a frame pointer.
pub(crate) const KIND_GUESS: u32 = 4;
/// The walk ends here.
pub(crate) const KIND_END: u32 = 5;

/// The rule that ends a walk.
pub(crate) const END: u32 = KIND_END;
/// The rule of code without unwind tables.
pub(crate) const GUESS: u32 = KIND_GUESS;
/// Saved-rbp field: the register is neither kept nor saved.
pub(crate) const RBP_LOST: u32 = 127;

/// The rule within a function that began with `push rbp; mov rbp, rsp`: CFA = rbp + 16, the caller's rbp at rbp.
const FRAME: u32 = KIND_RBP | 2 << 3 | 2 << 10;

/// Packs a rule from byte distances; [`END`] if a field does not fit. `saved` = bytes from the saved rbp up to the CFA.
pub(crate) fn pack(kind: u32, offset: i64, saved: i64, lost: bool) -> u32 {
    let words = offset / 8;
    let fits = offset % 8 == 0 && (-(1 << 21)..1 << 21).contains(&words);
    let saved_fits = saved % 8 == 0 && (0..i64::from(RBP_LOST) * 8).contains(&saved);
    // From rsp the return address must lie above rsp, and so must the saved register.
    let rises = kind != KIND_RSP || words >= 1 && saved <= offset;
    if !fits || !rises {
        return END;
    }
    let slot = if lost || !saved_fits {
        RBP_LOST
    } else {
        (saved / 8) as u32
    };
    kind | slot << 3 | (words as i32 as u32) << 10
}

/// A position in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Address of the stack word that holds the return address; 8-aligned.
    pub(crate) at: usize,
    /// rbp of the frame that the return address is in; 0 = not known.
    pub(crate) fp: usize,
}

/// Is `place` an aligned word above `at`, `last` at most?
#[inline]
fn inside(place: usize, at: usize, last: usize) -> bool {
    place > at && place <= last && place & 7 == 0
}

#[inline]
unsafe fn word(place: usize) -> usize {
    // SAFETY: the caller checked that the aligned word lies in readable stack. Volatile: other code owns this memory.
    unsafe { core::ptr::with_exposed_provenance::<usize>(place).read_volatile() }
}

/// What a rule leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    To(Cursor),
    End,
    /// It is 0.
    Unknown,
}

/// Bytes from the base.
#[inline(always)]
fn distance(rule: u32) -> usize {
    ((rule as i32 >> 10) as isize * 8) as usize
}

/// Words from one return address to the next, where they are fixed: the rule counts from rsp, whatever becomes of rbp.
pub(crate) fn words_from_rsp(rule: u32) -> Option<u16> {
    if rule == 0 || rule & 7 != KIND_RSP {
        return None;
    }
    u16::try_from(rule as i32 >> 10).ok()
}

/// Goes to the next outer frame.
///
/// # Safety
/// All words in `(from.at, last]` are readable; `from.at` is 8-aligned and below 2^47. The rule is of [`pack`], [`END`],
/// [`GUESS`] or 0.
#[inline(always)]
pub(crate) unsafe fn step(rule: u32, from: Cursor, last: usize) -> Step {
    /// Mask of the saved-rbp field, which in its place is a number of bytes.
    const SAVED: u32 = RBP_LOST << 3;
    if rule & (SAVED | 7) == KIND_RSP {
        let words = rule as i32 as isize >> 10;
        if words == 0 {
            return Step::Unknown;
        }
        let at = from.at + words as usize * 8;
        if at > last {
            return Step::End;
        }
        return Step::To(Cursor { at, fp: from.fp });
    }
    if rule == FRAME {
        let place = from.fp;
        // Aligned as both are, the word behind it is `last` at most.
        if place <= from.at || place >= last || place & 7 != 0 {
            return Step::End;
        }
        return Step::To(Cursor {
            at: place + 8,
            // SAFETY: checked to be inside.
            fp: unsafe { word(place) },
        });
    }
    let offset = distance(rule);
    let saved = rule & SAVED;
    let kind = rule & 7;
    let at = if kind == KIND_RSP {
        let at = from.at + offset;
        if at > last {
            return Step::End;
        }
        at
    } else if kind == KIND_RBP {
        let at = from.fp.wrapping_add(offset).wrapping_sub(8);
        if !inside(at, from.at, last) {
            return Step::End;
        }
        if saved == 0 {
            return Step::To(Cursor { at, fp: from.fp });
        }
        at
    } else {
        // SAFETY: as promised by the caller.
        let next = unsafe { rare(rule, from, last) };
        return if next.at == 0 {
            Step::End
        } else {
            Step::To(next)
        };
    };
    if saved == SAVED {
        return Step::To(Cursor { at, fp: 0 });
    }
    let place = at + 8 - saved as usize;
    // From rsp, `pack` sees to it.
    if kind != KIND_RSP && place <= from.at {
        return Step::End;
    }
    // SAFETY: above `from.at`, and not above `at`, which is at most `last`; aligned as `at` is.
    let fp = unsafe { word(place) };
    Step::To(Cursor { at, fp })
}

/// The kinds that few frames have. `at` = 0: end (a pair of words is returned in registers).
#[cold]
#[inline(never)]
unsafe fn rare(rule: u32, from: Cursor, last: usize) -> Cursor {
    const NO_FRAME: Cursor = Cursor { at: 0, fp: 0 };
    let Cursor { at, fp } = from;
    let (place, cfa) = match rule & 7 {
        // A frame whose stack gcc realigned: the place of the CFA is kept near rbp.
        KIND_DRAP => {
            let place = fp.wrapping_add(distance(rule));
            if !inside(place, at, last) {
                return NO_FRAME;
            }
            // SAFETY: checked to be inside.
            (fp, unsafe { word(place) })
        }
        // A frame that perhaps begins with `push rbp; mov rbp, rsp`.
        KIND_GUESS => (fp, fp.wrapping_add(16)),
        _ => return NO_FRAME,
    };
    let next = cfa.wrapping_sub(8);
    if !inside(place, at, last) || !inside(next, at, last) {
        return NO_FRAME;
    }
    // SAFETY: checked to be inside.
    let fp = unsafe { word(place) };
    Cursor { at: next, fp }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shadows the real one: `None` for the end.
    unsafe fn step(rule: u32, from: Cursor, last: usize) -> Option<Cursor> {
        // SAFETY: the caller's.
        match unsafe { super::step(rule, from, last) } {
            Step::To(next) => Some(next),
            Step::End => None,
            Step::Unknown => panic!("{rule:#x} is unknown"),
        }
    }

    fn base(words: &[usize]) -> usize {
        words.as_ptr().expose_provenance()
    }

    #[test]
    fn fields_that_do_not_fit_end_the_walk() {
        assert_eq!(pack(KIND_RSP, 12, 0, false), END);
        assert_eq!(pack(KIND_RSP, 0, 0, false), END);
        assert_eq!(pack(KIND_RSP, 16, 24, false), END);
        assert_eq!(pack(KIND_RBP, 8 << 21, 0, false), END);
        assert_ne!(pack(KIND_RBP, (8 << 21) - 8, 0, false), END);
        assert_eq!(pack(KIND_RSP, 4096, 2048, false) >> 3 & 127, RBP_LOST);
    }

    /// `step` relies on it: no rule is 0, and from rsp both the return address and the saved rbp lie above rsp.
    #[test]
    fn rules_from_rsp_rise() {
        for offset in -40..1200 {
            for saved in 0..1100 {
                let rule = pack(KIND_RSP, offset, saved, false);
                assert_ne!(rule, 0);
                if rule != END {
                    let slot = i64::from(rule >> 3 & 127);
                    assert!(offset >= 8 && distance(rule) as i64 == offset);
                    assert!(slot == i64::from(RBP_LOST) || slot * 8 <= offset);
                }
            }
        }
    }

    #[test]
    fn steps_follow_the_rule_and_stay_inside() {
        let stack = [0usize, 11, 22, 33, 44, 55];
        let b = base(&stack);
        let last = b + 40;
        let at = |place, fp| Some(Cursor { at: place, fp });
        let from = Cursor { at: b, fp: b + 16 };
        // SAFETY: `last` is the last word of the array.
        unsafe {
            assert_eq!(
                step(pack(KIND_RSP, 32, 24, false), from, last),
                at(b + 32, 22)
            );
            assert_eq!(
                step(pack(KIND_RSP, 40, 0, false), from, last),
                at(b + 40, b + 16)
            );
            assert_eq!(step(pack(KIND_RSP, 48, 0, false), from, last), None);
            assert_eq!(step(pack(KIND_RSP, 32, 0, true), from, last), at(b + 32, 0));
            assert_eq!(
                step(pack(KIND_RBP, 16, 16, false), from, last),
                at(b + 24, 22)
            );
            assert_eq!(step(pack(KIND_RBP, -8, 16, false), from, last), None);
            assert_eq!(
                step(
                    pack(KIND_RBP, 16, 16, false),
                    Cursor { at: b, fp: b + 17 },
                    last
                ),
                None
            );
            assert_eq!(step(pack(KIND_RBP, 16, 504, false), from, last), None);
            assert_eq!(step(GUESS, from, last), at(b + 24, 22));
            assert_eq!(step(GUESS, Cursor { at: b, fp: b }, last), None);
            assert_eq!(
                step(
                    GUESS,
                    Cursor {
                        at: b,
                        fp: usize::MAX - 7
                    },
                    last
                ),
                None
            );
            assert_eq!(step(END, from, last), None);
            assert_eq!(super::step(0, from, last), Step::Unknown);
        }
    }

    #[test]
    fn a_frame_as_compilers_make_it() {
        assert_eq!(pack(KIND_RBP, 16, 16, false), FRAME);
        let stack = [0usize, 11, 22, 33, 44, 55];
        let b = base(&stack);
        // SAFETY: `b + 40` is the last word of the array.
        let go = |fp| unsafe { step(FRAME, Cursor { at: b, fp }, b + 40) };
        let to = |at, fp| Some(Cursor { at, fp });
        assert_eq!(go(b + 8), to(b + 16, 11));
        assert_eq!(go(b + 32), to(b + 40, 44));
        for bad in [
            0,
            b - 8,
            b,
            b + 12,
            b + 40,
            b + 48,
            usize::MAX - 7,
            usize::MAX,
        ] {
            assert_eq!(go(bad), None, "{bad:#x}");
        }
    }

    #[test]
    fn a_realigned_frame_reads_its_cfa() {
        let mut stack = [0usize; 8];
        let b = stack.as_mut_ptr().expose_provenance();
        // SAFETY: words of the array, which is written through this pointer only.
        let set = |index: usize, value| unsafe {
            core::ptr::with_exposed_provenance_mut::<usize>(b)
                .add(index)
                .write(value)
        };
        let rule = pack(KIND_DRAP, -8, 0, false);
        // SAFETY: the last word of the array bounds the reads.
        let go = |fp| unsafe { step(rule, Cursor { at: b, fp }, b + 56) };
        set(3, 77);
        set(2, b + 56);
        assert_eq!(go(b + 24), Some(Cursor { at: b + 48, fp: 77 }));
        for bad in [b + 72, b + 8, b + 52, 0, usize::MAX] {
            set(2, bad);
            assert_eq!(go(b + 24), None, "{bad:#x}");
        }
        for bad in [b + 20, b + 8, b + 72, 0] {
            assert_eq!(go(bad), None, "{bad:#x}");
        }
    }
}
