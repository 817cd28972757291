//! Rows of the report: who holds how much.
//!
//! A site is charged to the first frame of its stack that is no allocator helper; if all are, to the outermost. Helpers are
//! known by name, those of a stripped object guessed ([`Wrapper`]). Nothing is left out: the sum of all rows is
//! [`Snapshot::total`].

use crate::guess::{self, Wrapper};
use crate::{Frame, Helpers, Ledger, Snapshot, Sum, Symbolizer};
use memledger_abi::{FIRST_TAG, INDEX_FOREIGN, RESERVED_NAMES, SITE_BASE};
use memledger_formats::allocinfo;
use std::collections::{HashMap, HashSet};
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
    /// Memory of memledger itself; `func` names the purpose. Only [`metadata`] gives such rows: they are in no sum.
    Metadata,
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
    /// Demangled function without parameters; `object+0xstart` if it has no name ([`Frame::name`]).
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
    /// Some of it was charged by guess: a function without a name was taken for an allocator helper.
    pub guessed: bool,
}

/// Rows, and what was guessed for them.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// As [`rows`] gives them.
    pub rows: Vec<Row>,
    /// Functions without a name that were taken for allocator helpers, in order of object and address; also those that no
    /// row was charged past. Empty if all memory is charged to functions with a name anyway.
    pub wrappers: Vec<Wrapper>,
}

/// Rows of a snapshot, largest first. Tags without live memory are there with zeros; sites are not.
pub fn rows(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    helpers: &Helpers,
    merge: MergeBy,
) -> Vec<Row> {
    report(snapshot, symbols, helpers, merge).rows
}

/// A row for each of `indexes`, in their order, with `calls` and `bytes` 0: whom they stand for. Of the first ledger.
pub fn sites(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    helpers: &Helpers,
    indexes: &[u32],
) -> Vec<Row> {
    let Some(ledger) = snapshot.ledgers.first() else {
        return Vec::new();
    };
    let mut roles = Roles::new(helpers, &[]);
    let mut row = |index: u32| {
        if let Some(node) = index.checked_sub(SITE_BASE) {
            let frames = symbols.stack(snapshot, ledger, node);
            let (charged, guessed) = roles.charged(&frames);
            let row = site_row(frames, charged, Sum::default());
            return Row { guessed, ..row };
        }
        let tag = index.checked_sub(FIRST_TAG).map(|i| i as usize);
        match tag.filter(|&i| i < ledger.tags.len()) {
            Some(i) => tag_row(ledger, i, Sum::default()),
            None => {
                let name = RESERVED_NAMES.get(index as usize).copied();
                reserved_row(Sum::default(), name.unwrap_or("foreign"))
            }
        }
    };
    indexes.iter().map(|&index| row(index)).collect()
}

/// Rows of what the runtimes need for themselves, by purpose, largest first. Their memory is in no row of [`rows`], and not in
/// [`Snapshot::total`].
pub fn metadata(snapshot: &Snapshot) -> Vec<Row> {
    let mut sums: Vec<(&str, Sum)> = Vec::new();
    for (name, sum) in snapshot.ledgers.iter().flat_map(|l| &l.metadata) {
        match sums.iter_mut().find(|(n, _)| n == name) {
            Some((_, all)) => all.add(*sum),
            None => sums.push((name, *sum)),
        }
    }
    sums.retain(|(_, sum)| sum.bytes > 0);
    sums.sort_by_key(|(name, sum)| (std::cmp::Reverse(sum.bytes), *name));
    let row = |(name, sum): (&str, Sum)| Row {
        kind: RowKind::Metadata,
        ..reserved_row(sum, name)
    };
    sums.into_iter().map(row).collect()
}

/// What a frame is to the choice of the one that is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Helper,
    Guessed,
    User,
}

