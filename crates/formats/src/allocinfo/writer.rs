//! One row to one line, byte for byte as the kernel prints it; what would be misread is escaped.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::parse::{is_blank, is_key, is_structure, octal, tail_start};
use super::{Row, Version};

/// Writes rows in the kernel's format.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    version: Version,
    line: String,
}

impl<W: Write> Writer<W> {
    /// Writes rows to `out`. Version 1.0 leaves out `accurate:no` and all other words after the function.
    pub fn new(out: W, version: Version) -> Self {
        Self {
            out,
            version,
            line: String::new(),
        }
    }

    /// Writes the two lines of the header.
    ///
    /// # Errors
    /// Those of the output.
    pub fn header(&mut self) -> io::Result<()> {
        let version = self.version;
        write!(
            self.out,
            "allocinfo - version: {version}\n#     <size>  <calls> <tag info>\n"
        )
    }

    /// Writes one row.
    ///
    /// # Errors
    /// Those of the output; `InvalidInput` for an [`Row::extra`] whose key is not a lower-case word or whose value is empty,
    /// or that says `accurate:no`.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        if self.version >= Version::V2_0 {
            check_extra(row)?;
        }
        self.line.clear();
        push_row(&mut self.line, row, self.version);
        self.out.write_all(self.line.as_bytes())
    }

    /// The output.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Writes the header and all rows.
///
/// # Errors
/// As [`Writer::row`].
pub fn write<'a>(
    out: impl Write,
    version: Version,
    rows: impl IntoIterator<Item = &'a Row>,
) -> io::Result<()> {
    let mut writer = Writer::new(out, version);
    writer.header()?;
    rows.into_iter().try_for_each(|row| writer.row(row))
}

/// The line of one row, with its newline.
#[must_use]
pub fn write_row(row: &Row, version: Version) -> String {
    let mut line = String::new();
    push_row(&mut line, row, version);
    line
}

fn check_extra(row: &Row) -> io::Result<()> {
    let bad = row
        .extra
        .iter()
        .find(|(k, v)| !is_key(k) || v.is_empty() || (k == "accurate" && v == "no"));
    match bad {
        Some((k, v)) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("not a word key:value: {k:?}:{v:?}"),
        )),
        None => Ok(()),
    }
}

fn push_row(out: &mut String, row: &Row, version: Version) {
    // Writing to a string does not fail.
    let _ = write!(out, "{:>12} {:>8} ", row.bytes, row.calls);
    push_tag(out, row, version);
    out.push_str(" \n");
}

/// `FILE:LINE [MODULE] func:FUNC` and the tail.
pub(super) fn push_tag(out: &mut String, row: &Row, version: Version) {
    let before_func = |rest: &str| rest.starts_with(" func:");
    // The colon before the line would complete a ` func` at the end of a file.
    push_escaped(out, &row.file, |rest| before_func(rest) || rest == " func");
    let _ = write!(out, ":{}", row.line);
    if let Some(module) = &row.module {
        out.push_str(" [");
        push_escaped(out, module, |rest| {
            rest.starts_with(" [") || before_func(rest)
        });
        out.push(']');
    }
    out.push_str(" func:");
    push_func(out, &row.func);
    if version < Version::V2_0 {
        return;
    }
    if !row.accurate {
        out.push_str(" accurate:no");
    }
    for (key, value) in &row.extra {
        let _ = write!(out, " {key}:");
        push_escaped(out, value, |rest| {
            rest.starts_with(|c| c == ' ' || is_structure(c))
        });
    }
}

/// Appends a function's name, with the blanks escaped before words at its end that look like a tail.
fn push_func(out: &mut String, func: &str) {
    let start = out.len();
    push_escaped(out, func, |_| false);
    let named = &out[start..];
    let name = named[..tail_start(named)].trim_end_matches(' ').len();
    let tail = out.split_off(start + name);
    out.push_str(&tail.replace(' ', "\\040"));
}

/// Appends a field. Escaped are control characters, blanks at its ends, a backslash that would be read as an escape, and
/// what `ambiguous` says of the text that starts with the character.
fn push_escaped(out: &mut String, field: &str, ambiguous: impl Fn(&str) -> bool) {
    let end = field.trim_end_matches(is_blank).len();
    for (at, c) in field.char_indices() {
        let rest = &field[at..];
        let escape = match c {
            ' ' if at == 0 || at >= end => true,
            '\\' => octal(&rest[1..]).is_some(),
            c => c.is_ascii_control() || ambiguous(rest),
        };
        if escape {
            let _ = write!(out, "\\{:03o}", u32::from(c));
        } else {
            out.push(c);
        }
    }
}
