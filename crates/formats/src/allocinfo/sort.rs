//! The order of rows, from text: `[+|-]key,...`, as `ps --sort` and `page_owner_sort` take it.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::Row;

/// What rows can be ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// `bytes`, `size`, `b`, `s`.
    Bytes,
    /// `calls`, `c`.
    Calls,
    /// `file`, `f`.
    File,
    /// `line`, `l`.
    Line,
    /// `module`, `mod`, `m`. Built-in comes first.
    Module,
    /// `func`, `function`, `fn`.
    Func,
    /// `avg`, `a`: bytes of one call.
    Avg,
}

impl SortKey {
    /// All names, for help texts: the first of each is the canonical one.
    pub const NAMES: [(Self, &[&str]); 7] = [
        (Self::Bytes, &["bytes", "size", "b", "s"]),
        (Self::Calls, &["calls", "c"]),
        (Self::File, &["file", "f"]),
        (Self::Line, &["line", "l"]),
        (Self::Module, &["module", "mod", "m"]),
        (Self::Func, &["func", "function", "fn"]),
        (Self::Avg, &["avg", "a"]),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, names)| names.contains(&name))
            .map(|(key, _)| *key)
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        match self {
            Self::Bytes => a.bytes.cmp(&b.bytes),
            Self::Calls => a.calls_signed().cmp(&b.calls_signed()),
            Self::File => a.file.cmp(&b.file),
            Self::Line => a.line.cmp(&b.line),
            Self::Module => a.module.cmp(&b.module),
            Self::Func => a.func.cmp(&b.func),
            Self::Avg => a.avg().total_cmp(&b.avg()),
        }
    }
}

/// An order of rows: keys, the first decides. Without a sign or with `+` a key increases; with `-` it decreases. Rows that
/// tie keep their order.
///
/// ```
/// use memledger_formats::allocinfo::SortSpec;
/// let spec: SortSpec = "-calls,file,+line".parse()?;
/// assert_eq!(spec.to_string(), "-calls,+file,+line");
/// # Ok::<(), memledger_formats::allocinfo::SpecError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortSpec(Vec<(SortKey, bool)>);

impl Default for SortSpec {
    /// `-bytes`: the largest first.
    fn default() -> Self {
        Self(vec![(SortKey::Bytes, true)])
    }
}

impl SortSpec {
    /// The order of two rows.
    #[must_use]
    pub fn compare(&self, a: &Row, b: &Row) -> Ordering {
        let by = |&(key, down): &(SortKey, bool)| {
            let order = key.compare(a, b);
            if down { order.reverse() } else { order }
        };
        self.0
            .iter()
            .map(by)
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    /// Sorts rows, or references to rows.
    pub fn sort<T: std::borrow::Borrow<Row>>(&self, rows: &mut [T]) {
        rows.sort_by(|a, b| self.compare(a.borrow(), b.borrow()));
    }
}

/// A text that is not an order, a filter or a size; says what is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError(pub(crate) String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

impl FromStr for SortSpec {
    type Err = SpecError;

    fn from_str(s: &str) -> Result<Self, SpecError> {
        let key = |word: &str| {
            let name = word.strip_prefix(['+', '-']).unwrap_or(word);
            let key = SortKey::from_name(name).ok_or_else(|| {
                let names: Vec<_> = SortKey::NAMES.iter().map(|(_, n)| n[0]).collect();
                SpecError(format!(
                    "unknown sort key {name:?}; known are {}, each with + or -",
                    names.join(", ")
                ))
            })?;
            Ok((key, word.starts_with('-')))
        };
        s.split(',')
            .map(|word| key(word.trim()))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for SortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, down)) in self.0.iter().enumerate() {
            let name = SortKey::NAMES
                .iter()
                .find(|(k, _)| k == key)
                .map_or("", |(_, names)| names[0]);
            write!(
                f,
                "{}{}{name}",
                if at > 0 { "," } else { "" },
                if *down { "-" } else { "+" }
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_row;
    use super::*;

    fn sorted(spec: &str) -> String {
        let lines = [
            "9 1 b.c:1 func:one",
            "10 5 a.c:9 [m] func:two",
            "9 -1 a.c:10 func:three",
            "0 0 a.c:2 func:four",
        ];
        let mut rows: Vec<Row> = lines.iter().map(|l| parse_row(l).expect(l)).collect();
        spec.parse::<SortSpec>().expect(spec).sort(&mut rows);
        rows.iter()
            .map(|r| r.func.as_str())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn orders() {
        assert_eq!(sorted("-bytes"), "two one three four");
        assert_eq!(sorted("size"), "four one three two");
        assert_eq!(sorted("+b,-c"), "four one three two");
        assert_eq!(sorted("s,c"), "four three one two");
        assert_eq!(sorted("file,line"), "four two three one");
        assert_eq!(sorted("-m,fn"), "two four one three");
        assert_eq!(sorted("-avg"), "one two four three");
    }

    #[test]
    fn unknown_keys_are_named() {
        for bad in ["", "bytes,", "x", "--bytes", "bytes;calls"] {
            let e = bad.parse::<SortSpec>().expect_err(bad);
            assert!(
                e.to_string()
                    .contains("bytes, calls, file, line, module, func, avg"),
                "{e}"
            );
        }
        assert_eq!(SortSpec::default().to_string(), "-bytes");
    }
}
