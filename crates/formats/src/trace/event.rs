//! What a trace says: one allocation or free, or what is not known because it was lost.

use std::io;

use super::names::{Names, SiteId, StackId, WordId};

/// Whether memory was taken or given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Taken.
    Alloc,
    /// Given back.
    Free,
}

/// The allocator that an event is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Memory of any size: `kmalloc`, `kfree`; `malloc`.
    Kmalloc,
    /// An object of a named cache: `kmem_cache_alloc`, `kmem_cache_free`.
    Cache,
    /// Whole pages: `mm_page_alloc`, `mm_page_free`. Pointers are page frame numbers in traces of a kernel.
    Pages,
}

impl Class {
    /// The letter that kmemtrace's tables have for it.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Class::Kmalloc => 'K',
            Class::Cache => 'C',
            Class::Pages => 'P',
        }
    }

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Class::Kmalloc => "kmalloc",
            Class::Cache => "cache",
            Class::Pages => "pages",
        }
    }
}

/// [`Event::ptr`] of an event that does not tell it, as `ptr=(____ptrval____)`.
pub const UNKNOWN_PTR: u64 = u64::MAX;

/// [`Event::migrate`] of an event that has none.
pub const NO_MIGRATE_TYPE: u8 = u8::MAX;

/// [`Event::node`]: any node would do.
pub const ANY_NODE: i32 = -1;

/// One allocation or free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, by the clock of the source, in nanoseconds ([`Info::unit`] says if it is something else).
    pub time: u64,
    /// Address (a page frame number for pages of a kernel), or what it was hashed to. 0: a failed allocation, or a free
    /// of nothing. [`UNKNOWN_PTR`] if the event does not tell.
    pub ptr: u64,
    /// Bytes asked for; 0 for a free.
    pub requested: u64,
    /// Bytes given, which is what the object occupies; 0 for a free, unless it tells them.
    pub given: u64,
    /// Who called.
    pub site: SiteId,
    /// Call stack, if it was recorded.
    pub stack: StackId,
    /// Name of the cache.
    pub cache: WordId,
    /// Flags of the request, as the kernel prints them.
    pub flags: WordId,
    /// Name of the task.
    pub comm: WordId,
    /// The thread; -1 if the trace does not tell.
    pub pid: i32,
    /// The processor; [`u32::MAX`] if the trace does not tell.
    pub cpu: u32,
    /// The NUMA node asked for, [`ANY_NODE`] for any.
    pub node: i32,
    /// Taken or given back.
    pub op: Op,
    /// By which allocator.
    pub class: Class,
    /// Of pages: 2^order of them.
    pub order: u8,
    /// Of pages: number of the migrate type, [`NO_MIGRATE_TYPE`] if there is none.
    pub migrate: u8,
}

impl Event {
    /// An event that tells nothing but this; to be filled in.
    #[must_use]
    pub fn new(op: Op, class: Class, time: u64, ptr: u64) -> Self {
        Event {
            time,
            ptr,
            requested: 0,
            given: 0,
            site: SiteId::NONE,
            stack: StackId::NONE,
            cache: WordId::NONE,
            flags: WordId::NONE,
            comm: WordId::NONE,
            pid: -1,
            cpu: u32::MAX,
            node: ANY_NODE,
            op,
            class,
            order: 0,
            migrate: NO_MIGRATE_TYPE,
        }
    }

    /// Bytes given beyond those asked for.
    #[must_use]
    pub fn waste(&self) -> u64 {
        self.given.saturating_sub(self.requested)
    }
}

/// Name of a migrate type of the kernel, by its number (`enum migratetype` of `include/linux/mmzone.h`, since 3.18; older
/// tools have 1 and 2 the wrong way round).
#[must_use]
pub fn migrate_name(number: u8) -> &'static str {
    match number {
        0 => "Unmovable",
        1 => "Movable",
        2 => "Reclaimable",
        3 => "HighAtomic",
        4 => "CMA",
        5 => "Isolate",
        _ => "(none)",
    }
}

/// Events that happened but are not in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// Where; `None` if the trace does not tell.
    pub cpu: Option<u32>,
    /// How many; `None`: some.
    pub events: Option<u64>,
}

/// Input that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// Where: line number of a text, offset in bytes of a binary file.
    pub at: u64,
    /// What is wrong with it, in words.
    pub what: String,
}

/// What a [`Source`] finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An allocation or free.
    Event(Event),
    /// An event of another kind, by its name. It was read well, and there is nothing to account.
    Other(WordId),
    /// Events were lost here.
    Lost(Lost),
    /// Something could not be read. What follows can.
    Bad(Bad),
}

impl Item {
    /// Time of the event in it.
    #[must_use]
    pub fn time(&self) -> Option<u64> {
        match self {
            Item::Event(event) => Some(event.time),
            _ => None,
        }
    }
}

/// What the times of a source count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// Something without a known length: processor cycles, a counter of events, or no time at all.
    Ticks,
}

/// What is to be known of a source as a whole. It may change while the source is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info {
    /// The format in words, as `trace.dat version 7`.
    pub format: String,
    /// What times count.
    pub unit: Unit,
    /// Smallest difference of times, in that unit; 1 if they are exact.
    pub resolution: u64,
    /// Whether pointers are hashes: equal ones are nearly surely of the same memory, but tell no addresses.
    pub hashed: bool,
}

/// A stream of events in order of time.
pub trait Source {
    /// The next item; `None` at the end. Names in it are of `names`, which must be the same at each call.
    ///
    /// # Errors
    /// Those of the input. What is read but makes no sense is an item instead.
    fn next_item(&mut self, names: &mut Names) -> io::Result<Option<Item>>;

    /// About the whole source, as far as it has been read.
    fn info(&self) -> Info;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn next_item(&mut self, names: &mut Names) -> io::Result<Option<Item>> {
        (**self).next_item(names)
    }

    fn info(&self) -> Info {
        (**self).info()
    }
}
