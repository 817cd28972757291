//! One line to one row. The grammar and its reasons are in the documentation of the parent module.

use super::{BadKind, Row};

/// Parses one line (without its newline) as a row.
///
/// # Errors
/// What is missing, in the order of the line. Header and empty lines are not rows.
pub fn parse_row(line: &str) -> Result<Row, BadKind> {
    let line = trim(line);
    let (bytes, rest) = word(line);
    let bytes = number(bytes).ok_or(BadKind::Bytes)?.cast_signed();
    let (calls, rest) = word(rest);
    let calls = number(calls).ok_or(BadKind::Calls)?;
    let (place, named) = split_func(rest).ok_or(BadKind::Place)?;
    let mut row = Row {
        bytes,
        calls,
        file: decode(place.file),
        line: place.line,
        module: place.module.map(decode),
        ..Row::default()
    };
    let start = tail_start(named);
    row.func = decode(named[..start].trim_end_matches(is_blank));
    for (key, value) in named[start..].split(is_blank).filter_map(tail_word) {
        match (key, value) {
            ("accurate", "no") => row.accurate = false,
            _ => row.extra.push((key.to_owned(), decode(value))),
        }
    }
    Ok(row)
}

pub(super) fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

/// Without blanks around it and without `\r` at its end.
pub(super) fn trim(line: &str) -> &str {
    line.trim_end_matches(|c| is_blank(c) || c == '\r')
        .trim_start_matches(is_blank)
}

/// The first word and what follows it.
fn word(s: &str) -> (&str, &str) {
    let (word, rest) = s.split_once(is_blank).unwrap_or((s, ""));
    (word, rest.trim_start_matches(is_blank))
}

/// A decimal number of 64 bits, signed or not, as its bits.
fn number(s: &str) -> Option<u64> {
    match s.strip_prefix('-') {
        // i64 takes the sign itself; a second one is an error there.
        Some(_) => s.parse::<i64>().ok().map(i64::cast_unsigned),
        None => digits(s)?.parse().ok(),
    }
}

fn digits(s: &str) -> Option<&str> {
    (!s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())).then_some(s)
}

struct Place<'a> {
    file: &'a str,
    line: u32,
    module: Option<&'a str>,
}

/// Cuts `PLACE func:NAMED` at the first ` func:` whose left side is a place.
fn split_func(s: &str) -> Option<(Place<'_>, &str)> {
    s.match_indices("func:").find_map(|(at, found)| {
        let left = s[..at].trim_end_matches(is_blank);
        // `func:` must be a word's start, and a place must stand before it.
        (left.len() < at)
            .then(|| place(left))
            .flatten()
            .map(|p| (p, &s[at + found.len()..]))
    })
}

fn place(s: &str) -> Option<Place<'_>> {
    let Some(inner) = s.strip_suffix(']') else {
        let (file, line) = file_line(s)?;
        return Some(Place {
            file,
            line,
            module: None,
        });
    };
    inner.rmatch_indices('[').find_map(|(at, _)| {
        let left = inner[..at].trim_end_matches(is_blank);
        let (file, line) = (left.len() < at).then(|| file_line(left)).flatten()?;
        Some(Place {
            file,
            line,
            module: Some(&inner[at + 1..]),
        })
    })
}

fn file_line(s: &str) -> Option<(&str, u32)> {
    let (file, line) = s.rsplit_once(':')?;
    Some((file, digits(line)?.parse().ok()?))
}

/// Where the words `key:value` at the end of a function's text start (its length if there are none).
///
/// The first word belongs to the name, unless a blank precedes it (an empty name).
pub(super) fn tail_start(named: &str) -> usize {
    let mut start = named.len();
    loop {
        let before = named[..start].trim_end_matches(is_blank);
        let Some(blank) = before.rfind(is_blank) else {
            return start;
        };
        if tail_word(&before[blank + 1..]).is_none() {
            return start;
        }
        start = blank + 1;
    }
}

/// `key:value`, if the word is one that may stand in the tail.
pub(super) fn tail_word(word: &str) -> Option<(&str, &str)> {
    let (key, value) = word.split_once(':')?;
    (is_key(key) && !value.is_empty() && !value.contains(is_structure)).then_some((key, value))
}

pub(super) fn is_key(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_lowercase())
        && key
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Characters of function names that no value has.
pub(super) fn is_structure(c: char) -> bool {
    matches!(c, ':' | '(' | ')' | '[' | ']' | '<' | '>' | '{' | '}')
}

