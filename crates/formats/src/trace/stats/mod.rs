//! What a trace adds up to: by call site, cache, task, flags, migrate type; what is still live; what cannot be right.
//!
//! Memory is bounded: a row for each name, and an entry for each object that is live, of which there are at most
//! [`Options::max_live`]. An object that does not fit is counted in the rows as allocated, and in [`Stats::untracked`]; its
//! free is then not known to belong to it.
//!
//! Pages and objects are not added up blindly. Slabs are made of pages, and a large kmalloc is pages: the kernel traces both.
//! A page allocation counts as *behind* objects if its flags are those of a new slab (`__GFP_NOWARN`, `__GFP_NORETRY` and
//! `__GFP_COMP`, unmovable or reclaimable), or if the next kmalloc of the same task on the same processor is of exactly its
//! size and of more than two pages. [`Stats::together`] leaves those out.

mod live;
mod timeline;

use rustc_hash::FxHashMap;

use super::event::{Bad, Class, Event, Item, Lost, NO_MIGRATE_TYPE, Op, UNKNOWN_PTR};
use super::names::{Names, WordId};
pub use live::{Live, Problem, ProblemKind};
pub use timeline::{Slice, Timeline};

/// Sums of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Allocations.
    pub allocs: u64,
    /// Bytes that they asked for.
    pub requested: u64,
    /// Bytes that they got.
    pub given: u64,
    /// Frees of them.
    pub frees: u64,
    /// Bytes freed.
    pub freed: u64,
    /// Parts that allocations of pages were split into, beyond the first of each.
    pub splits: u64,
    /// Frees on another processor than the allocation's.
    pub cross_cpu: u64,
    /// The longest time from an allocation to its free.
    pub longest: u64,
}

impl Counts {
    /// Bytes given beyond those asked for.
    #[must_use]
    pub fn waste(&self) -> u64 {
        self.given.saturating_sub(self.requested)
    }

    /// Bytes that are still live.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.given.saturating_sub(self.freed)
    }

    /// Objects that are still live.
    #[must_use]
    pub fn live_objects(&self) -> u64 {
        (self.allocs + self.splits).saturating_sub(self.frees)
    }

    /// Adds another row.
    pub fn add(&mut self, other: &Counts) {
        self.allocs += other.allocs;
        self.requested = self.requested.saturating_add(other.requested);
        self.given = self.given.saturating_add(other.given);
        self.frees += other.frees;
        self.freed = self.freed.saturating_add(other.freed);
        self.splits += other.splits;
        self.cross_cpu += other.cross_cpu;
        self.longest = self.longest.max(other.longest);
    }

    /// What is left without a part of it.
    #[must_use]
    pub fn without(&self, part: &Counts) -> Counts {
        Counts {
            allocs: self.allocs.saturating_sub(part.allocs),
            requested: self.requested.saturating_sub(part.requested),
            given: self.given.saturating_sub(part.given),
            frees: self.frees.saturating_sub(part.frees),
            freed: self.freed.saturating_sub(part.freed),
            splits: self.splits.saturating_sub(part.splits),
            cross_cpu: self.cross_cpu.saturating_sub(part.cross_cpu),
            longest: self.longest,
        }
    }

    #[inline]
    fn alloc(&mut self, event: &Event) {
        self.allocs += 1;
        self.requested = self.requested.saturating_add(event.requested);
        self.given = self.given.saturating_add(event.given);
    }

    #[inline]
    fn free(&mut self, bytes: u64, cross: bool, age: u64, parts: u64) {
        self.freed = self.freed.saturating_add(bytes);
        self.frees += 1;
        self.splits += parts;
        self.cross_cpu += u64::from(cross);
        self.longest = self.longest.max(age);
    }
}

