//! Which object files return addresses belonged to, for readers after the fact.
//!
//! Theory: an address means something only together with the file that was mapped there. When a node is made, the
//! loader is asked for that file, and a record of it (place, bias, path, build-id) is kept for ever, so a stack can
//! be named after `dlclose` or in a core file. A record is filled, then its state is released; slots are claimed by
//! CAS on the count. Two threads may record the same file twice: harmless.
//!
//! `dlclose` ends a record (state 2). If the same file (path, build-id, place, bias) is mapped at the same place again,
//! the record lives again, so that loading in a loop does not fill the table.

use crate::bounds::PAGE;
use crate::platform::{Object, Platform};
use core::cell::Cell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use memledger_abi::ModuleRecord;

/// Records there is room for, the empty record 0 included.
pub(crate) const CAPACITY: u32 = 4096;
/// Bytes for all paths.
const NAME_BYTES: usize = 1 << 20;
/// Longest path kept, in bytes.
const NAME_MAX: usize = 4096;
/// Bytes of the header page that are looked at.
const HEADER: usize = 4096;
/// Most bytes of a note segment that are looked at.
const NOTE_MAX: usize = 2048;

/// Records remembered by identity; a power of two.
const HINTS: usize = 64;

/// [`ModuleRecord::state`].
pub(crate) const LOADED: u32 = 1;
/// [`ModuleRecord::state`].
pub(crate) const UNLOADED: u32 = 2;

/// What only the runtime needs to know of a module.
struct Side {
    identity: AtomicUsize,
    /// End of the segment with the unwind tables.
    limit: AtomicUsize,
}

pub(crate) struct Modules {
    records: AtomicPtr<ModuleRecord>,
    sides: AtomicPtr<Side>,
    names: AtomicPtr<u8>,
    names_used: AtomicUsize,
    count: AtomicU32,
    /// Where a record was found last, by its identity's hash: most programs use few files at a time.
    hints: [AtomicU32; HINTS],
}

impl Modules {
    pub(crate) const fn new() -> Self {
        Self {
            records: AtomicPtr::new(core::ptr::null_mut()),
            sides: AtomicPtr::new(core::ptr::null_mut()),
            names: AtomicPtr::new(core::ptr::null_mut()),
            names_used: AtomicUsize::new(0),
            count: AtomicU32::new(1),
            hints: [const { AtomicU32::new(0) }; HINTS],
        }
    }

    /// Maps the tables; the answer is their size in bytes. `None`: no memory.
    pub(crate) fn init(&self, platform: &impl Platform) -> Option<usize> {
        let sizes = [
            CAPACITY as usize * size_of::<ModuleRecord>(),
            CAPACITY as usize * size_of::<Side>(),
            NAME_BYTES,
        ];
        let [records, sides, names] = sizes.map(|bytes| platform.map(bytes));
        if records.is_null() || sides.is_null() || names.is_null() {
            return None;
        }
        self.records.store(records.cast(), Ordering::Release);
        self.sides.store(sides.cast(), Ordering::Release);
        self.names.store(names, Ordering::Release);
        Some(sizes.iter().sum())
    }

    pub(crate) fn address(&self) -> usize {
        self.records.load(Ordering::Acquire).expose_provenance()
    }

    /// Address of the count of records.
    pub(crate) fn count_at(&self) -> u64 {
        self.count.as_ptr().expose_provenance() as u64
    }

    /// Records made, record 0 included.
    pub(crate) fn len(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    fn record(&self, number: u32) -> *mut ModuleRecord {
        // SAFETY: `number` is below CAPACITY, the size of the table.
        unsafe { self.records.load(Ordering::Acquire).add(number as usize) }
    }

    fn side(&self, number: u32) -> &Side {
        // SAFETY: `number` is below CAPACITY, the size of the table, which is never unmapped; all bit patterns are
        // valid.
        unsafe { &*self.sides.load(Ordering::Acquire).add(number as usize) }
    }

    fn state_word(&self, number: u32) -> &AtomicU32 {
        // SAFETY: the state is an aligned word of the record and is accessed only as an atomic.
        unsafe {
            &*self
                .record(number)
                .byte_add(offset_of!(ModuleRecord, state))
                .cast()
        }
    }

    /// 0 while it is being filled, [`LOADED`] or [`UNLOADED`].
    pub(crate) fn state(&self, number: u32) -> u32 {
        self.state_word(number).load(Ordering::Acquire)
    }

    /// The object was unloaded.
    pub(crate) fn end(&self, number: u32) {
        self.state_word(number).store(UNLOADED, Ordering::Release);
    }

    /// Copies what a filled record says, but for its state.
    fn read(&self, number: u32) -> ModuleRecord {
        let mut copy = EMPTY;
        let record = self.record(number);
        // SAFETY: the fields of a record whose state was seen as not 0 never change, but for the state; each is read
        // for itself so that the state is not.
        unsafe {
            copy.start = (*record).start;
            copy.end = (*record).end;
            copy.bias = (*record).bias;
            copy.name = (*record).name;
            copy.name_len = (*record).name_len;
            copy.build_id = (*record).build_id;
            copy.build_id_len = (*record).build_id_len;
        }
        copy
    }

    /// Lowest mapped address of a filled record.
    pub(crate) fn range(&self, number: u32) -> (usize, usize) {
        let record = self.read(number);
        (record.start as usize, record.end as usize)
    }

    /// Is the recorded object the one that the loader describes?
    pub(crate) fn is(&self, number: u32, object: &Object) -> bool {
        self.side(number).identity.load(Ordering::Relaxed) == object.identity
            && same_place(&self.read(number), object)
            && {
                let record = self.read(number);
                // SAFETY: the loader's name of a loaded object, and our copy, of the length stored with it.
                unsafe { name_of(object) == stored_name(&record) }
            }
    }

    /// End of the mapped bytes that hold the unwind tables of a recorded object.
    pub(crate) fn limit(&self, number: u32, object: &Object) -> usize {
        if number == 0 {
            object.end
        } else {
            self.side(number).limit.load(Ordering::Relaxed)
        }
    }

    /// Number of the living record of `object`, made or brought back to life if need be; 0 = no room.
    pub(crate) fn enter(&self, platform: &impl Platform, object: &Object) -> u32 {
        let hash = object.identity.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HINTS.ilog2());
        let hint = &self.hints[hash % HINTS];
        let number = hint.load(Ordering::Relaxed);
        if number != 0 && self.is_current(number, object) {
            return number;
        }
        let number = self.search(platform, object);
        hint.store(number, Ordering::Relaxed);
        number
    }