/// The character that a backslash and the three octal digits after it stand for; only below 0o200.
pub(super) fn octal(s: &str) -> Option<char> {
    match *s.as_bytes() {
        [a @ b'0'..=b'1', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] => {
            Some(char::from((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0')))
        }
        _ => None,
    }
}

/// Undoes [`super::writer`]'s escapes.
fn decode(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    let mut rest = s;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match octal(rest) {
            Some(c) => {
                out.push(c);
                rest = &rest[3..];
            }
            None => out.push('\\'),
        }
    }
    out.push_str(rest);
    out
}

/// The bytes as text; those that are not UTF-8 as a backslash and three octal digits.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("\\{byte:03o}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &str) -> Row {
        parse_row(line).unwrap_or_else(|e| panic!("{line:?}: {e}"))
    }

    #[test]
    fn kernel_rows() {
        let r = row("        2048        8 lableak.c:21 [lableak] func:lableak_init ");
        assert_eq!(r.key(), ("lableak.c", 21, Some("lableak"), "lableak_init"));
        assert_eq!((r.bytes, r.calls, r.accurate), (2048, 8, true));
        let r = row("    22249472     2742 mm/slub.c:3347 func:alloc_slab_page accurate:no \r");
        assert_eq!(r.key(), ("mm/slub.c", 3347, None, "alloc_slab_page"));
        assert!(!r.accurate && r.extra.is_empty());
    }

    #[test]
    fn numbers_negative_and_wrapped() {
        let r = row("-8192 18446744073709551615 a.c:1 func:f");
        assert_eq!((r.bytes, r.calls_signed()), (-8192, -1));
        let r = row("18446744073709543424 -1 a.c:1 func:f");
        assert_eq!((r.bytes, r.calls), (-8192, u64::MAX));
        assert_eq!(
            row("123456789012345 1234567890 a.c:1 func:f").calls,
            1_234_567_890
        );
        for bad in [
            "--1",
            "+1",
            "-",
            "1.5",
            "18446744073709551616",
            "-9223372036854775809",
            "0x10",
            "",
        ] {
            assert!(
                parse_row(&format!("{bad} 1 a.c:1 func:f")).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(parse_row("x"), Err(BadKind::Bytes));
        assert_eq!(parse_row("1"), Err(BadKind::Calls));
        assert_eq!(parse_row("1 x a.c:1 func:f"), Err(BadKind::Calls));
        for bad in [
            "1 1",
            "1 1 a.c:1",
            "1 1 a.c func:f",
            "1 1 a.c:1func:f",
            "1 1 a.c:1 [m func:f",
            "1 1 a.c:x func:f",
        ] {
            assert_eq!(parse_row(bad), Err(BadKind::Place), "{bad}");
        }
        assert_eq!(parse_row("1 1 a.c:4294967296 func:f"), Err(BadKind::Place));
    }

    #[test]
    fn odd_places() {
        let r = row("1 1 /home/a b/x [1]:3/m func:y/lab.c:17 [lab] func:go accurate:no ");
        assert_eq!(
            r.key(),
            ("/home/a b/x [1]:3/m func:y/lab.c", 17, Some("lab"), "go")
        );
        assert_eq!(row("1 1 C:\\src\\a.c:4 func:f").file, "C:\\src\\a.c");
        assert_eq!(
            row("1 1  a.c:4\t [m]  func:f").key(),
            ("a.c", 4, Some("m"), "f")
        );
        assert_eq!(
            row("1 1 a.c:4 [/opt/x [2].so] func:f").module.as_deref(),
            Some("/opt/x [2].so")
        );
    }

    #[test]
    fn names_with_blanks_and_colons() {
        for name in [
            "operator new(unsigned long)",
            "<alloc::vec::Vec<T> as core::iter::FromIterator<u8>>::from_iter",
            "foo<a, b>::bar(std::pair<int, char const*>) const::{lambda(auto:1)#1}::operator()",
            "-[NSData initWithBytes:length:]",
            "std::f",
            "a:b",
        ] {
            let r = row(&format!(
                "1 1 a.c:1 func:{name} accurate:no error_size:12 nodes:0=1,1=2 "
            ));
            assert_eq!(r.func, name);
            assert!(!r.accurate);
            assert_eq!(
                r.extra,
                [
                    ("error_size".into(), "12".into()),
                    ("nodes".into(), "0=1,1=2".into())
                ]
            );
        }
        assert_eq!(row("1 1 a.c:1 func: accurate:no").func, "");
        assert_eq!(row("1 1 a.c:1 func:").func, "");
        assert_eq!(
            row("1 1 a.c:1 func:f accurate:yes").extra,
            [("accurate".to_owned(), "yes".to_owned())]
        );
    }

    #[test]
    fn a_file_that_ends_in_func() {
        let r = Row {
            file: "a:1 func".into(),
            func: "f".into(),
            line: 2,
            ..Row::default()
        };
        let line = super::super::write_row(&r, super::super::Version::V2_0);
        assert_eq!(line.trim(), "0        0 a:1\\040func:2 func:f");
        assert_eq!(row(line.trim_end()), r);
    }

    #[test]
    fn octal_text() {
        assert_eq!(decode(r"a\040b\\134\8\777\1"), "a b\\\\\\8\\777\\1");
        assert_eq!(text(b"a\xff\x80b"), r"a\377\200b");
        assert_eq!(decode(r"\377"), r"\377");
    }
}
