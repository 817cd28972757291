//! Which rows to show, from text.

use std::ops::RangeInclusive;
use std::str::FromStr;

use super::{Row, SpecError};
use crate::size::parse_size;

/// A pattern for a name. Case matters.
///
/// - with `*` (any text) or `?` (any character): a glob on the whole name; `\` takes the meaning from the next character.
///   `[` has none: names of functions have brackets;
/// - starting with `=`: the rest is the whole name, exactly; a bare `=` is the empty name;
/// - else: a part of the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// The whole name.
    Exact(String),
    /// A part of it.
    Part(String),
    /// A glob on the whole name.
    Glob(String),
}

impl Pattern {
    /// Reads a pattern. Every text is one.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match text.strip_prefix('=') {
            Some(name) => Self::Exact(name.to_owned()),
            None if text.contains(['*', '?']) => Self::Glob(text.to_owned()),
            None => Self::Part(text.to_owned()),
        }
    }

    /// Whether the name fits.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(text) => name == text,
            Self::Part(text) => name.contains(text.as_str()),
            Self::Glob(glob) => glob_matches(glob, name),
        }
    }
}

/// One step of a glob.
enum Step {
    Star,
    Any,
    Is(char),
}

fn glob_matches(glob: &str, name: &str) -> bool {
    let mut steps = Vec::new();
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        steps.push(match c {
            '*' => Step::Star,
            '?' => Step::Any,
            '\\' => Step::Is(chars.next().unwrap_or('\\')),
            c => Step::Is(c),
        });
    }
    let name: Vec<char> = name.chars().collect();
    // Greedy with one place to go back to: the last star. Quadratic at worst.
    let (mut s, mut n, mut back) = (0, 0, None);
    while n < name.len() {
        match steps.get(s) {
            Some(Step::Star) => {
                back = Some((s, n));
                s += 1;
            }
            Some(Step::Any) => (s, n) = (s + 1, n + 1),
            Some(Step::Is(c)) if *c == name[n] => (s, n) = (s + 1, n + 1),
            _ => {
                let Some((star, from)) = back else {
                    return false;
                };
                back = Some((star, from + 1));
                (s, n) = (star + 1, from + 1);
            }
        }
    }
    steps[s..].iter().all(|step| matches!(step, Step::Star))
}

/// Which rows to take. Terms of different keys must all hold; of several terms of one key, one. An empty filter takes all.
///
/// As text: `key=value,...`. Values may hold commas, as long as no known `key=` follows one.
///
/// | key | value |
/// | --- | --- |
/// | `module`, `mod`, `m` | [`Pattern`]; empty: built-in only |
/// | `func`, `function`, `fn` | [`Pattern`] |
/// | `file`, `f` | [`Pattern`] |
/// | `line`, `l` | `N` or `N-M` |
/// | `min`, `min-size` | least bytes, a size such as `10K` |
/// | `max`, `max-size` | most bytes |
/// | `accurate` | `yes` or `no` |
///
/// Sizes are inclusive and compared as signed numbers: a negative row is below any `min`.
///
/// ```
/// use memledger_formats::allocinfo::{Filter, Row};
/// let filter: Filter = "func=*alloc*,min=1K".parse()?;
/// let row = Row { bytes: 4096, func: "kvmalloc".into(), ..Row::default() };
/// assert!(filter.matches(&row));
/// # Ok::<(), memledger_formats::allocinfo::SpecError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Modules; [`Pattern::Exact`] of the empty text is built-in.
    pub module: Vec<Pattern>,
    /// Functions.
    pub func: Vec<Pattern>,
    /// Files.
    pub file: Vec<Pattern>,
    /// Lines.
    pub line: Vec<RangeInclusive<u32>>,
    /// Least bytes.
    pub min: Option<i64>,
    /// Most bytes.
    pub max: Option<i64>,
    /// Only rows that are, or are not, accurate.
    pub accurate: Option<bool>,
}

const KEYS: [&str; 15] = [
    "module", "mod", "m", "func", "function", "fn", "file", "f", "line", "l", "min", "min_size",
    "max", "max_size", "accurate",
];

impl Filter {
    /// Whether the row is taken.
    #[must_use]
    pub fn matches(&self, row: &Row) -> bool {
        let named = |patterns: &[Pattern], name: &str| {
            patterns.is_empty() || patterns.iter().any(|p| p.matches(name))
        };
        named(&self.module, row.module.as_deref().unwrap_or(""))
            && named(&self.func, &row.func)
            && named(&self.file, &row.file)
            && (self.line.is_empty() || self.line.iter().any(|r| r.contains(&row.line)))
            && self.min.is_none_or(|min| row.bytes >= min)
            && self.max.is_none_or(|max| row.bytes <= max)
            && self.accurate.is_none_or(|a| row.accurate == a)
    }

    /// Adds the terms of a text; a later `min`, `max` or `accurate` replaces an earlier one.
    ///
    /// # Errors
    /// An unknown key, an empty or unreadable value, or `min` above `max`.
    pub fn add(&mut self, text: &str) -> Result<(), SpecError> {
        for term in terms(text) {
            self.add_term(term)?;
        }
        match (self.min, self.max) {
            (Some(min), Some(max)) if min > max => Err(SpecError(format!(
                "no size is at least {min} and at most {max}"
            ))),
            _ => Ok(()),
        }
    }

