//! Records of kmem events, decoded by the descriptions that the kernel gives of them.
//!
//! A description becomes a [`Plan`] once: where which value is. A record then costs one look at its type and one load for each value.

use rustc_hash::FxHashMap;

use super::format::{EventFormat, Field, print_flags};
use super::page::Endian;
use crate::trace::event::{Class, Event, Op, UNKNOWN_PTR};
use crate::trace::names::{Names, SiteId, StackId, WordId};

/// Where a value is. Size 0: there is none.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    offset: usize,
    size: usize,
    signed: bool,
}

impl Slot {
    fn of(format: &EventFormat, name: &str) -> Slot {
        let place = |field: &Field| Slot {
            offset: field.offset,
            size: field.size,
            signed: field.signed,
        };
        format.field(name).map_or(Slot::default(), place)
    }

    #[inline]
    fn get(self, record: &[u8], endian: Endian) -> Option<u64> {
        let value = endian.get(record, self.offset, self.size)?;
        Some(match (self.signed, self.size) {
            (true, 1) => value as i8 as u64,
            (true, 2) => value as i16 as u64,
            (true, 4) => value as i32 as u64,
            _ => value,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Slab(Op, Class),
    Page(Op),
    Stack,
    UserStack,
    Other,
}

/// How to read the records of one event.
#[derive(Debug)]
struct Plan {
    name: String,
    kind: Kind,
    site: Slot,
    ptr: Slot,
    cache: Slot,
    cache_relative: bool,
    requested: Slot,
    given: Slot,
    flags: Slot,
    node: Slot,
    order: Slot,
    migrate: Slot,
    flag_names: Vec<(u64, String)>,
}

impl Plan {
    fn new(format: &EventFormat) -> Plan {
        let kind = match format.name.as_str() {
            "kmalloc" | "kmalloc_node" => Kind::Slab(Op::Alloc, Class::Kmalloc),
            "kmem_cache_alloc" | "kmem_cache_alloc_node" => Kind::Slab(Op::Alloc, Class::Cache),
            "kfree" => Kind::Slab(Op::Free, Class::Kmalloc),
            "kmem_cache_free" => Kind::Slab(Op::Free, Class::Cache),
            "mm_page_alloc" => Kind::Page(Op::Alloc),
            "mm_page_free" | "mm_page_free_direct" => Kind::Page(Op::Free),
            "kernel_stack" => Kind::Stack,
            "user_stack" => Kind::UserStack,
            _ => Kind::Other,
        };
        let slot = |name| Slot::of(format, name);
        let ptr = match kind {
            Kind::Page(_) if slot("pfn").size != 0 => slot("pfn"),
            Kind::Page(_) => slot("page"),
            Kind::Stack | Kind::UserStack => slot("caller"),
            _ => slot("ptr"),
        };
        let name = format.field("name");
        let dynamic = name.filter(|f| f.data_loc() || f.rel_loc());
        Plan {
            name: format.name.clone(),
            kind,
            site: slot("call_site"),
            ptr,
            cache: if dynamic.is_some() {
                slot("name")
            } else {
                Slot::default()
            },
            cache_relative: name.is_some_and(Field::rel_loc),
            requested: slot("bytes_req"),
            given: slot("bytes_alloc"),
            flags: slot("gfp_flags"),
            node: slot("node"),
            order: slot("order"),
            migrate: slot("migratetype"),
            flag_names: format.flags("gfp_flags"),
        }
    }
}

/// Descriptions of all events of a trace, and what else is needed to read their records.
#[derive(Debug, Default)]
pub struct Decoder {
    plans: Vec<Plan>,
    /// For each number of an event, 1 + the index of its plan; 0 = it has none.
    by_id: Vec<u16>,
    kind_slot: Slot,
    pid_slot: Slot,
    endian: Endian,
    word: usize,
    page_size: u64,
    comms: FxHashMap<i32, String>,
    has_stacks: bool,
}

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// An allocation or free.
    Event(Event),
    /// The call stack of the record before it on the same processor.
    Stack(StackId),
    /// An event of another kind.
    Other(WordId),
    /// It is too short for its description.
    Short,
}

impl Decoder {
    /// For records of a machine with this order of bytes, size of `long` (4 or 8) and size of a page.
    #[must_use]
    pub fn new(endian: Endian, word: usize, page_size: u64) -> Self {
        Decoder {
            endian,
            word: if word == 4 { 4 } else { 8 },
            page_size,
            ..Decoder::default()
        }
    }

    /// Order of the bytes.
    #[must_use]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// Adds the description of an event. Those of no use are fine: their records are counted by name.
    pub fn add(&mut self, format: &EventFormat) {
        let common = |name| Slot::of(format, name);
        if common("common_type").size != 0 {
            self.kind_slot = common("common_type");
        }
        if common("common_pid").size != 0 {
            self.pid_slot = common("common_pid");
        }
        let Ok(number) = u16::try_from(self.plans.len() + 1) else {
            return;
        };
        let id = usize::from(format.id);
        if self.by_id.len() <= id {
            self.by_id.resize(id + 1, 0);
        }
        self.by_id[id] = number;
        let plan = Plan::new(format);
        self.has_stacks |= matches!(plan.kind, Kind::Stack | Kind::UserStack);
        self.plans.push(plan);
    }

    /// Whether any event is described.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// Whether stacks may follow events.
    #[must_use]
    pub fn has_stacks(&self) -> bool {
        self.has_stacks
    }

    /// Sets the name of a task.
    pub fn comm(&mut self, pid: i32, name: &str) {
        self.comms.insert(pid, name.to_owned());
    }

    /// A task starts with the name of the one that made it.
    pub fn fork(&mut self, pid: i32, parent: i32) {
        if let Some(name) = self.comms.get(&parent).cloned() {
            self.comms.insert(pid, name);
        }
    }

    /// Names of tasks from `saved_cmdlines`, or the like: lines of a number and a name.
    pub fn comms(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((pid, name)) = line.trim_start().split_once(' ')
                && let Ok(pid) = pid.parse()
            {
                self.comm(pid, name);
            }
        }
    }

    fn plan(&self, id: u64) -> Option<(usize, &Plan)> {
        let id = usize::try_from(id).ok()?;
        let index = usize::from(*self.by_id.get(id)?).checked_sub(1)?;
        Some((index, self.plans.get(index)?))
    }

    /// Reads one record: what stands after the entry's length in the ring buffer, and as raw data in samples of perf.
    #[inline]
    pub fn decode(
        &self,
        memo: &mut Memo,
        record: &[u8],
        time: u64,
        cpu: u32,
        names: &mut Names,
    ) -> Record {
        let Some(id) = self.kind_slot.get(record, self.endian) else {
            return Record::Short;
        };
        let Some((index, plan)) = self.plan(id) else {
            return Record::Other(names.word(&format!("(type {id}, which has no description)")));
        };
        let event = match plan.kind {
            Kind::Slab(op, class) => self.slab(plan, op, class, memo, record, time, names),
            Kind::Page(op) => self.page(plan, op, record, time),
            Kind::Stack => return self.stack(plan, record, names),
            Kind::UserStack | Kind::Other => {
                return Record::Other(memo.other(index, &plan.name, names));
            }
        };
        let Some(mut event) = event else {
            return Record::Short;
        };
        if event.op == Op::Alloc {
            let value = plan.flags.get(record, self.endian).unwrap_or(0);
            event.flags = memo.flags(value, &plan.flag_names, names);
        }
        event.cpu = cpu;
        event.pid = self
            .pid_slot
            .get(record, self.endian)
            .map_or(-1, |pid| pid as i32);
        event.comm = memo.comm(event.pid, &self.comms, names);
        Record::Event(event)
    }

    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn slab(
        &self,
        plan: &Plan,
        op: Op,
        class: Class,
        memo: &mut Memo,
        record: &[u8],
        time: u64,
        names: &mut Names,
    ) -> Option<Event> {
        let get = |slot: Slot| slot.get(record, self.endian);
        let mut event = Event::new(op, class, time, get(plan.ptr)?);
        event.site = memo.site(get(plan.site)?, names);
        if op == Op::Alloc {
            event.requested = get(plan.requested)?;
            event.given = get(plan.given)?;
            event.node = get(plan.node).map_or(-1, |node| node as i32);
        }
        if plan.cache.size == 4 {
            let place = get(plan.cache)? as usize;
            let base = if plan.cache_relative {
                plan.cache.offset + 4
            } else {
                0
            };
            let start = base + (place & 0xffff);
            let text = record.get(start..start + (place >> 16))?;
            event.cache = memo.cache(text, names);
        }
        Some(event)
    }

    #[inline]
    fn page(&self, plan: &Plan, op: Op, record: &[u8], time: u64) -> Option<Event> {
        let get = |slot: Slot| slot.get(record, self.endian);
        let pfn = get(plan.ptr)?;
        let order = get(plan.order).unwrap_or(0).min(52) as u8;
        // A failed allocation has page frame -1.
        let all = if self.word == 4 {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        let failed = pfn == all;
        let ptr = if failed { 0 } else { pfn };
        debug_assert_ne!(ptr, UNKNOWN_PTR);
        let mut event = Event::new(op, Class::Pages, time, ptr);
        event.order = order;
        event.requested = self.page_size.checked_shl(u32::from(order)).unwrap_or(0);
        event.given = event.requested;
        if op == Op::Alloc {
            event.migrate = get(plan.migrate).map_or(u8::MAX, |m| m as u8);
        }
        Some(event)
    }

    fn stack(&self, plan: &Plan, record: &[u8], names: &mut Names) -> Record {
        let start = plan.ptr.offset;
        // The array has no size of its own where its length is open.
        if start == 0 || record.len() < start {
            return Record::Short;
        }
        let mut frames: Vec<SiteId> = Vec::new();
        for at in (start..record.len()).step_by(self.word) {
            let Some(address) = self.endian.get(record, at, self.word) else {
                break;
            };
            if address == 0
                || address == u64::MAX
                || (self.word == 4 && address == u64::from(u32::MAX))
            {
                break;
            }
            frames.push(names.address(address));
        }
        Record::Stack(names.stack(&frames))
    }

    /// Whether a record is a kernel stack.
    #[inline]
    #[must_use]
    pub fn is_stack(&self, record: &[u8]) -> bool {
        let id = self.kind_slot.get(record, self.endian);
        id.and_then(|id| self.plan(id))
            .is_some_and(|(_, plan)| plan.kind == Kind::Stack)
    }
}

/// Names that were looked up last, so that most events need no look-up in [`Names`]. One for each stream of records.
#[derive(Debug)]
pub struct Memo {
    caches: Vec<CacheName>,
    sites: Vec<(u64, SiteId)>,
    flags: Vec<(u64, WordId)>,
    comm: (i32, WordId),
    others: Vec<WordId>,
}

/// Longest name of a cache that is remembered.
const NAME: usize = 32;
/// Places in the tables of a [`Memo`].
const PLACES: usize = 512;

#[derive(Debug, Clone, Copy)]
struct CacheName {
    len: usize,
    text: [u8; NAME],
    id: WordId,
}

impl Default for Memo {
    fn default() -> Self {
        let name = CacheName {
            len: 0,
            text: [0; NAME],
            id: WordId::NONE,
        };
        Memo {
            caches: vec![name; PLACES],
            sites: vec![(0, SiteId::NONE); PLACES],
            flags: vec![(u64::MAX, WordId::NONE); PLACES],
            comm: (i32::MIN, WordId::NONE),
            others: Vec::new(),
        }
    }
}

/// A place in a table, from a number whose bits may lie anywhere.
#[inline]
fn place(value: u64) -> usize {
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PLACES
}

impl Memo {
    #[inline]
    fn site(&mut self, address: u64, names: &mut Names) -> SiteId {
        let entry = &mut self.sites[place(address)];
        if entry.0 != address {
            *entry = (address, names.address(address));
        }
        entry.1
    }

    /// A name that ends at its first NUL.
    #[inline]
    fn cache(&mut self, text: &[u8], names: &mut Names) -> WordId {
        let head = text
            .first_chunk::<8>()
            .map_or(0, |b| u64::from_le_bytes(*b));
        let entry = &mut self.caches[place(head ^ (text.len() as u64) << 56)];
        if entry.len == text.len() && entry.text.get(..entry.len) == Some(text) {
            return entry.id;
        }
        let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
        let id = names.word_bytes(&text[..end]);
        if let Some(room) = entry.text.get_mut(..text.len()) {
            room.copy_from_slice(text);
            (entry.len, entry.id) = (text.len(), id);
        }
        id
    }

    #[inline]
    fn flags(&mut self, value: u64, list: &[(u64, String)], names: &mut Names) -> WordId {
        let entry = &mut self.flags[place(value)];
        if entry.0 != value || entry.1.is_none() {
            *entry = (value, names.word(&print_flags(value, list)));
        }
        entry.1
    }

    #[inline]
    fn comm(&mut self, pid: i32, comms: &FxHashMap<i32, String>, names: &mut Names) -> WordId {
        if self.comm.0 != pid {
            let name = match comms.get(&pid) {
                Some(name) => name.as_str(),
                None if pid == 0 => "<idle>",
                None => "<...>",
            };
            self.comm = (pid, names.word(name));
        }
        self.comm.1
    }

    /// A task has a name, or another one, from now on.
    pub fn forget_comm(&mut self) {
        self.comm = (i32::MIN, WordId::NONE);
    }

    fn other(&mut self, index: usize, name: &str, names: &mut Names) -> WordId {
        if self.others.len() <= index {
            self.others.resize(index + 1, WordId::NONE);
        }
        if self.others[index].is_none() {
            self.others[index] = names.word(name);
        }
        self.others[index]
    }
}
