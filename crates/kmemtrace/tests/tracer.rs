//! The tracer over memory of the test: rings, filters, sums, owners.

use kmemtrace::{Fact, Settings, System, TraceSlot, Tracer};
use memledger_abi::trace::{
    Event, FILTER_SIZE, OP_ALLOC, OP_FREE, OP_OVERFLOW, RingHeader, SiteStat, TRACER_EVENTS,
    TRACER_OBJECTS, TRACER_SITES, TYPE_KMALLOC, TYPE_PAGES, TraceControl,
};
use std::alloc::{Layout, alloc_zeroed};

struct Test;

static CPU: i32 = 3;

impl System for Test {
    fn map(bytes: usize) -> usize {
        let layout = Layout::from_size_align(bytes, 4096).unwrap();
        // SAFETY: not of size 0. Never freed, as mappings of a tracer are.
        unsafe { alloc_zeroed(layout) as usize }
    }

    fn tid() -> u32 {
        77
    }

    fn cpu_at() -> *const i32 {
        &raw const CPU
    }

    fn clocks() -> (u64, u64) {
        (1, 2)
    }
}

fn fact(op: u8, ptr: usize) -> Fact {
    Fact {
        op,
        kind: TYPE_KMALLOC,
        flags: 0,
        cache: 5,
        index: 20,
        ptr,
        requested: 40,
        given: 48,
    }
}

fn tracer(ring_bytes: u64, stop: bool, tracers: u32) -> Tracer {
    let t = Tracer::new();
    let settings = Settings {
        ring_bytes,
        stop,
        tracers,
    };
    t.configure(&[8, 16], Some(settings));
    t
}

fn control(t: &Tracer) -> TraceControl {
    // SAFETY: the address is that of the control words, which nobody changes meanwhile.
    unsafe { (t.address() as *const TraceControl).read() }
}

/// The header of the newest ring and its events, by number.
fn ring(t: &Tracer) -> (RingHeader, Vec<Event>) {
    // SAFETY: rings are never unmapped, and nobody writes meanwhile.
    unsafe {
        let header = (control(t).rings as *const RingHeader).read();
        let first = header.head.saturating_sub(header.capacity);
        let events = (first..header.head).map(|n| {
            let at = header.events + (n % header.capacity) * 32;
            Event::unpack((at as *const [u64; 4]).read())
        });
        (header, events.collect())
    }
}

fn record(t: &Tracer, slot: &mut TraceSlot, fact: &Fact) {
    // SAFETY: one thread, and its slot.
    unsafe { t.record::<Test>(slot, fact) };
}

#[test]
fn events_are_what_was_recorded() {
    let (t, mut slot) = (tracer(4096, false, 0), TraceSlot::EMPTY);
    record(&t, &mut slot, &fact(OP_ALLOC, 0x7fff_1234_5670));
    let large = Fact {
        kind: TYPE_PAGES,
        requested: (1 << 40) + 1,
        given: (1 << 40) + 4096,
        ..fact(OP_ALLOC, 0x1000)
    };
    record(&t, &mut slot, &large);
    let (header, events) = ring(&t);
    assert_eq!(
        (header.capacity, header.head, header.owner_count),
        (128, 2, 1)
    );
    assert_eq!((header.owners[0].since, header.owners[0].tid), (0, 77));
    let e = events[0];
    assert_eq!(
        (e.op, e.ptr, e.index, e.cpu, e.seq),
        (OP_ALLOC, 0x7fff_1234_5670, 20, 3, 0)
    );
    assert_eq!((e.requested, e.given), (40, 48));
    let e = events[1];
    assert_eq!((e.requested, e.given), ((1 << 40) + 1, (1 << 40) + 4096));
    assert!(events[0].time <= e.time && e.seq == 1);
}

