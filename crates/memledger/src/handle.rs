//! An allocator handle that carries a tag, for collections that take an allocator.
//!
//! Stable Rust has no allocator parameter in `std`; the crate `allocator-api2` has the trait with its own `Vec` and `Box`, and
//! `hashbrown`, `bumpalo` and others take it. A handle is two words at most, and is copied with the collection.

use allocator_api2::alloc::{AllocError, Allocator, Global, Layout};
use std::ptr::NonNull;

use crate::SavedTag;

/// An allocator that charges what it hands out to one tag, and takes the memory from another allocator.
///
/// So a collection charges what it allocates later, wherever that is, to where it was created. The tag of the handle wins over
/// what is current when the collection grows: it is the innermost hook.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use memledger::{TaggedAlloc, alloc_tag_record};
///
/// #[global_allocator]
/// static A: memledger::Ledger = memledger::Ledger::new();
///
/// fn fill(list: &mut Vec<u8, TaggedAlloc>) {
///     list.resize(100_000, 0); // not charged here
/// }
///
/// fn main() {
///     let mut list = Vec::new_in(TaggedAlloc::new(alloc_tag_record!()));
///     let line = line!() - 1;
///     fill(&mut list);
///     let rows = memledger::allocinfo().unwrap().rows;
///     assert_eq!(rows.iter().find(|r| r.line == line).unwrap().bytes, 102_400);
/// }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TaggedAlloc<A = Global> {
    tag: SavedTag,
    inner: A,
}

/// A `hashbrown::HashMap` that charges to where it was made.
#[cfg(feature = "hashbrown")]
pub type TaggedHashMap<K, V, S = hashbrown::DefaultHashBuilder> =
    hashbrown::HashMap<K, V, S, TaggedAlloc>;

impl TaggedAlloc {
    /// A handle for the global allocator.
    pub fn new(tag: impl Into<SavedTag>) -> Self {
        TaggedAlloc::new_in(tag, Global)
    }

    /// A handle that charges the caller's place, for constructors with `#[track_caller]`. See [`crate::charge_caller`].
    #[track_caller]
    pub fn here() -> Self {
        TaggedAlloc::new(SavedTag::caller())
    }
}

impl<A> TaggedAlloc<A> {
    /// A handle for another allocator, which is charged if it takes its memory from the global one.
    pub fn new_in(tag: impl Into<SavedTag>, inner: A) -> Self {
        TaggedAlloc {
            tag: tag.into(),
            inner,
        }
    }

    /// The tag.
    pub fn tag(&self) -> SavedTag {
        self.tag
    }
}

// SAFETY: hands on what the inner allocator does; clones have clones of that, to which the same memory belongs.
unsafe impl<A: Allocator> Allocator for TaggedAlloc<A> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let _guard = self.tag.enter();
        self.inner.allocate(layout)
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let _guard = self.tag.enter();
        self.inner.allocate_zeroed(layout)
    }

    #[inline]
    unsafe fn deallocate(&self, p: NonNull<u8>, layout: Layout) {
        // SAFETY: by the contract; the memory is the inner allocator's.
        unsafe { self.inner.deallocate(p, layout) }
    }

    #[inline]
    unsafe fn grow(
        &self,
        p: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let _guard = self.tag.enter();
        // SAFETY: as in `deallocate`.
        unsafe { self.inner.grow(p, old, new) }
    }

    #[inline]
    unsafe fn grow_zeroed(
        &self,
        p: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let _guard = self.tag.enter();
        // SAFETY: as in `deallocate`.
        unsafe { self.inner.grow_zeroed(p, old, new) }
    }

    #[inline]
    unsafe fn shrink(
        &self,
        p: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let _guard = self.tag.enter();
        // SAFETY: as in `deallocate`.
        unsafe { self.inner.shrink(p, old, new) }
    }
}