    /// Is this the living record of `object`?
    #[inline]
    fn is_current(&self, number: u32, object: &Object) -> bool {
        self.state(number) == LOADED
            && self.side(number).identity.load(Ordering::Relaxed) == object.identity
            && same_place(&self.read(number), object)
    }

    #[cold]
    #[inline(never)]
    fn search(&self, platform: &impl Platform, object: &Object) -> u32 {
        let count = self.len();
        if let Some(number) = (1..count).find(|&n| self.is_current(n, object)) {
            return number;
        }
        let image = Image::read(platform, object);
        // SAFETY: the loader keeps the name of a loaded object.
        let name = unsafe { name_of(object) };
        let again = (1..count)
            .filter(|&n| self.state(n) == UNLOADED)
            .find(|&n| {
                let old = self.read(n);
                same_place(&old, object)
                    && (old.build_id, old.build_id_len) == (image.build_id, image.build_id_len)
                    // SAFETY: our copy, of the length stored with it.
                    && unsafe { stored_name(&old) } == name
            });
        match again {
            Some(number) => {
                self.publish(number, object, &image);
                number
            }
            None => self.make(object, &image, name),
        }
    }

    fn publish(&self, number: u32, object: &Object, image: &Image) {
        let side = self.side(number);
        side.identity.store(object.identity, Ordering::Relaxed);
        side.limit.store(image.limit, Ordering::Relaxed);
        self.state_word(number).store(LOADED, Ordering::Release);
    }

    fn make(&self, object: &Object, image: &Image, name: &[u8]) -> u32 {
        let Some(copy) = self.copy(name) else {
            return 0;
        };
        let claim = |n| (n < CAPACITY).then_some(n + 1);
        let Ok(number) = self
            .count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, claim)
        else {
            return 0;
        };
        let record = self.record(number);
        // SAFETY: only this thread has the number, and others look at the rest only after the state; the state itself
        // is not written here.
        unsafe {
            (*record).start = object.start as u64;
            (*record).end = object.end as u64;
            (*record).bias = object.bias as u64;
            (*record).name = copy as u64;
            (*record).name_len = name.len() as u32;
            (*record).build_id = image.build_id;
            (*record).build_id_len = image.build_id_len;
        }
        self.publish(number, object, image);
        number
    }

    /// Copies a path to the area of names.
    fn copy(&self, name: &[u8]) -> Option<usize> {
        let claim = |used: usize| (used + name.len() <= NAME_BYTES).then_some(used + name.len());
        let at = self
            .names_used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim)
            .ok()?;
        // SAFETY: `at + len` is within the area, and these bytes were claimed for this thread.
        let place = unsafe { self.names.load(Ordering::Acquire).add(at) };
        // SAFETY: as above; a fresh place cannot overlap the loader's string.
        unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), place, name.len()) };
        Some(place.expose_provenance())
    }
}

const EMPTY: ModuleRecord = ModuleRecord {
    start: 0,
    end: 0,
    bias: 0,
    name: 0,
    name_len: 0,
    state: 0,
    build_id: [0; 20],
    build_id_len: 0,
    pad: [0; 2],
};

fn same_place(record: &ModuleRecord, object: &Object) -> bool {
    (record.start, record.end, record.bias)
        == (object.start as u64, object.end as u64, object.bias as u64)
}

