//! A library whose tags end up in every object file that uses it.

pub mod fake;

use alloc_tag::{alloc_hooks, alloc_hooks_tag, alloc_tag, current};

/// A macro with a tag, for other crates.
#[macro_export]
macro_rules! tagged {
    ($expr:expr) => {
        alloc_tag::alloc_hooks!($expr)
    };
}

/// One tag for all instances.
pub fn generic<T>(_: T) -> u32 {
    alloc_hooks!(current())
}

/// One tag for all crates it is inlined into.
#[inline(always)]
pub fn inlined() -> u32 {
    alloc_hooks!(current())
}

pub struct Holder<T>(pub T);

impl<T> Holder<T> {
    /// A tag in a closure of a method of a generic type.
    pub fn method(&self) -> u32 {
        let closure = || alloc_hooks!(current());
        closure()
    }
}

/// A tag in code that nobody calls.
pub fn dead() -> u32 {
    alloc_hooks!(current())
}

/// A tag that is kept, not entered at once.
pub fn kept(f: &dyn Fn()) -> u32 {
    let tag = alloc_tag!();
    alloc_hooks_tag!(tag, {
        f();
        current()
    })
}
