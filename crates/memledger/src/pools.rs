//! Named caches of typed objects, as the kernel's `kmem_cache`.

use core::arch::naked_asm;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use mm::linux::Cache;
use mm::pool::PoolSpec;
use std::alloc::{Layout, handle_alloc_error};

pub use mm::pool::PoolError as CacheError;

/// A named cache of objects of one type: slabs of its own, with slots exactly as large as the objects, listed by name in
/// `memledger slabinfo -p PID` and `slabinfo`.
///
/// Its objects are charged to the line that allocates them, as all other memory: a tag that is current, else the call site. Works
/// whether or not [`crate::Ledger`] is the global allocator.
///
/// ```
/// use memledger::KmemCache;
/// use std::sync::LazyLock;
///
/// struct Conn { peer: u32, buffer: [u8; 200] }
/// static CONNS: LazyLock<KmemCache<Conn>> = LazyLock::new(|| KmemCache::create("conn").unwrap());
///
/// let conn = CONNS.alloc(Conn { peer: 7, buffer: [0; 200] });
/// assert_eq!((conn.peer, CONNS.info().live), (7, 1));
/// drop(conn); // back to its slab
/// CONNS.shrink();
/// assert_eq!(CONNS.info().slabs, 0);
/// ```
///
/// A cache that goes away while objects of it are live (leaked, forgotten) leaves them as they are, and says on standard error who
/// allocated them. Each call takes the cache's lock; a signal handler that interrupts the allocator never waits for it: it
/// gets no object, or, when it frees one, the slot stays unused ([`CacheInfo::lost`]).
pub struct KmemCache<T> {
    pool: &'static Cache,
    new: Option<fn() -> T>,
    objects: PhantomData<fn() -> T>,
}

/// What a cache is and holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheInfo {
    /// Its name.
    pub name: String,
    /// Bytes of an object.
    pub object_bytes: u64,
    /// Bytes of a slot: what an object is accounted with.
    pub slot_bytes: u64,
    /// Alignment of objects, in bytes.
    pub align: u32,
    /// Slots of a slab.
    pub slots: u32,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Slabs now.
    pub slabs: u64,
    /// Live objects.
    pub live: u64,
    /// Slots lost to signal handlers.
    pub lost: u64,
}

/// Objects that were live when their cache was destroyed. They stay valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLeak {
    /// How many.
    pub objects: u64,
    /// Their bytes, in slots.
    pub bytes: u64,
}

impl fmt::Display for CacheLeak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CacheLeak { objects, bytes } = self;
        write!(f, "{objects} objects ({bytes} bytes) remain in the cache")
    }
}

impl std::error::Error for CacheLeak {}

impl<T> KmemCache<T> {
    /// A cache for objects of type `T`. The name (1 to 64 bytes, no blanks) need not be unique.
    ///
    /// # Errors
    /// See [`CacheError`].
    pub fn create(name: &str) -> Result<Self, CacheError> {
        Self::make(name, align_of::<T>(), None)
    }

    /// As [`KmemCache::create`], with objects aligned to `align` bytes (64: a cache line; the kernel's `SLAB_HWCACHE_ALIGN`), or to
    /// what the type needs, if that is more.
    ///
    /// # Errors
    /// See [`CacheError`].
    pub fn create_aligned(name: &str, align: usize) -> Result<Self, CacheError> {
        Self::make(name, align.max(align_of::<T>()), None)
    }

    /// As [`KmemCache::create`], for [`KmemCache::alloc_new`]: `new` makes each object.
    ///
    /// # Errors
    /// See [`CacheError`].
    pub fn create_with(name: &str, new: fn() -> T) -> Result<Self, CacheError> {
        Self::make(name, align_of::<T>(), Some(new))
    }

    fn make(name: &str, align: usize, new: Option<fn() -> T>) -> Result<Self, CacheError> {
        let size = size_of::<T>();
        let pool = mm::linux::pool_create(&PoolSpec { name, size, align })?;
        Ok(KmemCache {
            pool,
            new,
            objects: PhantomData,
        })
    }

