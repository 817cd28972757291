//! The `_noprof` convention: a function that allocates comes in two forms. `foo_noprof` is the function, and charges what
//! it allocates to whatever is current; the macro `foo!` calls it with a tag of its place. So a caller is charged for what it
//! asked for; a function that itself calls `bar!` keeps that part on its own line; one that calls `bar_noprof` passes it on.

/// Defines the macro of a function `foo_noprof`.
///
/// ```
/// mod pool {
///     pub(crate) fn take_noprof<T: Clone>(item: T, n: usize) -> (Vec<T>, u32) {
///         (vec![item; n], alloc_tag::current())
///     }
///     alloc_tag::alloc_hooks_macro! {
///         /// `n` copies, charged to the caller.
///         pub(crate) macro take => crate::pool::take_noprof;
///     }
/// }
///
/// fn main() {
/// #   assert!(alloc_tag::runtime::start_local());
///     let (_, index) = pool::take!(0_u8, 10);
///     assert_eq!(alloc_tag::tag_row(index).unwrap().line(), line!() - 1);
///     assert_eq!(pool::take_noprof("x", 10).1, 0);
/// }
/// ```
///
/// Forms:
/// * `VIS macro NAME => PATH;` with any visibility but `pub`. The path is looked up where the macro is called: write it from
///   `crate` on, unless it is only called where the function is in scope.
/// * `pub macro NAME as EXPORT => crate::PATH;` for other crates. The macro is `NAME` beside the function; `EXPORT` is the
///   name, unique in the crate, under which `#[macro_export]` puts it to the crate's root (hidden in the documentation).
/// * `=> async PATH;` in both: what the macro gives is a [`TaggedFuture`](crate::TaggedFuture), charged in each poll.
///
/// A macro takes no turbofish: `alloc_hooks!(foo_noprof::<T>(..))` does.
#[macro_export]
macro_rules! alloc_hooks_macro {
    ($(#[$meta:meta])* pub macro $name:ident as $export:ident => async $krate:tt $(:: $part:ident)+ $(;)?) => {
        $crate::__alloc_hooks_macro!(($) export [$(#[$meta])*] $name $export alloc_hooks_future [$krate $(:: $part)+]);
    };
    ($(#[$meta:meta])* pub macro $name:ident as $export:ident => $krate:tt $(:: $part:ident)+ $(;)?) => {
        $crate::__alloc_hooks_macro!(($) export [$(#[$meta])*] $name $export alloc_hooks [$krate $(:: $part)+]);
    };
    ($(#[$meta:meta])* pub macro $name:ident => $($rest:tt)*) => {
        ::core::compile_error!("a public macro needs a name to be exported by: `pub macro NAME as EXPORT => crate::PATH;`");
    };
    ($(#[$meta:meta])* $vis:vis macro $name:ident => async $path:path $(;)?) => {
        $crate::__alloc_hooks_macro!(($) local [$(#[$meta])*] ($vis) $name alloc_hooks_future $path);
    };
    ($(#[$meta:meta])* $vis:vis macro $name:ident => $path:path $(;)?) => {
        $crate::__alloc_hooks_macro!(($) local [$(#[$meta])*] ($vis) $name alloc_hooks $path);
    };
}

/// The second step of [`alloc_hooks_macro!`]; `$d` is a `$`.
#[doc(hidden)]
#[macro_export]
macro_rules! __alloc_hooks_macro {
    (($d:tt) export [$(#[$meta:meta])*] $name:ident $export:ident $hook:ident [$krate:tt $(:: $part:ident)+]) => {
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $export {
            ($d($d arg:tt)*) => {
                $crate::$hook!($d $krate $(:: $part)+ ($d($d arg)*))
            };
        }
        $(#[$meta])*
        #[doc(inline)]
        #[allow(unused_imports)]
        pub use $export as $name;
    };
    (($d:tt) local [$(#[$meta:meta])*] ($vis:vis) $name:ident $hook:ident $path:path) => {
        $(#[$meta])*
        #[allow(unused_macros)]
        macro_rules! $name {
            ($d($d arg:tt)*) => {
                $crate::$hook!($path($d($d arg)*))
            };
        }
        #[allow(unused_imports)]
        $vis use $name;
    };
}

/// A future with a tag of this place: the expression is evaluated under it, and the future polled under it.
///
/// `tokio::spawn(alloc_hooks_future!(serve(connection)))` charges the task to this line.
#[macro_export]
macro_rules! alloc_hooks_future {
    ($expr:expr $(,)?) => {{
        let __tag = $crate::alloc_tag_record!();
        $crate::AllocTagged::alloc_tagged(__tag.charge(|| $expr), __tag)
    }};
}
