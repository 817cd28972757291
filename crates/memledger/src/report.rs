//! The report from inside.
//!
//! First the cells are scanned into memory that is mapped for it, so that the sums do not hold the report's own memory; then the
//! tables are read and the lines looked up, which allocates as it likes.

use memledger_abi::{FIRST_TAG, INDEX_FOREIGN, SITE_BASE};
use memledger_inspect::{
    Helpers, MergeBy, Row, Snapshot, Sum, SymbolOptions, Symbolizer, metadata, rows, sites,
    to_allocinfo,
};
use std::fmt;

/// Live memory by tag and site, as of one moment.
#[derive(Debug, Clone)]
pub struct Allocinfo {
    /// The rows, largest first. Tags without live memory are there with zeros.
    pub rows: Vec<Row>,
    /// Live bytes, in slot sizes: the sum of the rows.
    pub bytes: u64,
    /// Live allocations: the sum of the rows.
    pub calls: u64,
    /// What memledger itself takes, by purpose (`func`), largest first: cells, unit table, heaps, call stacks, tags, tracer, page
    /// owner. As mapped, not all of it resident. In no sum.
    pub metadata: Vec<Row>,
}

/// The kernel's text: `allocinfo - version: 2.0` and a row a line. With `{:#}` the rows of [`Allocinfo::metadata`] follow, marked
/// `metadata:yes`.
impl fmt::Display for Allocinfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        let mut out = memledger_formats::allocinfo::Writer::new(
            &mut text,
            memledger_formats::allocinfo::Version::V2_0,
        );
        out.header().map_err(|_| fmt::Error)?;
        let own = self.metadata.iter().filter(|_| f.alternate());
        for row in self.rows.iter().chain(own) {
            out.row(&to_allocinfo(row)).map_err(|_| fmt::Error)?;
        }
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// The report, one row a line, allocator helpers skipped.
///
/// # Errors
/// When there is no ledger (`MEMLEDGER=never`), or the process may not read itself.
pub fn allocinfo() -> Result<Allocinfo, memledger_inspect::Error> {
    // The list of helpers is memory of the report, too: it is made after the scan.
    let exact = mm::linux::sums();
    explain(exact, &Helpers::default(), MergeBy::Line)
}

/// The report with a helper list and a grouping of one's own.
///
/// # Errors
/// As [`allocinfo`].
pub fn allocinfo_with(
    helpers: &Helpers,
    merge: MergeBy,
) -> Result<Allocinfo, memledger_inspect::Error> {
    explain(mm::linux::sums(), helpers, merge)
}

/// The rows of a scan; without one, those of the snapshot.
fn explain(
    exact: Option<mm::linux::Sums>,
    helpers: &Helpers,
    merge: MergeBy,
) -> Result<Allocinfo, memledger_inspect::Error> {
    let mut snapshot = Snapshot::read_self()?;
    if let Some(exact) = &exact {
        let own = mm::linux::descriptor_address();
        for ledger in snapshot.ledgers.iter_mut().filter(|l| l.addr == own) {
            replace(ledger, exact.rows());
        }
    }
    let rows = rows(
        &snapshot,
        &mut Symbolizer::new(SymbolOptions::default()),
        helpers,
        merge,
    );
    let (bytes, calls) = rows
        .iter()
        .fold((0, 0), |(b, c), r| (b + r.bytes, c + r.calls));
    Ok(Allocinfo {
        rows,
        bytes,
        calls,
        metadata: metadata(&snapshot),
    })
}

/// Slabs by cache, as `/proc/slabinfo` has them; `Display` gives the kernel's text. Named caches ([`crate::KmemCache`]) come first, newest
/// first, then the size classes, as `malloc-N`.
///
/// # Errors
/// As [`allocinfo`].
pub fn slabinfo() -> Result<memledger_formats::slabinfo::Slabinfo, memledger_inspect::Error> {
    let snapshot = Snapshot::read_self()?;
    Ok(memledger_formats::slabinfo::Slabinfo {
        caches: memledger_inspect::slabinfo(&snapshot),
        ..Default::default()
    })
}

/// `file:line func` of tags and sites of this runtime, as far as they can be told.
pub(crate) fn names_of(indexes: &[u32]) -> Vec<Option<String>> {
    let own = mm::linux::descriptor_address();
    let named = Snapshot::read_self().ok().and_then(|mut snapshot| {
        snapshot.ledgers.retain(|ledger| ledger.addr == own);
        (!snapshot.ledgers.is_empty()).then(|| {
            let mut symbols = Symbolizer::new(SymbolOptions::default());
            sites(&snapshot, &mut symbols, &Helpers::default(), indexes)
        })
    });
    let name = |row: Row| Some(format!("{}:{} {}", row.file, row.line, row.func));
    match named {
        Some(rows) => rows.into_iter().map(name).collect(),
        None => vec![None; indexes.len()],
    }
}

/// Puts sums of a scan in place of those of the snapshot.
fn replace(ledger: &mut memledger_inspect::Ledger, exact: impl Iterator<Item = (u32, u64, u64)>) {
    ledger
        .reserved
        .iter_mut()
        .chain(&mut ledger.tag_sums)
        .for_each(|s| *s = Sum::default());
    ledger.site_sums.clear();
    for (index, bytes, calls) in exact {
        let sum = Sum { bytes, calls };
        let site = index.wrapping_sub(SITE_BASE);
        if index < FIRST_TAG {
            ledger.reserved[index as usize].add(sum);
        } else if let Some(at) = ledger.tag_sums.get_mut((index - FIRST_TAG) as usize) {
            at.add(sum);
        } else if (site as usize) < ledger.nodes.len() {
            ledger.site_sums.push((site, sum));
        } else {
            ledger.reserved[INDEX_FOREIGN as usize].add(sum);
        }
    }
}
