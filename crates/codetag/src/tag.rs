//! The record of one place in the source, the macros that make it, and arrays of such records.
//!
//! The linker concatenates what the object files put in the section. That is an array of [`CodeTag`] only while every
//! contribution is a whole number of records and no contribution asks for another alignment than the stride allows:
//! hence `repr(C, align(8))` and 56 bytes. The function's name cannot be had in a constant on stable Rust, so the tag holds
//! a function that computes it: an inner `fn __f`, whose own type name is that of the surrounding function plus `::__f`.
//!
//! C and C++ put records of the same layout in the same section (`memledger.h`); theirs have [`FOREIGN`] set, a C string in
//! place of the function, and text that need not be UTF-8.

use core::any::type_name_of_val;
use core::ffi::{CStr, c_char};
use core::fmt;
use core::mem::{offset_of, size_of};
use core::slice;
use core::str;
use core::sync::atomic::{AtomicU32, Ordering};

/// [`CodeTag::flags`]: the tag only keeps the section in existence; it gets no number and no row.
pub const ANCHOR: u32 = 1;
/// [`CodeTag::flags`]: the tag was not made by Rust: its function is the address of a NUL-terminated string, or null.
pub const FOREIGN: u32 = 2;

/// Text as C has it, too.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Text {
    start: *const u8,
    bytes: usize,
}

impl Text {
    const fn new(text: &'static str) -> Self {
        Text {
            start: text.as_ptr(),
            bytes: text.len(),
        }
    }

    /// The text up to the first byte that is not UTF-8.
    const fn get(&self) -> &'static str {
        if self.start.is_null() {
            return "";
        }
        // SAFETY: made from a `&'static str`, or a literal in the object file that the tag is in.
        utf8(unsafe { slice::from_raw_parts(self.start, self.bytes) })
    }
}

const fn utf8(bytes: &'static [u8]) -> &'static str {
    match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => match str::from_utf8(bytes.split_at(error.valid_up_to()).0) {
            Ok(text) => text,
            Err(_) => "",
        },
    }
}

/// Names the function around a tag.
#[repr(C)]
union Func {
    rust: fn() -> &'static str,
    foreign: *const c_char,
}

/// One place in the source. 56 bytes, made by [`code_tag!`](crate::code_tag), or as `struct memledger_tag` by `memledger.h`.
#[repr(C, align(8))]
pub struct CodeTag {
    file: Text,
    module_path: Text,
    func: Func,
    line: u32,
    column: u32,
    index: AtomicU32,
    flags: AtomicU32,
}

const _: () = {
    assert!(size_of::<CodeTag>() == 56);
    assert!(offset_of!(CodeTag, module_path) == 16 && offset_of!(CodeTag, func) == 32);
    assert!(offset_of!(CodeTag, line) == 40 && offset_of!(CodeTag, index) == 48);
};

// SAFETY: the pointers are to constant text; what changes is atomic.
unsafe impl Send for CodeTag {}
// SAFETY: as above.
unsafe impl Sync for CodeTag {}

impl fmt::Debug for CodeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeTag")
            .field("file", &self.file())
            .field("line", &self.line)
            .field("func", &self.func())
            .field("index", &self.index())
            .finish_non_exhaustive()
    }
}

impl CodeTag {
    /// A tag for the given place, not registered yet.
    pub const fn new(
        file: &'static str,
        module_path: &'static str,
        func: fn() -> &'static str,
        line: u32,
        column: u32,
    ) -> Self {
        CodeTag {
            file: Text::new(file),
            module_path: Text::new(module_path),
            func: Func { rust: func },
            line,
            column,
            index: AtomicU32::new(0),
            flags: AtomicU32::new(0),
        }
    }

