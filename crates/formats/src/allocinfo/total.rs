//! Sums of rows, and what must not be summed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::Row;

/// Sum of rows. Saturates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Total {
    /// Rows added.
    pub rows: usize,
    /// Of these, rows that hold something.
    pub live_rows: usize,
    /// Of these, rows that are not accurate (too low).
    pub inaccurate_rows: usize,
    /// Live bytes.
    pub bytes: i64,
    /// Live calls.
    pub calls: i64,
}

impl Total {
    /// Adds a row.
    pub fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.live_rows += usize::from(!row.is_zero());
        self.inaccurate_rows += usize::from(!row.accurate);
        self.bytes = self.bytes.saturating_add(row.bytes);
        self.calls = self.calls.saturating_add(row.calls_signed());
    }
}

impl<'a> FromIterator<&'a Row> for Total {
    fn from_iter<I: IntoIterator<Item = &'a Row>>(rows: I) -> Self {
        let mut total = Self::default();
        rows.into_iter().for_each(|row| total.add(row));
        total
    }
}

/// Sum of all rows. Right for a memledger report; of a kernel's file take [`kernel_total`].
pub fn total<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Total {
    rows.into_iter().collect()
}

/// The total of a kernel's file, without counting memory twice.
///
/// A kernel charges the pages of a slab to `alloc_slab_page` and the objects on them to their callers, and likewise the pages
/// of per-CPU chunks to `pcpu_alloc_pages` and the per-CPU objects to theirs. [`KernelTotal::net`] leaves out the pages
/// ([`is_backing`]), so it is what callers hold; slots that are free in their slab are in neither. To compare with
/// `MemTotal - MemFree`, one would leave out the objects instead, but rows do not say which of them are objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KernelTotal {
    /// All rows, as `awk '{s += $1}'` adds them.
    pub gross: Total,
    /// Pages that hold objects charged elsewhere.
    pub backing: Total,
    /// All rows but those.
    pub net: Total,
}

/// Sums a kernel's rows; see [`KernelTotal`].
pub fn kernel_total<'a>(rows: impl IntoIterator<Item = &'a Row>) -> KernelTotal {
    let mut out = KernelTotal::default();
    for row in rows {
        out.gross.add(row);
        if is_backing(row) {
            out.backing.add(row)
        } else {
            out.net.add(row)
        }
    }
    out
}

/// True for the rows of a kernel whose memory other rows hold objects on: `alloc_slab_page` in `mm/slub.c`,
/// `pcpu_alloc_pages` in `mm/percpu-vm.c`, `pcpu_create_chunk` in `mm/percpu-km.c`.
#[must_use]
pub fn is_backing(row: &Row) -> bool {
    row.module.is_none()
        && matches!(
            (row.file.as_str(), row.func.as_str()),
            ("mm/slub.c", "alloc_slab_page")
                | ("mm/percpu-vm.c", "pcpu_alloc_pages")
                | ("mm/percpu-km.c", "pcpu_create_chunk")
        )
}

/// True for the rows of memory that memledger needs for itself, marked `metadata:yes`: they are beside the account, and no sum of
/// live memory has them.
#[must_use]
pub fn is_metadata(row: &Row) -> bool {
    let mark = |(key, value): &(String, String)| key == "metadata" && value == "yes";
    row.extra.iter().any(mark)
}

/// Adds up the rows of one key, in the order in which keys first occur.
///
/// A merged row is accurate if all its parts are. Of [`Row::extra`], numbers of one key are added; other values are kept
/// once each.
pub fn merge_by_key(rows: impl IntoIterator<Item = Row>) -> Vec<Row> {
    let mut at: HashMap<(String, u32, Option<String>, String), usize> = HashMap::new();
    let mut out: Vec<Row> = Vec::new();
    for row in rows {
        match at.entry((
            row.file.clone(),
            row.line,
            row.module.clone(),
            row.func.clone(),
        )) {
            Entry::Occupied(e) => merge(&mut out[*e.get()], row),
            Entry::Vacant(e) => {
                e.insert(out.len());
                out.push(row);
            }
        }
    }
    out
}

fn merge(into: &mut Row, row: Row) {
    into.bytes = into.bytes.saturating_add(row.bytes);
    // A wrapped negative number of calls must still add up right.
    into.calls = into.calls.wrapping_add(row.calls);
    into.accurate &= row.accurate;
    for (key, value) in row.extra {
        let same = into
            .extra
            .iter_mut()
            .find(|(k, v)| *k == key && (*v == value || is_number(v) && is_number(&value)));
        match same.map(|(_, v)| v) {
            Some(v) => {
                if let (Ok(a), Ok(b)) = (v.parse::<u64>(), value.parse::<u64>()) {
                    *v = a.saturating_add(b).to_string();
                }
            }
            None => into.extra.push((key, value)),
        }
    }
}

fn is_number(s: &str) -> bool {
    s.parse::<u64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::parse_row;
    use super::*;

    fn rows(lines: &[&str]) -> Vec<Row> {
        lines.iter().map(|l| parse_row(l).expect(l)).collect()
    }

    #[test]
    fn totals() {
        let rows = rows(&[
            "4096 1 mm/slub.c:3347 func:alloc_slab_page accurate:no",
            "4096 1 mm/slub.c:2186 func:alloc_slab_obj_exts",
            "8192 2 mm/percpu-vm.c:103 func:pcpu_alloc_pages",
            "-10 -1 a.c:1 [m] func:f",
            "0 0 a.c:2 [m] func:g",
        ]);
        let t = kernel_total(&rows);
        assert_eq!((t.gross.bytes, t.gross.calls), (16374, 3));
        assert_eq!((t.backing.bytes, t.net.bytes), (12288, 4086));
        assert_eq!(
            (t.gross.rows, t.gross.live_rows, t.gross.inaccurate_rows),
            (5, 4, 1)
        );
        assert_eq!(t.gross, total(&rows));
    }

    #[test]
    fn equal_keys_add_up() {
        let merged = merge_by_key(rows(&[
            "10 1 a.h:1 func:f error_size:5 mode:x",
            "7 7 a.h:1 [m] func:f",
            "20 -2 a.h:1 func:f accurate:no error_size:6 mode:y",
            "1 1 a.h:1 func:f mode:x",
        ]));
        assert_eq!(merged.len(), 2);
        assert_eq!(
            (
                merged[0].bytes,
                merged[0].calls_signed(),
                merged[0].accurate
            ),
            (31, 0, false)
        );
        let extra: Vec<_> = merged[0]
            .extra
            .iter()
            .map(|(k, v)| format!("{k}:{v}"))
            .collect();
        assert_eq!(extra, ["error_size:11", "mode:x", "mode:y"]);
        assert_eq!(merged[1].bytes, 7);
    }
}
