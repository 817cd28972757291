//! Rows of the report.

use crate::{Frame, Helpers, Snapshot, Symbolizer};
use std::rc::Rc;

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RowKind {
    /// A static tag in the source.
    Tag,
    /// A site: a call stack.
    Site,
    /// Memory that could be charged to neither; `func` names the reason.
    Reserved,
}

/// How sites are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MergeBy {
    /// One row for each (module, file, line, function) that is charged.
    #[default]
    Line,
    /// One row for each stack.
    Stack,
}

/// One row of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Live bytes, in slot sizes.
    pub bytes: u64,
    /// Live allocations.
    pub calls: u64,
    /// Source file; the object's file name if the line is not known; `memledger` for reserved rows.
    pub file: String,
    /// Line, from 1; 0 = unknown.
    pub line: u32,
    /// File name of the shared object; `None` for the executable.
    pub module: Option<String>,
    /// Demangled function without parameters; `object+0xoffset` if unknown.
    pub func: String,
    /// The stack, innermost first, helpers included; that of the largest stack when merged. Empty for tags.
    pub frames: Vec<Rc<Frame>>,
    /// Position in `frames` of the frame that is charged.
    pub charged: usize,
    /// What it stands for.
    pub kind: RowKind,
    /// False: the row may lack some memory.
    pub accurate: bool,
    /// False: its module was unloaded.
    pub loaded: bool,
    /// Build-id of the charged frame's object, as hex, if the function or line is not known.
    pub build_id: Option<String>,
}

/// Rows of a snapshot, largest first. Tags without live memory are there with zeros; sites are not.
pub fn rows(
    _snapshot: &Snapshot,
    _symbols: &mut Symbolizer,
    _helpers: &Helpers,
    _merge: MergeBy,
) -> Vec<Row> {
    todo!()
}

/// A row's line in the kernel's text: words are freed of blanks, so that the text stays parseable.
pub fn to_allocinfo(_row: &Row) -> String {
    todo!()
}
