//! Programs and tables together.

use crate::programs::{self, AllocLayout, FreeLayout, Kind, Select, Tables};
use crate::sys::{self, Map, MapKind};
use std::io;
use std::os::fd::OwnedFd;

/// A tracepoint to count at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracepoint {
    /// Allocations. `id` as in `events/*/*/id`.
    Alloc {
        /// Number of the tracepoint.
        id: u32,
        /// Whose they are.
        kind: Kind,
        /// Where the fields are.
        layout: AllocLayout,
    },
    /// Frees.
    Free {
        /// Number of the tracepoint.
        id: u32,
        /// Where the fields are.
        layout: FreeLayout,
    },
}

/// Sums of a call site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Address after the call.
    pub address: u64,
    /// Which allocator it called.
    pub kind: Kind,
    /// Allocations.
    pub hits: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes given.
    pub given: u64,
    /// Objects not freed yet, of those in the table of objects.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Allocations that failed.
    pub failed: u64,
}

/// What the sums of the sites do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Allocations that are in no row, as the table of sites was full.
    pub sites_full: u64,
    /// Allocations that are in `hits` but not in `live`, as the table of objects was full.
    pub objects_full: u64,
    /// Frees of objects that are not in the table: from before the start, not selected, or not fitting.
    pub unknown_frees: u64,
    /// Objects that were allocated again without having been freed: their frees were missed.
    pub stale: u64,
    /// Events that the kernel did not run a program for; `None`: it does not tell (before 5.12).
    pub missed: Option<u64>,
}

/// What was counted at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The sites, in no order.
    pub sites: Vec<Site>,
    /// What they do not have.
    pub counts: Counts,
}

/// Programs that are attached, and their tables.
#[derive(Debug)]
pub struct Tracker {
    // Dropped first, so that the programs stop before the tables go.
    events: Vec<OwnedFd>,
    programs: Vec<OwnedFd>,
    sites: Map,
    counts: Map,
    _objects: Map,
}

impl Tracker {
    /// Starts counting, with tables for so many sites and objects (about 80 bytes of kernel memory each, taken at once).
    ///
    /// # Errors
    /// Those of the kernel: EPERM if it does not permit it, ENOMEM, EINVAL if it does not take a program.
    pub fn start(
        at: &[Tracepoint],
        select: &Select,
        max_sites: u32,
        max_objects: u32,
    ) -> io::Result<Tracker> {
        let row = 8 * programs::SITE_WORDS as u32;
        let sites = Map::new(MapKind::Hash, programs::SITE_KEY, row, max_sites.max(1))?;
        let object = programs::OBJECT_BYTES;
        let objects = Map::new(MapKind::Hash, 8, object, max_objects.max(1))?;
        let counts = Map::new(MapKind::Array, 4, 8 * programs::COUNTS as u32, 1)?;
        counts.set(&[0], &[0; programs::COUNTS])?;
        let tables = Tables {
            sites: sites.raw(),
            objects: objects.raw(),
            counts: counts.raw(),
        };
        let mut tracker = Tracker {
            events: Vec::new(),
            programs: Vec::new(),
            sites,
            counts,
            _objects: objects,
        };
        // Frees first: an object whose allocation is seen must not have a free that is not.
        let mut order = at.to_vec();
        order.sort_by_key(|point| matches!(point, Tracepoint::Alloc { .. }));
        for point in order {
            let (id, code) = match point {
                Tracepoint::Alloc { id, kind, layout } => {
                    (id, programs::alloc(layout, kind, select, tables))
                }
                Tracepoint::Free { id, layout } => (id, programs::free(layout, tables)),
            };
            let code = code.ok_or_else(|| io::Error::other("too many call sites to select"))?;
            let program = sys::load(&code)?;
            tracker.events.push(sys::attach(&program, id)?);
            tracker.programs.push(program);
        }
        Ok(tracker)
    }

    /// Detaches the programs: nothing is counted from now on. The tables can still be read.
    pub fn stop(&mut self) {
        self.events.clear();
    }

    /// Reads the tables. While the programs run, rows are of slightly different moments.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn read(&self) -> io::Result<Snapshot> {
        let mut all = Snapshot::default();
        let mut key = [0u64; 2];
        let mut row = [0u64; programs::SITE_WORDS];
        let mut more = self.sites.next(None, &mut key)?;
        while more {
            if self.sites.get(&key, &mut row)? {
                all.sites.push(site(key, row));
            }
            let last = key;
            more = self.sites.next(Some(&last), &mut key)?;
        }
        let mut counts = [0u64; programs::COUNTS];
        self.counts.get(&[0], &mut counts)?;
        all.counts = Counts {
            sites_full: counts[programs::SITES_FULL],
            objects_full: counts[programs::OBJECTS_FULL],
            unknown_frees: counts[programs::UNKNOWN_FREES],
            stale: counts[programs::STALE],
            missed: self.programs.iter().map(sys::misses).sum(),
        };
        Ok(all)
    }
}

/// A row, read. Sums that are below 0 for the moment, as an object was freed between two reads, are 0.
fn site(key: [u64; 2], row: [u64; programs::SITE_WORDS]) -> Site {
    Site {
        address: key[0],
        kind: if key[1] == Kind::Kmalloc as u64 {
            Kind::Kmalloc
        } else {
            Kind::Cache
        },
        hits: row[0],
        requested: row[1],
        given: row[2],
        live: u64::try_from(row[3].cast_signed()).unwrap_or(0),
        live_bytes: u64::try_from(row[4].cast_signed()).unwrap_or(0),
        failed: row[5],
    }
}
