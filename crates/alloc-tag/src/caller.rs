//! Tags made at run time, one for each place that a `#[track_caller]` function is called from.
//!
//! A library whose users cannot be asked to write a macro charges them by their [`Location`]. The tag of a place is made at
//! its first call and registered like a module of one tag, so it works with whatever runtime the process has, and its row
//! stays when the object file is unloaded and is found again when it comes back.
//!
//! The table is open addressing over [`PLACES`] slots, keyed by file, line and column: the compiler may make several
//! `Location`s for one place. A hit is a hash of three words and a few compares, without a lock or a write. A slot is
//! claimed by a compare-exchange of its location; who claimed it registers the tag and publishes the index. Others that
//! come meanwhile wait for a bounded time, so nothing hangs in a forked child whose parent was just registering.
//! What finds no room is charged to a row of its own and counted ([`lost_callers`]).

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::panic::Location;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use codetag::CodeTag;
use memledger_abi::ModuleTags;

use crate::saved::SavedTag;
use crate::slot::Guard;
use crate::{module, slot};

/// Most places of an object file that get a row of their own.
pub const PLACES: usize = 4096;
/// Slots looked at for one place.
const PROBES: usize = 64;
/// Times a thread yields to another that is registering the same place.
const PATIENCE: u32 = 10_000;

/// What the rows of such tags have for a function: a `Location` does not know it.
const UNKNOWN: &str = "?";

/// The function of the row of what found no room.
const NO_ROOM: &str = "more_callers_than_fit";

/// [`Slot::done`] of a place whose registration never ended: a forked child lacks the thread that was at it.
const GIVEN_UP: u32 = u32::MAX;

struct Slot {
    location: AtomicPtr<Location<'static>>,
    /// 0 = being registered; [`GIVEN_UP`]; else the index + 1.
    done: AtomicU32,
    tag: UnsafeCell<MaybeUninit<CodeTag>>,
}

// SAFETY: `tag` is written once, by the thread that claimed `location`, before it is registered; then only shared.
unsafe impl Sync for Slot {}