    fn add_term(&mut self, term: &str) -> Result<(), SpecError> {
        let (key, value) = term.split_once('=').unwrap_or((term, ""));
        let key = &normal(key)[..];
        let pattern = || match value {
            "" => Err(SpecError(format!("filter {key}= needs a value"))),
            _ => Ok(Pattern::new(value)),
        };
        match key {
            "module" | "mod" | "m" if value.is_empty() && term.contains('=') => {
                self.module.push(Pattern::Exact(String::new()));
            }
            "module" | "mod" | "m" => self.module.push(pattern()?),
            "func" | "function" | "fn" => self.func.push(pattern()?),
            "file" | "f" => self.file.push(pattern()?),
            "line" | "l" => self.line.push(lines(value)?),
            "min" | "min_size" => self.min = Some(bytes(value)?),
            "max" | "max_size" => self.max = Some(bytes(value)?),
            "accurate" => self.accurate = Some(yes_no(value)?),
            _ => {
                return Err(SpecError(format!(
                    "unknown filter {key:?}; known are module=, func=, file=, line=, min=, max=, accurate="
                )));
            }
        }
        Ok(())
    }
}

impl FromStr for Filter {
    type Err = SpecError;

    fn from_str(s: &str) -> Result<Self, SpecError> {
        let mut filter = Self::default();
        filter.add(s)?;
        Ok(filter)
    }
}

/// Cuts at the commas that a known `key=` follows.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let s = rest?;
        let starts_term = |after: &str| {
            after
                .split_once('=')
                .is_some_and(|(k, _)| KEYS.contains(&&normal(k)[..]))
        };
        let cut = s
            .match_indices(',')
            .find(|(at, _)| starts_term(&s[at + 1..]));
        rest = cut.map(|(at, _)| &s[at + 1..]);
        Some(cut.map_or(s, |(at, _)| &s[..at]))
    })
}

/// A key without blanks around it; `-` and `_` are one.
fn normal(key: &str) -> String {
    key.trim().replace('-', "_")
}

fn lines(value: &str) -> Result<RangeInclusive<u32>, SpecError> {
    let (from, to) = value.split_once('-').unwrap_or((value, value));
    match (from.trim().parse(), to.trim().parse()) {
        (Ok(from), Ok(to)) if from <= to => Ok(from..=to),
        _ => Err(SpecError(format!(
            "not a line or a range of lines: {value:?}"
        ))),
    }
}

fn bytes(value: &str) -> Result<i64, SpecError> {
    i64::try_from(parse_size(value)?).map_err(|_| SpecError(format!("size too large: {value:?}")))
}

fn yes_no(value: &str) -> Result<bool, SpecError> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(SpecError(format!("accurate is yes or no, not {value:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_row;
    use super::*;

    #[test]
    fn globs() {
        let yes = [
            ("*", ""),
            ("a*c", "abbc"),
            ("a?c", "abc"),
            ("*x*y*", "..x.x.y"),
            ("operator[]*", "operator[](int)"),
        ];
        for (glob, name) in yes.into_iter().chain([
            ("a\\*b?", "a*bc"),
            ("**", "é"),
            ("?", "é"),
            ("a*ab", "aaab"),
        ]) {
            assert!(Pattern::new(glob).matches(name), "{glob} {name}");
        }
        for (glob, name) in [
            ("?", ""),
            ("a*c", "abcd"),
            ("a\\*b?", "axbc"),
            ("*a", "ab"),
            ("A*", "a"),
        ] {
            assert!(!Pattern::new(glob).matches(name), "{glob} {name}");
        }
        // Must not take exponential time.
        assert!(!Pattern::new("*a*a*a*a*a*a*a*a*b").matches(&"a".repeat(2000)));
        assert!(Pattern::new("=main").matches("main") && !Pattern::new("=main").matches("domain"));
        assert!(Pattern::new("main").matches("domain"));
    }

    fn takes(filter: &str, line: &str) -> bool {
        filter
            .parse::<Filter>()
            .expect(filter)
            .matches(&parse_row(line).expect(line))
    }

    #[test]
    fn terms_and_keys() {
        let line = "10240 3 fs/ext4/super.c:17 [ext4] func:std::map<int, char>::at";
        for f in [
            "m=ext4",
            "module==ext4",
            "func=map<int, char>",
            "fn=std::*,f=super",
            "line=10-20",
            "l=17",
            "min=10K",
            "min-size=1,max_size=10K",
        ] {
            assert!(takes(f, line), "{f}");
        }
        for f in [
            "m=",
            "m==ext",
            "func=map,f=ext2",
            "line=18",
            "min=10241",
            "max=1K",
            "accurate=no",
            "min=1,max=2,m=ext4",
        ] {
            assert!(!takes(f, line), "{f}");
        }
        assert!(takes("m=jbd2,m=ext4,accurate=yes", line));
    }

    #[test]
    fn built_in_and_negative() {
        assert!(takes("module=", "1 1 a.c:1 func:f"));
        assert!(!takes("module=", "1 1 a.c:1 [m] func:f"));
        assert!(!takes("min=0", "-1 1 a.c:1 func:f"));
        assert!(takes("max=0", "-1 1 a.c:1 func:f"));
    }

    #[test]
    fn errors_say_what() {
        for bad in [
            "",
            "x=1",
            "func",
            "func=",
            "line=a",
            "line=9-1",
            "min=",
            "min=x",
            "min=2,max=1",
            "accurate=1",
            "module",
        ] {
            assert!(bad.parse::<Filter>().is_err(), "{bad}");
        }
        assert!("max=16E".parse::<Filter>().is_err());
    }
}