/// As [`rows`], with the wrappers that were guessed.
pub fn report(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    helpers: &Helpers,
    merge: MergeBy,
) -> Report {
    let guess = helpers.guess() && needs_guess(snapshot, symbols, helpers);
    let wrappers = match guess {
        true => guess::wrappers(snapshot, symbols, helpers),
        false => Vec::new(),
    };
    let mut roles = Roles::new(helpers, &wrappers);
    let mut out = Merger {
        merge,
        rows: Vec::new(),
        index: HashMap::new(),
    };
    for ledger in &snapshot.ledgers {
        for (sum, name) in ledger
            .reserved
            .iter()
            .zip(RESERVED_NAMES)
            .filter(|(s, _)| s.calls > 0)
        {
            out.add(reserved_row(*sum, name), sum.bytes);
        }
        for (i, sum) in ledger.tag_sums.iter().enumerate() {
            out.add(tag_row(ledger, i, *sum), 0);
        }
        for (node, sum) in &ledger.site_sums {
            let frames = symbols.stack(snapshot, ledger, *node);
            let (charged, guessed) = roles.charged(&frames);
            let row = Row {
                guessed,
                ..site_row(frames, charged, *sum)
            };
            out.add(row, sum.bytes);
        }
    }
    let mut rows = out.rows;
    let key = |r: &Row| {
        (
            std::cmp::Reverse((r.bytes, r.calls)),
            r.file.clone(),
            r.line,
            r.func.clone(),
        )
    };
    rows.sort_by_cached_key(|(r, _)| key(r));
    let rows = rows.into_iter().map(|(r, _)| r).collect();
    Report { rows, wrappers }
}

/// Calls `f` with (number of the ledger, index, row) for `indexes`, one list for each ledger; `bases` are the ledgers'
/// `site_base`. Rows have no figures; an index that no table knows is charged to the reserved row for such.
pub(crate) fn charge(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    helpers: &Helpers,
    bases: &[u32],
    indexes: &[Vec<u32>],
    mut f: impl FnMut(usize, u32, Row),
) {
    let guess = helpers.guess() && needs_guess(snapshot, symbols, helpers);
    let wrappers = match guess {
        true => guess::wrappers(snapshot, symbols, helpers),
        false => Vec::new(),
    };
    let mut roles = Roles::new(helpers, &wrappers);
    for (i, ledger) in snapshot.ledgers.iter().enumerate() {
        for &index in &indexes[i] {
            let tag = index.checked_sub(FIRST_TAG).map(|t| t as usize);
            let row = match index.checked_sub(bases[i]) {
                Some(node) => {
                    let frames = symbols.stack(snapshot, ledger, node);
                    let (charged, guessed) = roles.charged(&frames);
                    Row {
                        guessed,
                        ..site_row(frames, charged, Sum::default())
                    }
                }
                None if tag.is_some_and(|t| t < ledger.tags.len()) => {
                    tag_row(ledger, tag.unwrap_or(0), Sum::default())
                }
                None => {
                    let known = RESERVED_NAMES.get(index as usize).filter(|n| !n.is_empty());
                    let foreign = &RESERVED_NAMES[INDEX_FOREIGN as usize];
                    reserved_row(Sum::default(), known.unwrap_or(foreign))
                }
            };
            f(i, index, row);
        }
    }
}

/// Whether live memory would be charged to a function without a name. If not, all nodes need not be looked at.
fn needs_guess(snapshot: &Snapshot, symbols: &mut Symbolizer, helpers: &Helpers) -> bool {
    let mut roles = Roles::new(helpers, &[]);
    snapshot.ledgers.iter().any(|ledger| {
        ledger.site_sums.iter().any(|(node, _)| {
            let frames = symbols.stack(snapshot, ledger, *node);
            let frame = frames.get(roles.charged(&frames).0);
            frame.is_some_and(|f| f.func.is_none() && f.start.is_some())
        })
    })
}

/// Roles of frames. The symbolizer gives one frame a place and keeps it.
struct Roles<'a> {
    helpers: &'a Helpers,
    guessed: HashSet<(&'a str, &'a str, u64)>,
    known: HashMap<*const Frame, Role>,
}

impl<'a> Roles<'a> {
    fn new(helpers: &'a Helpers, wrappers: &'a [Wrapper]) -> Self {
        let key = |w: &'a Wrapper| (w.object.as_str(), w.build_id.as_str(), w.start);
        Roles {
            helpers,
            guessed: wrappers.iter().map(key).collect(),
            known: HashMap::new(),
        }
    }

    fn of(&mut self, frame: &Rc<Frame>) -> Role {
        let (helpers, guessed) = (self.helpers, &self.guessed);
        let find = || match (&frame.func, frame.start) {
            (Some(name), _) if helpers.is_helper(name) => Role::Helper,
            (None, Some(start)) if guessed.contains(&(&*frame.object, &*frame.build_id, start)) => {
                Role::Guessed
            }
            _ => Role::User,
        };
        *self.known.entry(Rc::as_ptr(frame)).or_insert_with(find)
    }