/// What to sum up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Most live objects that are followed.
    pub max_live: usize,
    /// Times are rounded to multiples of this, so that a text with microseconds gives the same as raw pages.
    pub quantum: u64,
    /// Also rows by cache, task, flags, migrate type, stack; histograms; timeline.
    pub detail: bool,
    /// Look for what cannot be right. Remembers freed objects too, as many as live ones.
    pub check: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_live: 4 << 20,
            quantum: 1,
            detail: true,
            check: false,
        }
    }
}

/// Numbers by power of two: place n counts values of n bits, from 2^(n-1) to 2^n - 1.
pub type Histogram = [u64; 65];

/// The sums.
#[derive(Debug)]
pub struct Stats {
    options: Options,
    /// By [`SiteId`](super::SiteId).
    pub sites: Vec<Counts>,
    /// By cache, a [`WordId`].
    pub caches: Vec<Counts>,
    /// By flags, a [`WordId`].
    pub flags: Vec<Counts>,
    /// By stack, a [`StackId`](super::StackId).
    pub stacks: Vec<Counts>,
    /// Pages by stack, as their events have no call site.
    pub page_stacks: Vec<Counts>,
    /// By task.
    pub tasks: FxHashMap<(i32, WordId), Counts>,
    /// By migrate type of pages.
    pub migrate: [Counts; 7],
    /// By task's name and site, for traces without stacks.
    pub comm_sites: FxHashMap<(WordId, super::SiteId), Counts>,
    /// By [`Class`].
    pub classes: [Counts; 3],
    /// Pages behind slabs, and behind large kmallocs.
    pub behind: [Counts; 2],
    /// Bytes asked for of all allocations.
    pub sizes: Histogram,
    /// Times from allocation to free.
    pub lifetimes: Histogram,
    /// Live bytes over time.
    pub timeline: Timeline,
    /// What is live.
    pub live: FxHashMap<u64, Live>,
    /// Allocations that were not followed, as there were too many.
    pub untracked: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Frees of nothing.
    pub null_frees: u64,
    /// Events whose pointer is not told.
    pub no_ptr: u64,
    /// Frees of objects that were not seen allocated: before the trace began, or lost.
    pub unknown_frees: u64,
    /// Other events, by name.
    pub others: FxHashMap<WordId, u64>,
    /// Allocations and frees.
    pub events: u64,
    /// Events lost, of known number.
    pub lost: u64,
    /// Places where an unknown number was lost.
    pub lost_places: u64,
    /// By processor; `None` where the trace does not tell.
    pub lost_cpus: FxHashMap<Option<u32>, u64>,
    /// What could not be read: number, and the first few.
    pub bad: (u64, Vec<Bad>),
    /// What cannot be right: number of each kind, and the first few.
    pub problems: FxHashMap<ProblemKind, (u64, Vec<Problem>)>,
    /// Time of the first and the last event.
    pub span: Option<(u64, u64)>,
    slab_flags: Vec<u8>,
    last_page: FxHashMap<u32, (i32, u64, u64)>,
    checker: live::Checker,
}

/// What is kept of examples.
const EXAMPLES: usize = 10;

impl Stats {
    /// Nothing yet.
    #[must_use]
    pub fn new(mut options: Options) -> Self {
        options.quantum = options.quantum.max(1);
        Stats {
            options,
            sites: Vec::new(),
            caches: Vec::new(),
            flags: Vec::new(),
            stacks: Vec::new(),
            page_stacks: Vec::new(),
            tasks: FxHashMap::default(),
            migrate: [Counts::default(); 7],
            comm_sites: FxHashMap::default(),
            classes: [Counts::default(); 3],
            behind: [Counts::default(); 2],
            sizes: [0; 65],
            lifetimes: [0; 65],
            timeline: Timeline::default(),
            live: FxHashMap::default(),
            untracked: 0,
            failed: 0,
            null_frees: 0,
            no_ptr: 0,
            unknown_frees: 0,
            others: FxHashMap::default(),
            events: 0,
            lost: 0,
            lost_places: 0,
            lost_cpus: FxHashMap::default(),
            bad: (0, Vec::new()),
            problems: FxHashMap::default(),
            span: None,
            slab_flags: Vec::new(),
            last_page: FxHashMap::default(),
            checker: live::Checker::default(),
        }
    }