impl Slot {
    const fn free() -> Slot {
        Slot {
            location: AtomicPtr::new(null_mut()),
            done: AtomicU32::new(0),
            tag: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

static TABLE: [Slot; PLACES] = [const { Slot::free() }; PLACES];
/// What is charged when there is no room. Registered when it is needed, as the others.
static OVERFLOW: Slot = Slot::free();
static USED: AtomicU32 = AtomicU32::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Calls that found no room in the table and were charged to the row of the function `more_callers_than_fit`.
pub fn lost_callers() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Evaluates a closure with a tag of the caller's place as the current tag: for the library's side of `#[track_caller]`.
///
/// The place is that of the call to the outermost function of an unbroken chain of `#[track_caller]` functions, as in the
/// message of a panic; its row has file, line and column, and `?` for the function. Hooks inside the closure win over it.
/// The first call of a place takes a lock and maps memory, so it must not come from a signal handler; later calls
/// neither lock nor write. Without a runtime it only calls the closure.
///
/// ```
/// # assert!(alloc_tag::runtime::start_local());
/// #[track_caller]
/// fn buffer(n: usize) -> (Vec<u8>, u32) {
///     alloc_tag::charge_caller(|| (vec![0; n], alloc_tag::current()))
/// }
///
/// let (_, index) = buffer(10);
/// let row = alloc_tag::tag_row(index).unwrap();
/// assert_eq!((row.file(), row.line()), (file!(), line!() - 2));
/// ```
#[track_caller]
#[inline]
pub fn charge_caller<R>(f: impl FnOnce() -> R) -> R {
    let _guard = enter_caller();
    f()
}

/// As [`charge_caller`], until the guard is dropped.
#[track_caller]
#[inline]
pub fn enter_caller() -> Guard {
    slot::enter_index(caller_index(Location::caller()))
}

/// The tag of the caller's place, to be kept: see [`SavedTag::caller`].
#[track_caller]
#[inline]
pub(crate) fn caller_tag() -> SavedTag {
    SavedTag::from_index(caller_index(Location::caller()))
}

/// Index of a place's tag; 0 without a runtime.
#[inline]
fn caller_index(location: &'static Location<'static>) -> u32 {
    if slot::offset() == 0 {
        return 0;
    }
    let start = hash(location) as usize;
    for i in 0..PROBES {
        let slot = &TABLE[(start + i) % PLACES];
        // SAFETY: null, or a `&'static Location`.
        match unsafe { slot.location.load(Ordering::Acquire).as_ref() } {
            Some(known) if same(known, location) => {
                return match slot.done.load(Ordering::Acquire) {
                    0 | GIVEN_UP => wait(slot).unwrap_or_else(lost),
                    done => done - 1,
                };
            }
            Some(_) => {}
            None => return insert(location, start, i),
        }
    }
    lost()
}

#[inline]
fn same(a: &'static Location<'static>, b: &'static Location<'static>) -> bool {
    core::ptr::eq(a, b) || (a.line(), a.column(), a.file()) == (b.line(), b.column(), b.file())
}

/// The file's name goes in by its length only: places differ by line and column.
#[inline]
fn hash(location: &Location<'_>) -> u64 {
    let words = u64::from(location.line()) << 32
        ^ u64::from(location.column()) << 12
        ^ location.file().len() as u64;
    words.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// Claims the first free slot from probe `from` on, unless somebody claims one for the same place first.
#[cold]
fn insert(location: &'static Location<'static>, start: usize, from: usize) -> u32 {
    (from..PROBES)
        .find_map(|i| claim(&TABLE[(start + i) % PLACES], location, || UNKNOWN))
        .unwrap_or_else(lost)
}

/// Makes a free slot that of a place. `None`: it is another's.
fn claim(
    slot: &'static Slot,
    location: &'static Location<'static>,
    func: fn() -> &'static str,
) -> Option<u32> {
    let pointer = (&raw const *location).cast_mut();
    let claim =
        slot.location
            .compare_exchange(null_mut(), pointer, Ordering::AcqRel, Ordering::Acquire);
    match claim {
        Ok(_) => Some(register(slot, location, func)),
        // SAFETY: not null, so a `&'static Location`.
        Err(known) if same(unsafe { &*known }, location) => Some(wait(slot).unwrap_or_else(lost)),
        Err(_) => None,
    }
}

fn register(
    slot: &'static Slot,
    location: &'static Location<'static>,
    func: fn() -> &'static str,
) -> u32 {
    let tag = CodeTag::new(
        location.file(),
        "",
        func,
        location.line(),
        location.column(),
    );
    // SAFETY: this thread claimed the slot, and nobody reads `tag` before `done` is set or the tag is registered.
    let tag: &'static CodeTag = unsafe { (*slot.tag.get()).write(tag) };
    module::register_range(&range(tag, location));
    USED.fetch_add(1, Ordering::Relaxed);
    let index = tag.index();
    slot.done.store(index + 1, Ordering::Release);
    index
}

fn range(tag: &CodeTag, anchor: *const Location<'static>) -> ModuleTags {
    let start = (&raw const *tag) as u64;
    ModuleTags {
        start,
        stop: start + size_of::<CodeTag>() as u64,
        anchor: anchor as u64,
        current_tag_offset: 0,
    }
}

/// The index of a slot that somebody has claimed. Who comes late finds out at once that there will be none.
#[cold]
fn wait(slot: &Slot) -> Option<u32> {
    for _ in 0..PATIENCE {
        match slot.done.load(Ordering::Acquire) {
            // SAFETY: no preconditions.
            0 => unsafe {
                libc::sched_yield();
            },
            GIVEN_UP => return None,
            done => return Some(done - 1),
        }
    }
    // If it was only slow, its result comes in over this.
    let _ = slot
        .done
        .compare_exchange(0, GIVEN_UP, Ordering::Relaxed, Ordering::Relaxed);
    None
}

/// The row of what found no room; no tag if even that cannot be had.
#[cold]
fn lost() -> u32 {
    LOST.fetch_add(1, Ordering::Relaxed);
    match OVERFLOW.done.load(Ordering::Acquire) {
        0 if OVERFLOW.location.load(Ordering::Acquire).is_null() => {
            claim(&OVERFLOW, Location::caller(), || NO_ROOM).unwrap_or(0)
        }
        0 | GIVEN_UP => wait(&OVERFLOW).unwrap_or(0),
        done => done - 1,
    }
}

/// Calls `f` with the description of each tag made here, when this object file is unloaded.
pub(crate) fn each_range(mut f: impl FnMut(&ModuleTags)) {
    if USED.load(Ordering::Relaxed) == 0 {
        return;
    }
    for slot in TABLE.iter().chain([&OVERFLOW]) {
        let location = slot.location.load(Ordering::Acquire);
        if !location.is_null() && ![0, GIVEN_UP].contains(&slot.done.load(Ordering::Acquire)) {
            // SAFETY: an index is put to `done` after `tag` was written, for ever.
            f(&range(
                unsafe { (*slot.tag.get()).assume_init_ref() },
                location,
            ));
        }
    }
}

/// Whether a row is that of such a tag, which belongs to its module without being in the module's own range.
pub fn is_caller_row(row: &codetag::Row) -> bool {
    row.module_path().is_empty() && [UNKNOWN, NO_ROOM].contains(&row.func())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    /// A `Location` can be had from a call only: as many as there are calls in the source. So the table is filled by hand.
    fn fill() -> Vec<&'static Slot> {
        let taken = TABLE.iter().filter(|slot| {
            slot.location
                .compare_exchange(
                    null_mut(),
                    (&raw const *Location::caller()).cast_mut(),
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )
                .is_ok()
        });
        taken.collect()
    }

    #[test]
    fn places_share_a_tag_and_what_finds_no_room_is_counted() {
        #[track_caller]
        fn here() -> (u32, u32) {
            (charge_caller(slot::current), Location::caller().line())
        }
        assert!(crate::runtime::start_local());
        let known = || here();
        let (index, line) = known();
        assert_eq!((known().0, lost_callers()), (index, 0));
        let row = crate::tag_row(index).unwrap();
        assert_eq!((row.file(), row.line(), row.func()), (file!(), line, "?"));
        assert!(is_caller_row(row));
        // The same place by another `Location`.
        let copy: &'static Location<'static> = Box::leak(Box::new(*Location::caller()));
        let original: &'static Location<'static> = Box::leak(Box::new(*copy));
        assert_eq!(caller_index(copy), caller_index(original));

        let filled = fill();
        assert!(filled.len() > PLACES - 10);
        let (index, _) = here();
        let row = crate::tag_row(index).unwrap();
        assert_eq!((row.func(), lost_callers()), (NO_ROOM, 1));
        assert_eq!((here().0, lost_callers()), (index, 2));
        assert_eq!(known().1, line);
        assert_eq!(lost_callers(), 2);

        // Somebody began with a place and is no more.
        let dead = filled[0];
        dead.location
            .store((&raw const *copy).cast_mut(), Ordering::Release);
        assert_eq!(
            (wait(dead), dead.done.load(Ordering::Relaxed)),
            (None, GIVEN_UP)
        );
        let mut ranges = 0;
        each_range(|_| ranges += 1);
        assert_eq!(ranges, USED.load(Ordering::Relaxed));
        for slot in filled {
            slot.location.store(null_mut(), Ordering::Release);
        }
    }
}
