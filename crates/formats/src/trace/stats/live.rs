//! Objects that are live, and what cannot be right about them.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

use super::{EXAMPLES, Stats};
use crate::trace::event::{Class, Event};
use crate::trace::names::{SiteId, StackId, WordId};

/// A live object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// When it was allocated.
    pub time: u64,
    /// Bytes that it has; of pages, those that are not freed yet.
    pub given: u64,
    /// Who allocated it.
    pub site: SiteId,
    /// With which stack.
    pub stack: StackId,
    /// Its cache.
    pub cache: WordId,
    /// Flags of the request.
    pub flags: WordId,
    /// Name of the task.
    pub comm: WordId,
    /// The task.
    pub pid: i32,
    /// The processor.
    pub cpu: u32,
    /// Its allocator.
    pub class: Class,
    /// Of pages: 2^order of them, as far as they are not freed.
    pub order: u8,
    /// Of pages: the migrate type.
    pub migrate: u8,
    /// Of pages: they are a slab (0), or a large kmalloc (1).
    pub behind: Option<u8>,
}

impl Live {
    pub(super) fn new(event: &Event) -> Live {
        Live {
            time: event.time,
            given: event.given,
            site: event.site,
            stack: event.stack,
            cache: event.cache,
            flags: event.flags,
            comm: event.comm,
            pid: event.pid,
            cpu: event.cpu,
            class: event.class,
            order: event.order,
            migrate: event.migrate,
            behind: None,
        }
    }
}

/// What cannot be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProblemKind {
    /// Freed, and not seen allocated before.
    Unknown,
    /// Freed twice without an allocation between.
    Double,
    /// Less was given than asked for.
    Small,
    /// Allocated where a live object begins.
    Twice,
    /// Allocated where a live object reaches to.
    Overlap,
}

impl ProblemKind {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            ProblemKind::Unknown => "free without allocation",
            ProblemKind::Double => "double free",
            ProblemKind::Small => "less given than requested",
            ProblemKind::Twice => "allocated while live",
            ProblemKind::Overlap => "overlaps a live object",
        }
    }
}

/// An example of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem {
    /// The event at which it shows.
    pub event: Event,
    /// Time of the event that it contradicts.
    pub before: Option<u64>,
}

/// What the checks remember.
#[derive(Debug, Default)]
pub(super) struct Checker {
    freed: FxHashMap<u64, u64>,
    ranges: BTreeMap<u64, u64>,
}

/// The place of an object in tables: pages and objects have numbers of their own. No pointer looks like a page's, as page
/// frame numbers have at most 52 bits, and bits 48 to 63 of addresses are equal.
pub(super) fn key(class: Class, ptr: u64) -> u64 {
    match class {
        Class::Pages => ptr | 1 << 63,
        _ => ptr,
    }
}

impl Stats {
    pub(super) fn problem(&mut self, kind: ProblemKind, event: &Event, before: Option<u64>) {
        let (count, examples) = self.problems.entry(kind).or_default();
        *count += 1;
        if examples.len() < EXAMPLES {
            examples.push(Problem {
                event: *event,
                before,
            });
        }
    }

    /// Pages that are freed: an allocation, or a part of one (it was split). Also its bytes, and how many parts are left.
    pub(super) fn take_pages(&mut self, event: &Event) -> Option<(Live, u64, u64)> {
        for order in event.order..=20 {
            let start = if order == event.order {
                event.ptr
            } else {
                event.ptr & !((1_u64 << order) - 1)
            };
            let at = key(Class::Pages, start);
            let Some(live) = self.live.get(&at).copied() else {
                continue;
            };
            if live.order < order {
                continue;
            }
            self.live.remove(&at);
            let parts = self.put_back(&live, start, event.ptr, event.order);
            return Some((live, live.given >> parts, parts));
        }
        // Larger than what was allocated there: parts were put together again.
        let live = self.live.remove(&key(Class::Pages, event.ptr))?;
        Some((live, live.given, 0))
    }

    /// Puts back what is left of an allocation of pages when a part is freed: halves that do not have the part in them.
    fn put_back(&mut self, live: &Live, start: u64, part: u64, part_order: u8) -> u64 {
        let (mut start, mut order) = (start, live.order);
        while order > part_order {
            order -= 1;
            let half = 1_u64 << order;
            let (keep, go) = if part & half == 0 {
                (start + half, start)
            } else {
                (start, start + half)
            };
            let mut rest = *live;
            rest.order = order;
            rest.given = live.given >> (live.order - order);
            self.live.insert(key(Class::Pages, keep), rest);
            start = go;
        }
        u64::from(live.order - order)
    }

    pub(super) fn check_alloc(&mut self, event: &Event, at: u64) {
        self.checker.freed.remove(&at);
        if let Some(before) = self.live.get(&at).map(|live| live.time) {
            self.problem(ProblemKind::Twice, event, Some(before));
            return;
        }
        // Hashed pointers do not tell where an object ends; they have 32 bits, where no object of a program or kernel is.
        if event.class == Class::Pages || event.ptr >> 32 == 0 {
            return;
        }
        let end = event.ptr.saturating_add(event.given);
        let ranges = &self.checker.ranges;
        let below = ranges
            .range(..event.ptr)
            .next_back()
            .filter(|(_, e)| **e > event.ptr);
        let above = ranges
            .range(event.ptr + 1..)
            .next()
            .filter(|(s, _)| **s < end);
        let other = below.or(above).map(|(start, _)| *start);
        if let Some(start) = other {
            let before = self.live.get(&start).map(|live| live.time);
            self.problem(ProblemKind::Overlap, event, before);
        }
        if self.checker.ranges.len() < self.options.max_live {
            self.checker.ranges.insert(event.ptr, end);
        }
    }

    pub(super) fn check_free(&mut self, event: &Event, live: &Live) {
        if live.class != Class::Pages {
            self.checker.ranges.remove(&event.ptr);
        }
        if self.checker.freed.len() < self.options.max_live {
            self.checker
                .freed
                .insert(key(event.class, event.ptr), event.time);
        }
    }

    pub(super) fn check_unknown(&mut self, event: &Event) {
        let at = key(event.class, event.ptr);
        match self.checker.freed.get(&at).copied() {
            Some(before) => self.problem(ProblemKind::Double, event, Some(before)),
            None => {
                self.problem(ProblemKind::Unknown, event, None);
                if self.checker.freed.len() < self.options.max_live {
                    self.checker.freed.insert(at, event.time);
                }
            }
        }
    }
}
