//! One object file: its symbol table and its DWARF.
//!
//! The symbol table is kept here with sizes, not taken from addr2line: in a stripped library only exported functions have
//! symbols, and an address between two of them must not be given the name of the one before. Of a function without a symbol
//! the unwind tables tell at least the bounds.

use crate::demangle::demangle;
use crate::eh_frame::{self, Bounds};
use crate::files::{self, Info, ObjectKey, Place};
use addr2line::Loader;
use object::{Object, ObjectSymbol, ReadCache, SymbolKind};
use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::path::Path;

/// A function's place in the file.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: u64,
    /// 0 = unknown.
    size: u64,
    /// Better names win at one address: global over local.
    rank: u8,
    name: (u32, u32),
}

/// What an address is, without the object's own data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) func: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: u32,
    pub(crate) inlined: bool,
}

/// The function that an address is in, inlined ones not expanded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Function {
    /// Demangled name.
    pub(crate) name: Option<String>,
    /// Start and end of one without a name.
    pub(crate) bounds: Option<Bounds>,
}

/// Symbols of one object file.
#[derive(Default)]
pub(crate) struct ObjectFile {
    symbols: Vec<Symbol>,
    names: String,
    loader: Option<Loader>,
    /// The file itself, until its unwind tables are read: it may be out of reach later.
    unread: Cell<Option<File>>,
    functions: OnceCell<Vec<Bounds>>,
    /// Build-id of the file, or of the key if there is no file.
    pub(crate) build_id: Vec<u8>,
}

impl std::fmt::Debug for ObjectFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            symbols, loader, ..
        } = self;
        f.debug_struct("ObjectFile")
            .field("symbols", &symbols.len())
            .field("dwarf", &loader.is_some())
            .finish()
    }
}

impl ObjectFile {
    /// Finds the file and its debug information. What cannot be had is left out.
    pub(crate) fn load(
        key: &ObjectKey,
        place: &Place,
        dirs: &[std::path::PathBuf],
        dwarf: bool,
    ) -> Self {
        let mut object = ObjectFile {
            build_id: key.build_id.clone(),
            ..ObjectFile::default()
        };
        let main = files::locate(key, place);
        if let Some((path, info)) = &main {
            object.build_id = info.build_id.clone();
            object.unread.set(files::open_regular(path).ok());
        }
        let complete = main
            .as_ref()
            .is_some_and(|(_, i)| i.has_dwarf || (!dwarf && i.has_symtab));
        let debug = if complete {
            None
        } else {
            files::debug_file(key, main.as_ref().map(|(_, i)| i), place, dirs)
        };
        for (path, info) in [&debug, &main].into_iter().flatten() {
            object.add_symbols(path);
            if dwarf && info.has_dwarf && object.loader.is_none() {
                object.loader = load_dwarf(path, info, place, dirs);
            }
        }
        object.symbols.sort_by_key(|s| (s.start, s.rank));
        object.symbols.dedup_by(|later, kept| {
            later.start == kept.start && later.rank >= kept.rank && kept.size > 0
        });
        object
    }

    fn add_symbols(&mut self, path: &Path) {
        let Ok(file) = files::open_regular(path) else {
            return;
        };
        let cache = ReadCache::new(file);
        let Ok(object) = object::File::parse(&cache) else {
            return;
        };
        for s in object.symbols().chain(object.dynamic_symbols()) {
            if s.kind() != SymbolKind::Text || s.is_undefined() {
                continue;
            }
            let Ok(name) = s.name() else { continue };
            if name.is_empty() || self.names.len() + name.len() > u32::MAX as usize {
                continue;
            }
            let at = (self.names.len() as u32, name.len() as u32);
            self.names.push_str(name);
            let rank = u8::from(!s.is_global());
            self.symbols.push(Symbol {
                start: s.address(),
                size: s.size(),
                rank,
                name: at,
            });
        }
    }

    /// The linker name of the function that holds `addr`.
    fn symbol(&self, addr: u64) -> Option<&str> {
        let (at, len) = self.find(addr)?.name;
        self.names.get(at as usize..at as usize + len as usize)
    }

    /// Start and size of the function that holds `addr`, by its symbol, else by the unwind tables.
    pub(crate) fn extent(&self, addr: u64) -> Option<(u64, u64)> {
        let symbol = self.find(addr).filter(|s| s.size > 0);
        let symbol = symbol.map(|s| (s.start, s.size));
        symbol.or_else(|| self.bounds(addr).map(|b| (b.0, b.1 - b.0)))
    }

    fn find(&self, addr: u64) -> Option<&Symbol> {
        let end = self.symbols.partition_point(|s| s.start <= addr);
        // Functions do not nest, but aliases of other sizes may share a start.
        let covers =
            |s: &&Symbol| addr - s.start < s.size || (s.size == 0 && addr - s.start < 4096);
        let near = &self.symbols[end.saturating_sub(8)..end];
        let s = near.iter().rev().find(covers)?;
        // One without a size (`_init`) ends where another function begins.
        if s.size == 0 && self.bounds(addr).is_some_and(|b| b.0 > s.start) {
            return None;
        }
        // Of several at one address the first is the best.
        near.iter()
            .filter(|o| o.start == s.start)
            .find(covers)
            .or(Some(s))
    }

    /// Start and end of the function that holds `addr`, as the unwind tables have it.
    pub(crate) fn bounds(&self, addr: u64) -> Option<Bounds> {
        let read = || self.unread.take().map(eh_frame::functions);
        let functions = self.functions.get_or_init(|| read().unwrap_or_default());
        eh_frame::find(functions, addr)
    }

    /// The function at `addr`: quicker than its frames where there is a symbol.
    pub(crate) fn function(&self, addr: u64) -> Function {
        let name = self.symbol(addr).map(demangle);
        let name = name.or_else(|| self.dwarf_frames(addr).pop().and_then(|f| f.func));
        let bounds = match name {
            Some(_) => None,
            None => self.bounds(addr),
        };
        Function { name, bounds }
    }

    /// Frames at `addr`, innermost first; at least one.
    pub(crate) fn frames(&self, addr: u64) -> Vec<RawFrame> {
        let mut out = self.dwarf_frames(addr);
        if out.is_empty() {
            out.push(RawFrame::default());
        }
        let last = out.len() - 1;
        if out[last].func.is_none() {
            out[last].func = self.symbol(addr).map(demangle);
        }
        out[..last].iter_mut().for_each(|f| f.inlined = true);
        out
    }

    fn dwarf_frames(&self, addr: u64) -> Vec<RawFrame> {
        let mut out = Vec::new();
        let Some(loader) = &self.loader else {
            return out;
        };
        if let Ok(mut frames) = loader.find_frames(addr) {
            while let Ok(Some(f)) = frames.next() {
                let name = f.function.as_ref().and_then(|n| n.raw_name().ok());
                let place = f.location.as_ref();
                out.push(RawFrame {
                    func: name.filter(|n| !n.is_empty()).map(|n| demangle(&n)),
                    file: place.and_then(|l| l.file).map(str::to_owned),
                    line: place.and_then(|l| l.line).unwrap_or(0),
                    inlined: false,
                });
            }
        }
        out
    }
}

fn load_dwarf(
    path: &Path,
    info: &Info,
    place: &Place,
    dirs: &[std::path::PathBuf],
) -> Option<Loader> {
    let sup = files::supplementary(path, info, place, dirs);
    if info.alt.is_some() && sup.is_none() {
        // Without it names would be wrong, not only missing; lines are still right.
        return Loader::new(path).ok();
    }
    Loader::new_with_sup(path, sup).ok()
}
