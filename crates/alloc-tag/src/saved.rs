//! Tags that are kept: a handle, values that are charged to where they were made, and closures that take the current tag
//! to another thread.

use core::fmt;
use core::ops::{Deref, DerefMut};

use codetag::CodeTag;

use crate::caller::caller_tag;
use crate::slot::{self, Guard};

/// A tag to be used later, on any thread: the kernel's `alloc_tag_record()`.
///
/// It holds the tag's index, not its address, so it stays good when the module that made it is unloaded. Made before a
/// runtime knows the module, or without a runtime, it is [`SavedTag::NONE`] and changes nothing.
///
/// ```
/// use alloc_tag::{SavedTag, alloc_tag_record, current};
/// # assert!(alloc_tag::runtime::start_local());
/// let tag: SavedTag = alloc_tag_record!();
/// assert_eq!(tag.charge(current), tag.index());
/// assert_eq!(SavedTag::NONE.charge(current), 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SavedTag {
    index: u32,
}

impl SavedTag {
    /// No tag: under it, whatever is current stays current.
    pub const NONE: SavedTag = SavedTag { index: 0 };

    /// The handle of a static tag.
    #[inline]
    pub fn of(tag: &CodeTag) -> SavedTag {
        SavedTag { index: tag.index() }
    }

    /// The calling thread's current tag.
    #[inline]
    pub fn current() -> SavedTag {
        SavedTag {
            index: slot::current(),
        }
    }

    /// A tag of the caller's place, made at run time: see [`charge_caller`](crate::charge_caller).
    #[track_caller]
    #[inline]
    pub fn caller() -> SavedTag {
        caller_tag()
    }

    pub(crate) fn from_index(index: u32) -> SavedTag {
        SavedTag { index }
    }

    /// Number of the tag; 0 = none.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Makes it current until the guard is dropped. Guards must be dropped in reverse order.
    #[inline]
    pub fn enter(self) -> Guard {
        slot::enter_index(self.index)
    }

    /// Evaluates a closure under it.
    #[inline]
    pub fn charge<R>(self, f: impl FnOnce() -> R) -> R {
        let _guard = self.enter();
        f()
    }
}

impl From<&CodeTag> for SavedTag {
    fn from(tag: &CodeTag) -> SavedTag {
        SavedTag::of(tag)
    }
}

/// A value that is charged to one tag whenever it is changed: for types that take no allocator, like `std`'s `String`,
/// `Vec`, `HashMap` and `BTreeMap`.
///
/// Read it by `Deref`; change it under [`Tagged::with`] or the guard of [`Tagged::lock`]. What a change allocates is charged
/// to the tag, unless a hook inside the change names another. A realloc charges the block anew, so a container that grows
/// elsewhere (after [`Tagged::into_inner`]) takes its memory along to the line that grew it. `clone` is charged to the
/// same tag.
///
/// ```
/// use alloc_tag::{Tagged, alloc_tag_record, current};
/// # assert!(alloc_tag::runtime::start_local());
/// let mut names = Tagged::new(alloc_tag_record!(), Vec::new());
/// names.with(|v| v.push("a".to_string())); // charged to the line above
/// names.lock().push("b".to_string());
/// assert_eq!(names.len(), 2);
/// assert_eq!(names.with(|_| current()), names.tag().index());
/// ```
pub struct Tagged<T> {
    tag: SavedTag,
    value: T,
}

impl<T> Tagged<T> {
    /// A value that is there already. What it holds so far stays charged as it is.
    pub fn new(tag: impl Into<SavedTag>, value: T) -> Self {
        Tagged {
            tag: tag.into(),
            value,
        }
    }

    /// A value that is charged to the caller's place, and is made under it.
    #[track_caller]
    pub fn here(make: impl FnOnce() -> T) -> Self {
        let tag = SavedTag::caller();
        Tagged {
            tag,
            value: tag.charge(make),
        }
    }

    /// The tag.
    pub fn tag(&self) -> SavedTag {
        self.tag
    }

    /// Changes the value under the tag.
    #[inline]
    pub fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        let _guard = self.tag.enter();
        f(&mut self.value)
    }

    /// As [`Tagged::with`] for types that allocate through a shared reference (locks, cells).
    #[inline]
    pub fn with_ref<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let _guard = self.tag.enter();
        f(&self.value)
    }

    /// Access for changes; the tag is current as long as the guard lives. Several guards must be dropped in reverse order,
    /// as scopes do.
    #[inline]
    pub fn lock(&mut self) -> TaggedMut<'_, T> {
        TaggedMut {
            _guard: self.tag.enter(),
            value: &mut self.value,
        }
    }

    /// The value, which is charged as any other from now on.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for Tagged<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Clone> Clone for Tagged<T> {
    fn clone(&self) -> Self {
        Tagged {
            tag: self.tag,
            value: self.with_ref(T::clone),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Tagged<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// Access to a [`Tagged`] value under its tag. Not `Send`: the tag is the thread's.
#[derive(Debug)]
#[must_use = "the tag is current only as long as the guard lives"]
pub struct TaggedMut<'a, T> {
    _guard: Guard,
    value: &'a mut T,
}

impl<T> Deref for TaggedMut<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for TaggedMut<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

/// A closure that runs under the tag that is current *now*, wherever it is called: `std`'s and rayon's threads, tokio's
/// `spawn_blocking`. If no tag is current now, none is while it runs, whatever its thread had been charged to.
///
/// ```
/// use alloc_tag::{alloc_hooks, current, inherit_tag};
/// # assert!(alloc_tag::runtime::start_local());
/// alloc_hooks!({
///     let mine = current();
///     let other = std::thread::spawn(inherit_tag(current)).join().unwrap();
///     assert_eq!(other, mine);
/// });
/// ```
pub fn inherit_tag<R>(f: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let index = slot::current();
    move || {
        let _guard = slot::enter_exactly(index);
        f()
    }
}
