//! Turns return addresses into functions and lines.

use crate::{Ledger, Snapshot};
use std::path::PathBuf;
use std::rc::Rc;

/// Where to look for symbols.
#[derive(Debug, Clone, Default)]
pub struct SymbolOptions {
    /// Directories of separate debug files, before `/usr/lib/debug` (the same layout).
    pub debug_dirs: Vec<PathBuf>,
    /// Symbol tables only, no DWARF: fast, no lines.
    pub no_dwarf: bool,
}

/// One frame of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Demangled function; `None` if nothing is known.
    pub func: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line, from 1; 0 = unknown.
    pub line: u32,
    /// File name of the shared object; `None` for the executable.
    pub module: Option<String>,
    /// Path of the object file; empty if the address is in none.
    pub object: String,
    /// GNU build-id of the object, as hex; empty = none.
    pub build_id: String,
    /// Inlined into the next frame.
    pub inlined: bool,
    /// Return address minus one, in the object's own terms (as `addr2line -e` takes it).
    pub addr: u64,
    /// The object is still loaded.
    pub loaded: bool,
}

/// Resolves addresses; keeps a cache of object files and addresses, so keep it over several snapshots.
#[derive(Debug, Default)]
pub struct Symbolizer {
    options: SymbolOptions,
}

impl Symbolizer {
    /// An empty one.
    pub fn new(options: SymbolOptions) -> Self {
        Symbolizer { options }
    }

    /// Frames of a site's stack, innermost first, inlined frames expanded.
    pub fn stack(&mut self, _snapshot: &Snapshot, _ledger: &Ledger, _node: u32) -> Vec<Rc<Frame>> {
        let _ = &self.options;
        todo!()
    }
}