    /// A tag with [`ANCHOR`] set.
    pub const fn anchor() -> Self {
        fn none() -> &'static str {
            ""
        }
        let tag = CodeTag::new("", "", none, 0, 0);
        CodeTag {
            flags: AtomicU32::new(ANCHOR),
            ..tag
        }
    }

    /// Source file, as `file!()` has it.
    pub const fn file(&self) -> &'static str {
        self.file.get()
    }

    /// Path of the source module, as `module_path!()` has it.
    pub const fn module_path(&self) -> &'static str {
        self.module_path.get()
    }

    /// Path of the function that contains the place; generic parameters read `_`.
    pub fn func(&self) -> &'static str {
        if self.flags() & FOREIGN == 0 {
            // SAFETY: set by `new`, which sets no `FOREIGN`.
            return unsafe { (self.func.rust)() };
        }
        // SAFETY: with `FOREIGN` it is null or the address of a literal in the object file that the tag is in.
        let name = unsafe {
            if self.func.foreign.is_null() {
                return "";
            }
            CStr::from_ptr(self.func.foreign)
        };
        without_lambda(utf8(name.to_bytes()))
    }

    /// Line, from 1.
    pub const fn line(&self) -> u32 {
        self.line
    }

    /// Column in characters, from 1.
    pub const fn column(&self) -> u32 {
        self.column
    }

    /// Number of the tag in the client's table; 0 = its module is not registered, or the table was full.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.index.load(Ordering::Acquire)
    }

    /// Gives the tag its number. The row of that number must be complete.
    pub(crate) fn set_index(&self, index: u32) {
        self.index.store(index, Ordering::Release);
    }

    /// [`ANCHOR`] and bits of the client.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets bits of the client.
    pub fn set_flags(&self, bits: u32) {
        self.flags.fetch_or(bits, Ordering::Relaxed);
    }

    /// Whether this is an [`ANCHOR`].
    pub fn is_anchor(&self) -> bool {
        self.flags() & ANCHOR != 0
    }
}

/// In C++ a tag stands in a lambda of its own: leaves the name of the function around it, as gcc and clang spell both.
fn without_lambda(name: &'static str) -> &'static str {
    match name
        .find("<lambda()>")
        .or_else(|| name.find("(anonymous class)::"))
    {
        Some(end) => {
            let outer = name[..end].strip_suffix("::").unwrap_or("");
            outer.strip_prefix("auto ").unwrap_or(outer)
        }
        None => name,
    }
}

/// Name of the function around `f`, an inner function named `__f`. Serves [`code_tag!`](crate::code_tag).
pub fn function_name<F>(f: &F) -> &'static str {
    let name = type_name_of_val(f);
    name.strip_suffix("::__f").unwrap_or(name)
}

/// Makes a static [`CodeTag`] for this place in the linker section named by the literal; its value is a
/// `&'static CodeTag`. The name must be a C identifier, or the linker defines no bounds for it.
///
/// A client wraps this in its own macro, so that the section's name stands in one place.
#[macro_export]
macro_rules! code_tag {
    ($section:literal) => {{
        fn __f() -> &'static str {
            $crate::function_name(&__f)
        }
        #[used]
        #[unsafe(link_section = $section)]
        static __TAG: $crate::CodeTag = $crate::CodeTag::new(
            ::core::file!(),
            ::core::module_path!(),
            __f,
            ::core::line!(),
            ::core::column!(),
        );
        &__TAG
    }};
}