    /// An object that holds `value`. Out of memory is the end of the process, as with `Box::new`.
    #[inline]
    pub fn alloc(&self, value: T) -> CacheBox<'_, T> {
        match self.slot() {
            Some(at) => self.fill(at, value),
            None => handle_alloc_error(Layout::new::<T>()),
        }
    }

    /// An object that holds `value`.
    ///
    /// # Errors
    /// The value, when there is no memory.
    #[inline]
    pub fn try_alloc(&self, value: T) -> Result<CacheBox<'_, T>, T> {
        match self.slot() {
            Some(at) => Ok(self.fill(at, value)),
            None => Err(value),
        }
    }

    /// An object as the cache's constructor makes it. Unlike the kernel's, it runs for each object: what was freed has been dropped.
    ///
    /// # Panics
    /// If the cache has none ([`KmemCache::create_with`]).
    #[inline]
    pub fn alloc_new(&self) -> CacheBox<'_, T> {
        let new = self.new.expect("a cache made by `create_with`");
        self.alloc(new())
    }

    #[inline(always)]
    fn slot(&self) -> Option<NonNull<T>> {
        // SAFETY: the pool is in use until `self` ends.
        NonNull::new(unsafe { entry_pool(self.pool) }.cast())
    }

    #[inline]
    fn fill(&self, at: NonNull<T>, value: T) -> CacheBox<'_, T> {
        // SAFETY: a new slot, large enough and aligned for `T`, which nobody else has.
        unsafe { at.write(value) };
        CacheBox {
            object: at,
            cache: self,
        }
    }

    /// Gives empty slabs back; returns their bytes. One is kept otherwise.
    pub fn shrink(&self) -> usize {
        mm::linux::pool_shrink(self.pool)
    }

    /// What it is and holds now.
    pub fn info(&self) -> CacheInfo {
        let r = self.pool.record();
        let name = &r.name[..(r.name_len as usize).min(r.name.len())];
        CacheInfo {
            name: String::from_utf8_lossy(name).into_owned(),
            object_bytes: r.object_bytes,
            slot_bytes: r.slot_bytes,
            align: r.align,
            slots: r.slots,
            slab_bytes: u64::from(r.units) << memledger_abi::UNIT_SHIFT,
            slabs: r.slabs,
            live: r.live,
            lost: r.lost,
        }
    }

    /// Ends the cache; as dropping it, with an answer.
    ///
    /// # Errors
    /// When objects are live: they stay, and a warning on standard error says who allocated them.
    pub fn destroy(self) -> Result<(), CacheLeak> {
        ManuallyDrop::new(self).end()
    }

    fn end(&self) -> Result<(), CacheLeak> {
        let slot_bytes = self.pool.record().slot_bytes;
        // SAFETY: called by `destroy` and `drop`, once.
        unsafe { mm::linux::pool_destroy(self.pool) }.map_err(|objects| {
            let bytes = objects * slot_bytes;
            let leak = CacheLeak { objects, bytes };
            warn(self.pool, &self.info().name, leak);
            leak
        })
    }
}

impl<T> Drop for KmemCache<T> {
    fn drop(&mut self) {
        // The warning has been printed.
        let _ = self.end();
    }
}

impl<T> fmt::Debug for KmemCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info().fmt(f)
    }
}

/// Says who allocated what is left in a cache.
fn warn(pool: &'static Cache, name: &str, leak: CacheLeak) {
    // By index: how many, and the address of one.
    let mut left = std::collections::BTreeMap::<u32, (u64, usize)>::new();
    mm::linux::pool_objects(pool, |p, index| left.entry(index).or_insert((0, p)).0 += 1);
    eprintln!("memledger: cache {name} destroyed: {leak}");
    let indexes: Vec<u32> = left.keys().copied().collect();
    #[cfg(feature = "report")]
    let names = crate::report::names_of(&indexes);
    #[cfg(not(feature = "report"))]
    let names = vec![None::<String>; indexes.len()];
    for ((index, (count, p)), name) in left.into_iter().zip(names) {
        let name = name.unwrap_or_else(|| format!("site {index}"));
        eprintln!("memledger:   {count} by {name}, one at {p:#x}");
    }
}

/// An object of a [`KmemCache`]; dropped and given back to its slab with this.
pub struct CacheBox<'a, T> {
    object: NonNull<T>,
    cache: &'a KmemCache<T>,
}

// SAFETY: it owns its object, and a cache may be used by all threads.
unsafe impl<T: Send> Send for CacheBox<'_, T> {}
// SAFETY: as above; a shared one gives only shared references.
unsafe impl<T: Sync> Sync for CacheBox<'_, T> {}

impl<'a, T> CacheBox<'a, T> {
    /// The value; the object goes back to its slab.
    pub fn into_inner(this: Self) -> T {
        let this = ManuallyDrop::new(this);
        // SAFETY: the object is live and owned; it is moved out, and the slot is not used afterwards.
        unsafe {
            let value = this.object.read();
            mm::linux::pool_free(this.cache.pool, this.object.as_ptr().cast());
            value
        }
    }

    /// Gives up ownership: the object stays live.
    pub fn leak(this: Self) -> &'a mut T {
        // SAFETY: the object is live and owned, and nobody frees it any more; slabs with live objects are never given back.
        unsafe { ManuallyDrop::new(this).object.as_mut() }
    }
}

impl<T> Drop for CacheBox<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the object is live, owned, and not used afterwards.
        unsafe {
            self.object.drop_in_place();
            mm::linux::pool_free(self.cache.pool, self.object.as_ptr().cast());
        }
    }
}

impl<T> Deref for CacheBox<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the object is live, and borrowed as this is.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for CacheBox<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { self.object.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for CacheBox<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Sees the stack as it is at the call, as the entries of the global allocator do.
#[unsafe(naked)]
unsafe extern "C" fn entry_pool(pool: &Cache) -> *mut u8 {
    naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {}", sym pool_at)
}

unsafe extern "C" fn pool_at(pool: &Cache, sp: usize, fp: usize) -> *mut u8 {
    // SAFETY: `sp` and `fp` come from the entry.
    unsafe { mm::linux::pool_allocate(pool, sp, fp) }
}