    /// Position of the frame that is charged, and whether a guess is behind that.
    fn charged(&mut self, frames: &[Rc<Frame>]) -> (usize, bool) {
        let mut guessed = false;
        for (i, frame) in frames.iter().enumerate() {
            match self.of(frame) {
                Role::User => return (i, guessed),
                role => guessed |= role == Role::Guessed,
            }
        }
        (frames.len().saturating_sub(1), guessed)
    }
}

fn blank_row(kind: RowKind, sum: Sum) -> Row {
    Row {
        bytes: sum.bytes,
        calls: sum.calls,
        file: String::new(),
        line: 0,
        module: None,
        func: String::new(),
        frames: Vec::new(),
        charged: 0,
        kind,
        accurate: true,
        loaded: true,
        build_id: None,
        guessed: false,
    }
}

fn reserved_row(sum: Sum, name: &str) -> Row {
    Row {
        file: "memledger".into(),
        func: name.into(),
        ..blank_row(RowKind::Reserved, sum)
    }
}

fn tag_row(ledger: &Ledger, i: usize, sum: Sum) -> Row {
    let tag = &ledger.tags[i];
    Row {
        file: tag.file.clone(),
        line: tag.line,
        module: Some(tag.module.clone()).filter(|m| !m.is_empty()),
        func: tag.func.clone(),
        accurate: tag.accurate,
        loaded: tag.loaded,
        ..blank_row(RowKind::Tag, sum)
    }
}

fn site_row(frames: Vec<Rc<Frame>>, charged: usize, sum: Sum) -> Row {
    let row = blank_row(RowKind::Site, sum);
    // A node that cannot be read has no frames; it stays visible.
    let Some(f) = frames.get(charged).cloned() else {
        return Row {
            file: "?".into(),
            func: "?".into(),
            ..row
        };
    };
    let known = f.func.is_some() && f.file.is_some();
    Row {
        file: f.file.clone().unwrap_or_else(|| f.object_name().to_owned()),
        line: f.line,
        module: f.module.clone(),
        func: f.name(),
        frames,
        charged,
        loaded: f.loaded,
        build_id: Some(f.build_id.clone()).filter(|id| !known && !id.is_empty()),
        ..row
    }
}

/// What makes two rows one.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    kind: RowKind,
    file: String,
    line: u32,
    module: Option<String>,
    func: String,
    frames: Vec<*const Frame>,
}

struct Merger {
    merge: MergeBy,
    /// Each with the bytes of its largest stack.
    rows: Vec<(Row, u64)>,
    index: HashMap<Key, usize>,
}

impl Merger {
    fn add(&mut self, row: Row, stack_bytes: u64) {
        let frames = match self.merge {
            MergeBy::Line => Vec::new(),
            // The symbolizer gives one frame a place.
            MergeBy::Stack => row.frames.iter().map(Rc::as_ptr).collect(),
        };
        let (file, func, module) = (row.file.clone(), row.func.clone(), row.module.clone());
        let key = Key {
            kind: row.kind,
            file,
            line: row.line,
            module,
            func,
            frames,
        };
        let i = *self.index.entry(key).or_insert(self.rows.len());
        let Some((old, largest)) = self.rows.get_mut(i) else {
            self.rows.push((row, stack_bytes));
            return;
        };
        old.bytes = old.bytes.saturating_add(row.bytes);
        old.calls = old.calls.saturating_add(row.calls);
        old.accurate &= row.accurate;
        old.loaded |= row.loaded;
        old.guessed |= row.guessed;
        if stack_bytes > *largest {
            *largest = stack_bytes;
            (old.frames, old.charged, old.build_id) = (row.frames, row.charged, row.build_id);
        }
    }
}

/// A row in the terms of the kernel's text. Its writer escapes what would be misread. A row of an unloaded module is marked
/// with `unloaded:yes`, one of memledger's own memory with `metadata:yes`.
pub fn to_allocinfo(row: &Row) -> allocinfo::Row {
    allocinfo::Row {
        bytes: i64::try_from(row.bytes).unwrap_or(i64::MAX),
        calls: row.calls,
        file: row.file.clone(),
        line: row.line,
        module: row.module.clone(),
        func: row.func.clone(),
        accurate: row.accurate,
        extra: [
            ("unloaded", !row.loaded),
            ("metadata", row.kind == RowKind::Metadata),
        ]
        .into_iter()
        .filter(|(_, set)| *set)
        .map(|(key, _)| (key.to_owned(), "yes".to_owned()))
        .collect(),
    }
}