/// Defines a function that returns the [`TagRange`] of the object file that it is linked into, for one section, and an
/// anchor that makes the section exist when there are no tags. To be used once a client, in its library.
///
/// The bounds are made hidden, so that each object file binds to its own.
#[macro_export]
macro_rules! tag_section {
    ($(#[$meta:meta])* $vis:vis fn $name:ident() in $section:literal, $start:literal, $stop:literal) => {
        $(#[$meta])*
        $vis fn $name() -> $crate::TagRange {
            #[used]
            #[unsafe(link_section = $section)]
            static __ANCHOR: $crate::CodeTag = $crate::CodeTag::anchor();
            // SAFETY: the linker defines both names for every section whose name is a C identifier.
            unsafe extern "C" {
                #[link_name = $start]
                static __START: [$crate::CodeTag; 0];
                #[link_name = $stop]
                static __STOP: [$crate::CodeTag; 0];
            }
            // A reference, because an unreferenced static of a library may be left out with its object file.
            let _ = ::core::hint::black_box(&__ANCHOR);
            // SAFETY: only the addresses are taken; between them the linker placed nothing but `CodeTag`s.
            unsafe { $crate::TagRange::new((&raw const __START).cast(), (&raw const __STOP).cast()) }
        }
        #[cfg(target_os = "linux")]
        ::core::arch::global_asm!(
            concat!(".hidden ", $start),
            concat!(".hidden ", $stop),
        );
    };
}

/// An array of tags, as the linker made it.
#[derive(Debug, Clone, Copy)]
pub struct TagRange {
    start: *const CodeTag,
    stop: *const CodeTag,
}

// SAFETY: it stands for a slice of `CodeTag`, which is `Sync`.
unsafe impl Send for TagRange {}
// SAFETY: as above.
unsafe impl Sync for TagRange {}

impl TagRange {
    /// The tags from `start` up to, but without, `stop`.
    ///
    /// # Safety
    /// Both must be the bounds of one array of valid `CodeTag`s that stays mapped as long as the range, or a copy of it,
    /// is used.
    pub const unsafe fn new(start: *const CodeTag, stop: *const CodeTag) -> Self {
        TagRange { start, stop }
    }

    /// The range of a slice.
    pub const fn from_slice(tags: &'static [CodeTag]) -> Self {
        let bounds = tags.as_ptr_range();
        TagRange {
            start: bounds.start,
            stop: bounds.end,
        }
    }

    /// Address of the first tag.
    pub fn start(&self) -> *const CodeTag {
        self.start
    }

    /// Address behind the last tag.
    pub fn stop(&self) -> *const CodeTag {
        self.stop
    }

    /// The records, anchors included.
    pub fn as_slice(&self) -> &[CodeTag] {
        let bytes = (self.stop as usize).saturating_sub(self.start as usize);
        if self.start.is_null() || bytes == 0 {
            return &[];
        }
        // SAFETY: by the contract of `new` there are `bytes / 56` valid records from `start` on, mapped while `self` is used.
        unsafe { core::slice::from_raw_parts(self.start, bytes / size_of::<CodeTag>()) }
    }

    /// The tags without the anchors.
    pub fn tags(&self) -> impl Iterator<Item = &CodeTag> + Clone {
        self.as_slice().iter().filter(|tag| !tag.is_anchor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign(file: &'static [u8], func: *const c_char) -> CodeTag {
        let file = Text {
            start: file.as_ptr(),
            bytes: file.len(),
        };
        CodeTag {
            file,
            func: Func { foreign: func },
            flags: AtomicU32::new(FOREIGN),
            ..CodeTag::anchor()
        }
    }

    #[test]
    fn tags_of_c_have_names_without_lambdas_and_text_is_cut_where_it_is_not_utf8() {
        let names = [
            (c"main", "main"),
            (c"f()::<lambda()>", "f()"),
            (c"t(T)::<lambda()> [with T = int]", "t(T)"),
            (c"<lambda()>", ""),
            (
                c"auto A::m(int)::(anonymous class)::operator()() const",
                "A::m(int)",
            ),
            (c"auto (anonymous class)::operator()() const", ""),
            (c"a\xffb", "a"),
        ];
        for (name, shown) in names {
            assert_eq!(foreign(b"a.c", name.as_ptr()).func(), shown);
        }
        let tag = foreign(b"x\xc3\xa4\xc3", core::ptr::null());
        assert_eq!((tag.file(), tag.func()), ("x\u{e4}", ""));
    }
}