#[test]
fn full_rings_overwrite_or_stop() {
    for stop in [false, true] {
        let (t, mut slot) = (tracer(4096, stop, 0), TraceSlot::EMPTY);
        for i in 0..200 {
            record(&t, &mut slot, &fact(OP_ALLOC, i));
        }
        let (header, events) = ring(&t);
        let first = if stop { 0 } else { 72 };
        assert_eq!(
            (header.head, header.dropped),
            if stop { (128, 72) } else { (200, 0) }
        );
        assert!(
            events
                .iter()
                .zip(first..)
                .all(|(e, n)| (e.ptr, e.seq) == (n, n as u16))
        );
    }
}

#[test]
fn the_next_thread_goes_on_in_the_ring() {
    let (t, mut slot) = (tracer(4096, false, 0), TraceSlot::EMPTY);
    record(&t, &mut slot, &fact(OP_ALLOC, 1));
    // SAFETY: this thread's slot.
    unsafe { t.thread_exit(&mut slot) };
    let mut next = TraceSlot::EMPTY;
    record(&t, &mut next, &fact(OP_ALLOC, 2));
    let mut other = TraceSlot::EMPTY;
    let (header, _) = ring(&t);
    assert_eq!((header.head, header.owner_count, header.next), (2, 2, 0));
    assert_eq!(header.owners[1].since, 1);
    record(&t, &mut other, &fact(OP_ALLOC, 3));
    assert_ne!(ring(&t).0.next, 0);
}

#[test]
fn handlers_inside_the_tracer_are_counted() {
    let (t, mut slot) = (tracer(4096, false, 0), TraceSlot::EMPTY);
    slot.busy = 1;
    record(&t, &mut slot, &fact(OP_ALLOC, 1));
    assert_eq!((control(&t).lost_nested, control(&t).rings), (1, 0));
}

#[test]
fn sums_and_the_table_of_objects() {
    let all = TRACER_EVENTS | TRACER_SITES | TRACER_OBJECTS;
    let (t, mut slot) = (tracer(1 << 20, false, all), TraceSlot::EMPTY);
    // SAFETY: the control words, before the table is made.
    unsafe { (*(t.address() as *mut TraceControl)).object_slots = 64 };
    for i in 1..=100 {
        record(&t, &mut slot, &fact(OP_ALLOC, i * 48));
    }
    for i in 1..=100 {
        record(&t, &mut slot, &fact(OP_FREE, i * 48));
    }
    let c = control(&t);
    assert_eq!(c.objects_made, 64);
    assert!(c.object_overflow >= 36, "{}", c.object_overflow);
    let (header, events) = ring(&t);
    let told = events.iter().filter(|e| e.op == OP_OVERFLOW).count();
    assert_eq!((told, header.head), (1, 201));
    // SAFETY: the ring's table, which nobody writes meanwhile.
    let sites = unsafe {
        std::slice::from_raw_parts(header.sites as *const SiteStat, header.site_slots as usize)
    };
    let used: Vec<_> = sites.iter().filter(|s| s.index != 0).collect();
    let s = used[0];
    assert_eq!(
        (used.len(), s.index, s.allocs, s.requested, s.given),
        (1, 20, 100, 4000, 4800)
    );
    assert_eq!((s.frees, s.freed, s.cross), (100, 4800, 0));
    assert_eq!(s.freed_requested, (100 - c.object_overflow) * 40);
}

#[test]
fn filters() {
    let (t, mut slot) = (tracer(4096, false, 0), TraceSlot::EMPTY);
    // SAFETY: the control words, as a reader outside writes them.
    unsafe {
        let c = t.address() as *mut TraceControl;
        (*c).filters = FILTER_SIZE;
        (*c).min_bytes = 49;
    }
    record(&t, &mut slot, &fact(OP_ALLOC, 1));
    assert_eq!(control(&t).rings, 0);
    let larger = Fact {
        given: 64,
        ..fact(OP_FREE, 2)
    };
    record(&t, &mut slot, &larger);
    assert_eq!(ring(&t).0.head, 1);
}
