//! The depot: its parts, its start, and what its owner publishes of it.

use crate::cache::Cache;
use crate::linux::Linux;
use crate::modules::Modules;
use crate::node::NodeCell;
use crate::platform::Platform;
use crate::store::Store;
use crate::table::{FIRST_BITS, HEADER, Table};
use crate::trie::{Memory, Trie};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Nodes that a depot has room for unless told otherwise.
const NODES: u32 = 1 << 20;

/// Why [`Depot::init`] failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitError {
    /// The system gave no memory. Walks answer [`crate::Walk::NONE`].
    NoMemory,
    /// Another call did it, or is at it.
    Repeated,
}

/// All stacks seen so far. Owned by the caller, usually in a static.
pub struct Depot<P: Platform = Linux> {
    pub(crate) platform: P,
    pub(crate) store: Store,
    pub(crate) trie: Trie,
    pub(crate) modules: Modules,
    pub(crate) rules: Cache,
    /// A node without a module was made.
    pub(crate) homeless: AtomicBool,
    /// Changes whenever nodes may have died; 0 before [`Depot::init`].
    pub(crate) generation: AtomicU32,
    begun: AtomicBool,
    most: u32,
    mapped: AtomicUsize,
}

impl Depot<Linux> {
    /// An empty depot of this process; [`Depot::init`] makes it usable.
    pub const fn new() -> Self {
        Self::with_platform(Linux, NODES)
    }
}

impl Default for Depot<Linux> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Platform> Depot<P> {
    /// An empty depot over `platform` with room for `nodes` nodes, the root included (2^24 at most; an 8th or a 64th
    /// if so much address space cannot be had).
    pub const fn with_platform(platform: P, nodes: u32) -> Self {
        Self {
            platform,
            store: Store::new(),
            trie: Trie::new(),
            modules: Modules::new(),
            rules: Cache::new(),
            homeless: AtomicBool::new(false),
            generation: AtomicU32::new(0),
            begun: AtomicBool::new(false),
            most: if nodes > 1 << 24 { 1 << 24 } else { nodes },
            mapped: AtomicUsize::new(0),
        }
    }

    /// Maps the tables. Until it returns, and if it fails, walks answer [`crate::Walk::NONE`].
    ///
    /// # Errors
    /// [`InitError::NoMemory`] or [`InitError::Repeated`].
    pub fn init(&self) -> Result<(), InitError> {
        if self.begun.swap(true, Ordering::AcqRel) {
            return Err(InitError::Repeated);
        }
        let fixed = self
            .modules
            .init(&self.platform)
            .zip(self.rules.init(&self.platform));
        let (modules, rules) = fixed.ok_or(InitError::NoMemory)?;
        self.mapped.fetch_add(modules + rules, Ordering::Relaxed);
        let base = self
            .store
            .init(&self.platform, self.most)
            .ok_or(InitError::NoMemory)?;
        if !self.trie.init(&View { depot: self, base }, FIRST_BITS) {
            return Err(InitError::NoMemory);
        }
        self.store.open(base);
        self.generation.store(1, Ordering::Release);
        Ok(())
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_, P> {
        View {
            depot: self,
            base: self.store.base(),
        }
    }

    /// To be called in the child after `fork`: work that another thread of the parent was at goes on nowhere.
    pub fn after_fork(&self) {
        self.trie.after_fork();
    }

    /// Address of node 0 ([`memledger_abi::Node`]); 0 before [`Depot::init`].
    pub fn nodes_address(&self) -> usize {
        self.store.base().expose_provenance()
    }

    /// Nodes made so far, the root included.
    pub fn node_count(&self) -> u32 {
        self.store.len()
    }

    /// Address of module record 0 ([`memledger_abi::ModuleRecord`]); 0 before [`Depot::init`].
    pub fn modules_address(&self) -> usize {
        self.modules.address()
    }

    /// Module records made so far, record 0 included.
    pub fn module_count(&self) -> u32 {
        self.modules.len()
    }

    /// Address of the `u32` count of nodes handed out, for readers; it may run ahead of what is readable for a moment.
    pub fn node_count_at(&self) -> u64 {
        self.store.next_at()
    }

    /// Address of the `u32` count of module records, for readers.
    pub fn module_count_at(&self) -> u64 {
        self.modules.count_at()
    }

    /// Addresses of two `u64`s whose sum is [`Depot::meta_bytes`], for readers.
    pub fn meta_bytes_at(&self) -> [u64; 2] {
        [
            self.mapped.as_ptr().expose_provenance() as u64,
            self.store.bytes_at(),
        ]
    }

    /// Bytes mapped for tables and accessible for nodes (not all of them resident).
    pub fn meta_bytes(&self) -> usize {
        self.mapped.load(Ordering::Relaxed) + self.store.bytes()
    }
}

/// The depot with the address of its nodes at hand.
pub(crate) struct View<'a, P: Platform> {
    pub(crate) depot: &'a Depot<P>,
    pub(crate) base: *mut NodeCell,
}

impl<P: Platform> View<'_, P> {
    /// Number of a node of this depot.
    #[inline]
    pub(crate) fn number(&self, node: &NodeCell) -> u32 {
        let bytes = core::ptr::from_ref(node).addr() - self.base.addr();
        (bytes / size_of::<NodeCell>()) as u32
    }
}

impl<P: Platform> Memory for View<'_, P> {
    #[inline]
    fn node(&self, id: u32) -> &NodeCell {
        // SAFETY: numbers are only handed out after their nodes were made accessible; nodes are never unmapped and have
        // only atomic fields.
        unsafe { &*self.base.add(id as usize) }
    }

    fn new_node(&self) -> Option<u32> {
        self.depot.store.hand_out(&self.depot.platform, self.base)
    }

    fn give_back(&self, id: u32) {
        self.depot.store.give_back(id);
    }

    fn new_table(&self, bits: u32) -> *mut Table {
        let bytes = HEADER + (size_of::<AtomicU64>() << bits);
        let memory = self.depot.platform.map(bytes);
        if memory.is_null() {
            return core::ptr::null_mut();
        }
        self.depot.mapped.fetch_add(bytes, Ordering::Relaxed);
        let table = memory.cast::<Table>();
        // SAFETY: `bytes` fresh zeroed bytes, page-aligned: a header of HEADER bytes, then the slots.
        unsafe { table.write(Table::new(bits, memory.add(HEADER).cast())) };
        table
    }
}