    /// Adds an item.
    pub fn add(&mut self, item: Item, names: &Names) {
        match item {
            Item::Event(event) => self.event(&event, names),
            Item::Other(name) => *self.others.entry(name).or_default() += 1,
            Item::Lost(lost) => self.lose(lost),
            Item::Bad(bad) => {
                self.bad.0 += 1;
                if self.bad.1.len() < EXAMPLES {
                    self.bad.1.push(bad);
                }
            }
        }
    }

    fn lose(&mut self, lost: Lost) {
        match lost.events {
            Some(n) => self.lost = self.lost.saturating_add(n),
            None => self.lost_places += 1,
        }
        *self.lost_cpus.entry(lost.cpu).or_default() += lost.events.unwrap_or(1);
    }

    /// Adds an event.
    pub fn event(&mut self, event: &Event, names: &Names) {
        let mut event = *event;
        let half = self.options.quantum / 2;
        event.time = event.time.saturating_add(half) / self.options.quantum * self.options.quantum;
        self.events += 1;
        let (first, last) = self.span.unwrap_or((event.time, event.time));
        self.span = Some((first.min(event.time), last.max(event.time)));
        match event.op {
            Op::Alloc => self.alloc(&event, names),
            Op::Free => self.free(&event),
        }
    }

    /// The rows that an allocation belongs to.
    fn rows(&mut self, live: &Live, mut f: impl FnMut(&mut Counts)) {
        f(row(&mut self.sites, live.site.index()));
        f(&mut self.classes[live.class as usize]);
        if let Some(behind) = live.behind {
            f(&mut self.behind[usize::from(behind)]);
        }
        if live.class == Class::Pages && !live.stack.is_none() {
            f(row(&mut self.page_stacks, live.stack.index()));
        }
        if !self.options.detail {
            return;
        }
        if !live.cache.is_none() {
            f(row(&mut self.caches, live.cache.index()));
        }
        f(row(&mut self.flags, live.flags.index()));
        f(self.tasks.entry((live.pid, live.comm)).or_default());
        if live.migrate != NO_MIGRATE_TYPE {
            f(&mut self.migrate[usize::from(live.migrate.min(6))]);
        }
        match live.stack.is_none() {
            true => f(self.comm_sites.entry((live.comm, live.site)).or_default()),
            false => f(row(&mut self.stacks, live.stack.index())),
        }
    }

    fn alloc(&mut self, event: &Event, names: &Names) {
        if event.ptr == 0 {
            self.failed += 1;
            return;
        }
        let mut live = Live::new(event);
        if event.class == Class::Pages && self.is_slab(event, names) {
            live.behind = Some(0);
        }
        self.rows(&live, |counts| counts.alloc(event));
        if self.options.detail {
            self.sizes[bits(event.requested)] += 1;
            self.timeline.add(event.time, event.given as i128);
        }
        if event.given < event.requested {
            self.problem(ProblemKind::Small, event, None);
        }
        if event.ptr == UNKNOWN_PTR {
            self.no_ptr += 1;
            return;
        }
        match event.class {
            Class::Pages => {
                self.last_page
                    .insert(event.cpu, (event.pid, event.ptr, event.given));
            }
            Class::Kmalloc => self.large(event),
            Class::Cache => {}
        }
        let key = live::key(event.class, event.ptr);
        if self.options.check {
            self.check_alloc(event, key);
        }
        if self.live.len() >= self.options.max_live && !self.live.contains_key(&key) {
            self.untracked += 1;
        } else if let Some(before) = self.live.insert(key, live) {
            // Its free was not seen; it ended at the latest now.
            let age = event.time.saturating_sub(before.time);
            let bytes = before.given;
            self.rows(&before, |counts| counts.free(bytes, false, age, 0));
            if self.options.detail {
                self.timeline.add(event.time, -i128::from(bytes));
            }
        }
    }

