//! A tag as the table keeps it. A reader outside the process knows the layout, so it is fixed: 64 bytes, `repr(C)`.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, Ordering};

/// [`Row::flags`]: the module is loaded.
pub const ROW_LOADED: u32 = 1;

/// A tag as the table keeps it: the strings are copies in stable memory.
#[repr(C)]
#[derive(Debug)]
pub struct Row {
    file: *const u8,
    func: *const u8,
    module: *const u8,
    path: *const u8,
    file_len: u32,
    func_len: u32,
    module_len: u32,
    path_len: u32,
    line: u32,
    column: u32,
    flags: AtomicU32,
    pad: u32,
}

const _: () = assert!(size_of::<Row>() == 64);

// SAFETY: the pointers are to memory that is never changed or freed once the row is published.
unsafe impl Send for Row {}
// SAFETY: as above; `flags` is atomic.
unsafe impl Sync for Row {}

/// The strings of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowText<'a> {
    /// Source file.
    pub file: &'a str,
    /// Path of the function.
    pub func: &'a str,
    /// Path of the source module.
    pub path: &'a str,
    /// Name of the object file, as registered.
    pub module: &'a [u8],
}

impl Row {
    /// A loaded row for a place.
    pub(crate) fn new(text: RowText<'static>, line: u32, column: u32) -> Self {
        // Lengths were cut to fit `u32` when the strings were copied.
        Row {
            file: text.file.as_ptr(),
            func: text.func.as_ptr(),
            module: text.module.as_ptr(),
            path: text.path.as_ptr(),
            file_len: text.file.len() as u32,
            func_len: text.func.len() as u32,
            module_len: text.module.len() as u32,
            path_len: text.path.len() as u32,
            line,
            column,
            flags: AtomicU32::new(ROW_LOADED),
            pad: 0,
        }
    }

    /// All strings.
    pub fn text(&self) -> RowText<'static> {
        RowText {
            file: self.file(),
            func: self.func(),
            path: self.module_path(),
            module: self.module(),
        }
    }

    /// Source file.
    pub fn file(&self) -> &'static str {
        // SAFETY: `new` stored pointer and length of a `&'static str`.
        unsafe { text(self.file, self.file_len) }
    }

    /// Path of the function.
    pub fn func(&self) -> &'static str {
        // SAFETY: as in `file`.
        unsafe { text(self.func, self.func_len) }
    }

    /// Path of the source module.
    pub fn module_path(&self) -> &'static str {
        // SAFETY: as in `file`.
        unsafe { text(self.path, self.path_len) }
    }

    /// Name of the object file, as registered; may not be UTF-8.
    pub fn module(&self) -> &'static [u8] {
        // SAFETY: `new` stored pointer and length of a `&'static [u8]`.
        unsafe { core::slice::from_raw_parts(self.module, self.module_len as usize) }
    }

    /// Line, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> u32 {
        self.column
    }

    /// [`ROW_LOADED`] and bits of the client.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets bits.
    pub fn set_flags(&self, bits: u32) {
        self.flags.fetch_or(bits, Ordering::Relaxed);
    }

    /// Clears bits.
    pub(crate) fn clear_flags(&self, bits: u32) {
        self.flags.fetch_and(!bits, Ordering::Relaxed);
    }
}

/// # Safety
/// `start` and `len` must be those of a `&'static str`.
unsafe fn text(start: *const u8, len: u32) -> &'static str {
    // SAFETY: by the contract.
    unsafe { core::str::from_utf8_unchecked(core::slice::from_raw_parts(start, len as usize)) }
}
