//! `#[alloc_hooks_fn]`: makes of a function the pair that the kernel has for each of its allocation functions: `foo_noprof`,
//! which charges whatever is current, and `foo`, which charges the caller.
//!
//! A free function gets a macro `foo!` (by `alloc_hooks_macro!` of `memledger`, which does the same without this crate). A
//! method cannot have a macro, so it gets a `#[track_caller]` method of the same name; see [`alloc_hooks_fn`].
#![forbid(unsafe_code)]

mod args;
mod expand;

use proc_macro::TokenStream;

/// Makes of `fn foo` a function `foo_noprof` and a `foo` that charges what it allocates to its caller.
///
/// ```
/// #[global_allocator]
/// static A: memledger::Ledger = memledger::Ledger::new();
///
/// mod pool {
///     /// `n` copies.
///     #[memledger_macros::alloc_hooks_fn(path = crate::pool)]
///     pub(crate) fn take<T: Clone>(item: T, n: usize) -> Vec<T> {
///         vec![item; n]
///     }
/// }
///
/// struct Cache(Vec<u8>);
/// impl Cache {
///     #[memledger_macros::alloc_hooks_fn(method)]
///     fn new(n: usize) -> Cache {
///         Cache(Vec::with_capacity(n))
///     }
///     #[memledger_macros::alloc_hooks_fn]
///     fn grow(&mut self, more: usize) {
///         self.0.reserve_exact(more);
///     }
/// }
///
/// fn main() {
///     let bytes = pool::take!(0_u8, 100_000); // charged to this line
///     let mut cache = Cache::new(50_000); // and to this one
///     let rows = memledger::allocinfo().unwrap().rows;
///     for (line, size) in [(line!() - 3, 102_400), (line!() - 2, 53_248)] {
///         assert_eq!(rows.iter().find(|r| r.line == line && r.file == file!()).unwrap().bytes, size);
///     }
///     cache.grow_noprof(1); // as any call: to the current tag, or to the call stack
///     cache.grow(60_000);
///     # drop((bytes, cache));
/// }
/// ```
///
/// # Forms
/// * A free function: the macro `foo!`, with the visibility of the function. It evaluates `foo_noprof(..)` with a static tag of
///   the caller's place. `async` functions: a future that is charged in each poll.
/// * A method with a receiver: a `#[track_caller]` method `foo`, which charges the caller by `charge_caller`.
/// * `#[alloc_hooks_fn(method)]`: the same for an associated function without receiver.
/// * `#[alloc_hooks_fn(caller)]`: the same for a free function: no macro, no path to know.
///
/// # Arguments
/// * `path = crate::pool`: the module of the function, which a macro cannot find out. Without it a `pub` function must be
///   at the crate's root, and the macro of any other only works where `foo_noprof` is in scope.
/// * `crate = PATH`: where `alloc_hooks!` is; `::memledger` by default. `crate = ::alloc_tag` for libraries without the allocator.
///
/// Documentation and other attributes stay with `foo_noprof`; `doc`, `cfg`, `must_use` and `deprecated` go to `foo` as well.
///
/// # Limits
/// * Functions of traits and their implementations: no (write the pair by hand).
/// * `async` methods, and `async` with `caller`: no (use `alloc_tagged` where the future is made).
/// * A macro takes no turbofish; `alloc_hooks!(foo_noprof::<T>(..))` does. The `caller` forms take it.
/// * The `const` of a function stays with `foo_noprof`: hooks are for run time.
/// * C-variadic functions: no `caller` form.
#[proc_macro_attribute]
pub fn alloc_hooks_fn(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::alloc_hooks_fn(args.into(), item.into())
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}
