//! A library that knows the hooks by another name.
#![deny(warnings, missing_docs, unsafe_code)]

use memledger_macros::alloc_hooks_fn;

/// At the crate's root: needs no path. The index stands for an allocation: it is what would be charged.
#[alloc_hooks_fn(crate = hooks)]
pub fn root() -> u32 {
    hooks::current()
}

/// Functions of the same name elsewhere do not clash.
pub mod inner {
    use super::*;

    /// In a module.
    #[alloc_hooks_fn(crate = hooks, path = crate::inner)]
    #[must_use]
    pub fn root<T: Default + PartialEq>(value: T) -> (u32, bool) {
        (hooks::current(), value == T::default())
    }

    /// An async function.
    #[alloc_hooks_fn(crate = hooks, path = crate::inner)]
    pub async fn later() -> u32 {
        hooks::current()
    }

    /// By hand.
    pub fn plain_noprof() -> u32 {
        hooks::current()
    }
    hooks::alloc_hooks_macro! {
        /// By the declarative macro.
        pub macro plain as __pool_plain => crate::inner::plain_noprof;
    }
}

/// A type with hooked methods.
pub struct Store<T>(pub Vec<T>);

impl<T: Clone> Store<T> {
    /// Without a receiver.
    #[alloc_hooks_fn(crate = hooks, method)]
    pub const fn new() -> Self {
        Store(Vec::new())
    }

    /// With one, and with what inference does not find.
    #[alloc_hooks_fn(crate = hooks)]
    pub fn count<const N: usize, U>(&mut self, _: &str) -> (u32, usize) {
        (hooks::current(), N + size_of::<U>() + self.0.len())
    }
}

/// Used inside the crate, and from another module than its own.
pub fn inside() -> [u32; 3] {
    [root!(), inner::root!(0_u8).0, inner::plain!()]
}

/// Without a runtime there is a table of this program.
pub fn start() -> bool {
    hooks::runtime::start_local()
}

/// Line and column of a tag.
pub fn place(index: u32) -> (&'static str, u32) {
    let row = hooks::tag_row(index).expect("a tag");
    (row.file(), row.line())
}