/// # Safety
/// `object.name` is 0 or a NUL-terminated string that stays for the time of use.
unsafe fn name_of(object: &Object) -> &[u8] {
    if object.name == 0 {
        return &[];
    }
    let start = core::ptr::with_exposed_provenance::<u8>(object.name);
    let mut len = 0;
    // SAFETY: no byte behind the NUL is read.
    while len < NAME_MAX && unsafe { *start.add(len) } != 0 {
        len += 1;
    }
    // SAFETY: these bytes were just read.
    unsafe { core::slice::from_raw_parts(start, len) }
}

/// # Safety
/// `record` is a copy of a filled record.
unsafe fn stored_name(record: &ModuleRecord) -> &[u8] {
    if record.name_len == 0 {
        return &[];
    }
    let start = core::ptr::with_exposed_provenance(record.name as usize);
    // SAFETY: the copy made with the record, which is never freed or changed.
    unsafe { core::slice::from_raw_parts(start, record.name_len as usize) }
}

/// What the ELF header of a mapped object says.
struct Image {
    limit: usize,
    build_id: [u8; 20],
    build_id_len: u32,
}

impl Image {
    /// Reads the program headers in the first page of the mapping. What cannot be read there is left out.
    #[inline(never)]
    fn read(platform: &impl Platform, object: &Object) -> Self {
        let mut image = Self {
            limit: object.end,
            build_id: [0; 20],
            build_id_len: 0,
        };
        let page = Mapped::new(
            platform,
            object.start,
            object.start.saturating_add(HEADER).min(object.end),
        );
        if page.u64(0) & 0xff_ffff_ffff != 0x02_46_4c_45_7f {
            return image;
        }
        let (table, size, count) = (page.u64(32) as usize, page.u16(54), page.u16(56));
        if size != 56 || table >= HEADER {
            return image;
        }
        for index in 0..usize::from(count) {
            let at = table + index * 56;
            if at + 56 > HEADER {
                break;
            }
            let [place, file, memory] = [16, 32, 40].map(|field| page.u64(at + field) as usize);
            let start = object.bias.wrapping_add(place);
            let end = start.saturating_add(memory).min(object.end);
            match page.u64(at) as u32 {
                1 if start <= object.eh_frame_hdr && object.eh_frame_hdr < end => image.limit = end,
                4 if start >= object.start && start < object.end && image.build_id_len == 0 => {
                    let end = start.saturating_add(file.min(NOTE_MAX)).min(object.end);
                    image.find_build_id(&Mapped::new(platform, start, end));
                }
                _ => {}
            }
        }
        image
    }

    fn find_build_id<P: Platform>(&mut self, notes: &Mapped<P>) {
        let mut at = 0;
        while at + 12 <= notes.len() {
            let lengths = notes.u64(at);
            let (name, desc) = (lengths as u32 as usize, (lengths >> 32) as usize);
            let kind = notes.u32(at + 8);
            let body = at + 12 + name.next_multiple_of(4);
            if name == 4 && kind == 3 && notes.u32(at + 12) == u32::from_le_bytes(*b"GNU\0") {
                let len = desc.min(20);
                if body + len <= notes.len() {
                    for (index, byte) in self.build_id.iter_mut().enumerate().take(len) {
                        *byte = notes.u8(body + index);
                    }
                    self.build_id_len = len as u32;
                }
                return;
            }
            at = body + desc.next_multiple_of(4);
        }
    }
}

/// A mapped range that may have holes: what cannot be read is 0.
struct Mapped<'a, P> {
    platform: &'a P,
    start: usize,
    end: usize,
    /// End of the last page found readable: a page is asked for once, as a rule.
    known: Cell<usize>,
}

impl<'a, P: Platform> Mapped<'a, P> {
    fn new(platform: &'a P, start: usize, end: usize) -> Self {
        Self {
            platform,
            start,
            end,
            known: Cell::new(0),
        }
    }

    fn len(&self) -> usize {
        self.end - self.start
    }

    fn u8(&self, at: usize) -> u8 {
        self.get::<1>(at)[0]
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.get(at))
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.get(at))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.get(at))
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        if at.checked_add(N).is_none_or(|end| end > self.len()) {
            return [0; N];
        }
        let place = self.start + at;
        let page_end = (place | (PAGE - 1)).wrapping_add(1);
        if page_end == self.known.get() && page_end - place >= N {
            // SAFETY: all in the page that was found to be readable, of an object that the loader keeps meanwhile.
            return unsafe {
                core::ptr::with_exposed_provenance::<[u8; N]>(place).read_unaligned()
            };
        }
        match read_mapped(self.platform, place) {
            Some(bytes) => {
                self.known.set(page_end);
                bytes
            }
            None => [0; N],
        }
    }
}

/// Reads bytes that may not be mapped, page by page asked for.
pub(crate) fn read_mapped<const N: usize>(
    platform: &impl Platform,
    place: usize,
) -> Option<[u8; N]> {
    let page = |address: usize| address & !(PAGE - 1);
    let end = page(place.checked_add(N - 1)?);
    if !platform.readable(page(place)) || end != page(place) && !platform.readable(end) {
        return None;
    }
    // SAFETY: the pages of all these bytes were just found to be readable.
    Some(unsafe { core::ptr::with_exposed_provenance::<[u8; N]>(place).read_unaligned() })
}
