//! One client's table of tags, and the modules that brought them.
//!
//! Numbers are given out in order and never taken back. A module is remembered for ever by its name and its rows; when
//! it is loaded again with the same tags (number, file, line, column, function) it gets its old rows, so a program that
//! loads and unloads a plugin in a loop does not fill the table. Two modules that are loaded at the same time never
//! share rows. A row is complete before the count that makes it visible is raised, and before its number is stored in
//! the tag, so readers, inside the process and outside, need no lock.

use core::mem::size_of;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::arena::{Arena, cut};
use crate::lock::Lock;
use crate::row::{ROW_LOADED, Row, RowText};
use crate::tag::{CodeTag, TagRange};

/// What a client of this crate has to say.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// Number of the first row; smaller numbers are the client's own. At least 1.
    pub first_index: u32,
    /// Most rows.
    pub capacity: u32,
    /// Gives memory of that many bytes: zeroed, 64-aligned, nobody else's, never freed or moved; `None` = there is none.
    /// Asked once for the whole table (so it should commit pages on first use), then for pieces of 64 KiB.
    pub memory: fn(usize) -> Option<NonNull<u8>>,
    /// Called between the tries to take the registry's lock.
    pub wait: fn(),
    /// Called, under the registry's lock, when a module has been registered.
    pub on_load: Option<fn(&Module<'_>, Registered)>,
    /// Called, under the registry's lock, when a module goes away, with its name.
    pub on_unload: Option<fn(&[u8])>,
}

impl Client {
    /// A client with 65,536 rows from 1 on that only says where memory comes from.
    pub const fn new(memory: fn(usize) -> Option<NonNull<u8>>) -> Self {
        Client {
            first_index: 1,
            capacity: 65_536,
            memory,
            wait: core::hint::spin_loop,
            on_load: None,
            on_unload: None,
        }
    }
}

/// A module that is loaded: its tags, and a name to show.
#[derive(Debug, Clone, Copy)]
pub struct Module<'a> {
    /// Its tags.
    pub tags: TagRange,
    /// Its name; by custom empty for the executable.
    pub name: &'a [u8],
}

/// What a registration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registered {
    /// New rows.
    pub added: u32,
    /// Old rows that belong to the module again.
    pub reused: u32,
    /// Tags that got no row: the table was full, or the client had no memory.
    pub lost: u32,
}

/// What is remembered of a module.
struct Entry {
    next: Option<&'static mut Entry>,
    name: &'static [u8],
    /// Tags without anchors, those without a row included.
    tags: usize,
    /// Position of its first row.
    first: u32,
    rows: u32,
    /// Address of its tags while it is loaded, else 0.
    loaded_at: usize,
}

struct State {
    arena: Arena,
    modules: Option<&'static mut Entry>,
}

impl State {
    fn find(&mut self, mut is_it: impl FnMut(&Entry) -> bool) -> Option<&mut Entry> {
        let mut at = self.modules.as_deref_mut();
        while let Some(entry) = at {
            if is_it(entry) {
                return Some(entry);
            }
            at = entry.next.as_deref_mut();
        }
        None
    }
}

/// One client's table of tags. See the crate's example.
pub struct Registry {
    client: Client,
    state: Lock<State>,
    rows: AtomicPtr<Row>,
    count: AtomicU32,
    lost: AtomicU64,
    bytes: AtomicU64,
}