    /// Whether a page allocation is a new slab, by its flags.
    fn is_slab(&mut self, event: &Event, names: &Names) -> bool {
        if !matches!(event.migrate, 0 | 2) {
            return false;
        }
        let at = event.flags.index();
        if self.slab_flags.len() <= at {
            self.slab_flags.resize(at + 1, 0);
        }
        if self.slab_flags[at] == 0 {
            let text = names.text(event.flags);
            let all = ["__GFP_NOWARN", "__GFP_NORETRY", "__GFP_COMP"];
            let slab = all
                .iter()
                .all(|flag| text.split('|').any(|word| word == *flag));
            self.slab_flags[at] = 1 + u8::from(slab);
        }
        self.slab_flags[at] == 2
    }

    /// A kmalloc that is pages: they are the last that its task got on this processor.
    fn large(&mut self, event: &Event) {
        let Some((pid, pfn, given)) = self.last_page.remove(&event.cpu) else {
            return;
        };
        if pid != event.pid || given != event.given || given <= 8192 {
            return;
        }
        if let Some(live) = self.live.get_mut(&live::key(Class::Pages, pfn))
            && live.behind.is_none()
        {
            live.behind = Some(1);
            self.behind[1].add(&Counts {
                allocs: 1,
                requested: live.given,
                given: live.given,
                ..Counts::default()
            });
        }
    }

    fn free(&mut self, event: &Event) {
        if event.ptr == 0 {
            self.null_frees += 1;
            return;
        }
        if event.ptr == UNKNOWN_PTR {
            self.no_ptr += 1;
            return;
        }
        let found = match event.class {
            Class::Pages => self.take_pages(event),
            _ => {
                let key = live::key(event.class, event.ptr);
                self.live.remove(&key).map(|live| (live, live.given, 0))
            }
        };
        let Some((live, bytes, parts)) = found else {
            self.unknown_frees += 1;
            if self.options.check {
                self.check_unknown(event);
            }
            return;
        };
        let age = event.time.saturating_sub(live.time);
        let cross = live.cpu != event.cpu;
        self.rows(&live, |counts| counts.free(bytes, cross, age, parts));
        if self.options.detail {
            self.lifetimes[bits(age)] += 1;
            self.timeline.add(event.time, -i128::from(bytes));
        }
        if self.options.check {
            self.check_free(event, &live);
        }
    }

    /// Pages and objects together, without counting twice: pages behind objects are left out.
    #[must_use]
    pub fn together(&self) -> Counts {
        let mut all = Counts::default();
        self.classes.iter().for_each(|c| all.add(c));
        self.behind.iter().for_each(|b| all = all.without(b));
        all
    }

    /// How sure it is that an object which looks live was not freed by an event that is missing: from 1, nothing was lost,
    /// towards 0. It is the share of events that were not lost, and half of it if an unknown number was.
    #[must_use]
    pub fn confidence(&self) -> f64 {
        let seen = self.events as f64;
        let all = seen + self.lost as f64;
        let share = if all > 0.0 { seen / all } else { 1.0 };
        if self.lost_places > 0 || self.bad.0 > 0 {
            share / 2.0
        } else {
            share
        }
    }

    /// Whether something was lost or could not be read.
    #[must_use]
    pub fn incomplete(&self) -> bool {
        self.lost > 0 || self.lost_places > 0 || self.bad.0 > 0 || self.untracked > 0
    }
}

/// The row at a number.
#[inline]
fn row(rows: &mut Vec<Counts>, at: usize) -> &mut Counts {
    if rows.len() <= at {
        rows.resize(at + 1, Counts::default());
    }
    &mut rows[at]
}

/// Number of bits of a value.
fn bits(value: u64) -> usize {
    (64 - value.leading_zeros()) as usize
}