impl Registry {
    /// An empty table; takes no memory until the first tag comes.
    ///
    /// # Safety
    /// `client.memory` must do what [`Client::memory`] says.
    pub const unsafe fn new(client: Client) -> Self {
        assert!(client.first_index > 0, "number 0 means: not registered");
        assert!(client.capacity <= u32::MAX - client.first_index);
        Registry {
            client,
            state: Lock::new(State {
                arena: Arena::new(client.memory),
                modules: None,
            }),
            rows: AtomicPtr::new(core::ptr::null_mut()),
            count: AtomicU32::new(0),
            lost: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Numbers the tags of a module and makes their rows. A module that is registered already is left as it is.
    /// Takes a lock: not to be called where the client's `memory` or `wait` could wait for the caller.
    ///
    /// # Safety
    /// The tags must stay mapped until [`Registry::unregister`] is called for them.
    pub unsafe fn register(&self, module: Module<'_>) -> Registered {
        let tags = module.tags.tags().count();
        if tags == 0 {
            return Registered::default();
        }
        let at = module.tags.start() as usize;
        let mut state = self.state.lock(self.client.wait);
        if self.still_loaded(&mut state, at, &module) {
            return Registered::default();
        }
        let known = state.find(|entry| {
            entry.loaded_at == 0
                && entry.name == module.name
                && entry.tags == tags
                && self.same_tags(entry, &module)
        });
        let done = match known {
            Some(entry) => {
                entry.loaded_at = at;
                self.revive(entry.first, entry.rows, &module.tags);
                Registered {
                    reused: entry.rows,
                    ..Registered::default()
                }
            }
            None => self.add(&mut state, &module, tags),
        };
        let rows = u64::from(self.count.load(Ordering::Relaxed)) * size_of::<Row>() as u64;
        self.bytes
            .store(state.arena.taken() as u64 + rows, Ordering::Relaxed);
        if let Some(on_load) = self.client.on_load {
            on_load(&module, done);
        }
        done
    }

    /// The module goes away: its rows stay, without [`ROW_LOADED`]. Unknown modules are ignored.
    pub fn unregister(&self, tags: &TagRange) {
        let at = tags.start() as usize;
        let mut state = self.state.lock(self.client.wait);
        let Some(entry) = state.find(|entry| at != 0 && entry.loaded_at == at) else {
            return;
        };
        entry.loaded_at = 0;
        let (first, rows, name) = (entry.first, entry.rows, entry.name);
        self.rows_at(first, rows)
            .iter()
            .for_each(|row| row.clear_flags(ROW_LOADED));
        if let Some(on_unload) = self.client.on_unload {
            on_unload(name);
        }
    }

    /// To be called in the child after `fork`, while it has one thread: work that another thread of the parent was at goes
    /// on nowhere. What it had published stays, the rest is forgotten.
    ///
    /// # Safety
    /// No other thread of this process uses the registry, and the caller is not inside it.
    pub unsafe fn after_fork(&self) {
        // SAFETY: by the contract nobody of this process holds the lock.
        unsafe { self.state.release() };
        self.state.lock(self.client.wait).arena.forget_chunk();
    }

    /// Whether the module loaded at this address is this one. If it is another (which then went away without a word),
    /// its rows are marked as unloaded.
    fn still_loaded(&self, state: &mut State, at: usize, module: &Module<'_>) -> bool {
        let Some(entry) = state.find(|entry| entry.loaded_at == at) else {
            return false;
        };
        let first = module.tags.tags().next().map_or(0, CodeTag::index);
        let same = if entry.rows == 0 {
            entry.name == module.name
        } else {
            first == self.client.first_index + entry.first
        };
        if same {
            return true;
        }
        entry.loaded_at = 0;
        let (first, rows) = (entry.first, entry.rows);
        self.rows_at(first, rows)
            .iter()
            .for_each(|row| row.clear_flags(ROW_LOADED));
        false
    }

    fn same_tags(&self, entry: &Entry, module: &Module<'_>) -> bool {
        let rows = self.rows_at(entry.first, entry.rows);
        rows.iter().zip(module.tags.tags()).all(|(row, tag)| {
            row.line() == tag.line()
                && row.column() == tag.column()
                && row.file() == cut(tag.file())
                && row.func() == cut(tag.func())
        })
    }

    fn revive(&self, first: u32, rows: u32, tags: &TagRange) {
        for (i, (row, tag)) in self
            .rows_at(first, rows)
            .iter()
            .zip(tags.tags())
            .enumerate()
        {
            row.set_flags(ROW_LOADED);
            tag.set_index(self.client.first_index + first + i as u32);
        }
    }

    /// Makes as many rows as there is room for, and remembers the module even if nothing fits, so that its loss is counted
    /// once.
    fn add(&self, state: &mut State, module: &Module<'_>, tags: usize) -> Registered {
        let first = self.count.load(Ordering::Relaxed);
        let rows = self.fill(state, module, first).unwrap_or(0);
        let lost = (tags - rows as usize).min(u32::MAX as usize) as u32;
        self.lost.fetch_add(u64::from(lost), Ordering::Relaxed);
        self.count.store(first + rows, Ordering::Release);
        for (tag, index) in module
            .tags
            .tags()
            .zip(self.client.first_index + first..)
            .take(rows as usize)
        {
            tag.set_index(index);
        }
        if let Some(name) = state.arena.intern(module.name) {
            let loaded_at = module.tags.start() as usize;
            let next = state.modules.take();
            // `put` drops `next` when there is no memory; entries are never freed, so take it apart first.
            state.modules = match state.arena.put(Entry {
                next: None,
                name,
                tags,
                first,
                rows,
                loaded_at,
            }) {
                Some(entry) => {
                    entry.next = next;
                    Some(entry)
                }
                None => next,
            };
        }
        Registered {
            added: rows,
            reused: 0,
            lost,
        }
    }

    /// Writes the rows from position `first` on; returns how many.
    fn fill(&self, state: &mut State, module: &Module<'_>, first: u32) -> Option<u32> {
        let room = (self.client.capacity - first) as usize;
        let table = self.table()?;
        let arena = &mut state.arena;
        let name = arena.intern(module.name)?;
        let mut done = 0;
        for tag in module.tags.tags().take(room) {
            let Some(text) = copy_text(arena, tag, name) else {
                break;
            };
            // SAFETY: position `first + done < capacity`, unpublished, and only written under the lock.
            unsafe {
                table
                    .add((first + done) as usize)
                    .write(Row::new(text, tag.line(), tag.column()))
            };
            done += 1;
        }
        Some(done)
    }

    /// The table, made on first use.
    fn table(&self) -> Option<NonNull<Row>> {
        if let Some(table) = NonNull::new(self.rows.load(Ordering::Relaxed)) {
            return Some(table);
        }
        let table = (self.client.memory)(self.client.capacity as usize * size_of::<Row>())?.cast();
        self.rows.store(table.as_ptr(), Ordering::Release);
        Some(table)
    }

    fn rows_at(&self, first: u32, rows: u32) -> &'static [Row] {
        self.rows()
            .get(first as usize..(first + rows) as usize)
            .unwrap_or(&[])
    }

    /// All rows made so far; row 0 has the number [`Registry::first_index`].
    pub fn rows(&self) -> &'static [Row] {
        let count = self.count.load(Ordering::Acquire);
        if count == 0 {
            return &[];
        }
        // SAFETY: `count` rows were written before `count` was released; they are never written again as a whole, and the
        // memory is stable by the contract of `new`.
        unsafe { core::slice::from_raw_parts(self.rows.load(Ordering::Acquire), count as usize) }
    }

    /// The row of a number.
    pub fn row(&self, index: u32) -> Option<&'static Row> {
        self.rows()
            .get(index.checked_sub(self.client.first_index)? as usize)
    }

    /// Address of the first row; null before the first registration.
    pub fn table_address(&self) -> *const Row {
        self.rows.load(Ordering::Acquire)
    }

    /// Rows made so far.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Number of the first row.
    pub const fn first_index(&self) -> u32 {
        self.client.first_index
    }

    /// Tags that got no row.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Bytes in use: the rows made, and the pieces taken for strings.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The counts behind [`Registry::count`], [`Registry::lost`] and [`Registry::bytes`], for readers that only know
    /// addresses.
    pub const fn counts(&self) -> (&AtomicU32, &AtomicU64, &AtomicU64) {
        (&self.count, &self.lost, &self.bytes)
    }
}

fn copy_text(arena: &mut Arena, tag: &CodeTag, module: &'static [u8]) -> Option<RowText<'static>> {
    Some(RowText {
        file: arena.intern_str(tag.file())?,
        func: arena.intern_str(tag.func())?,
        path: arena.intern_str(tag.module_path())?,
        module,
    })
}
