//! `/proc/kallsyms`: addresses of the functions of a kernel and its modules.
//!
//! A line is `ADDRESS TYPE NAME[<tab>[MODULE]]` (`kernel/kallsyms.c`). Symbols have no size: a function ends where the next one
//! begins. Without the right to see addresses all of them are 0, which makes an empty table.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read};

/// Longest line that is taken, in bytes; names of the kernel have at most 511.
const LINE: u64 = 4096;
/// Most symbols.
const LIMIT: usize = 1 << 23;
/// Bytes of which no function has as many: an address farther behind one is of something that is not listed.
const FAR: u64 = 1 << 24;

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Its first byte.
    pub address: u64,
    /// Its name.
    pub name: Box<str>,
    /// Its module; empty: built in.
    pub module: Box<str>,
}

/// The functions in order of address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kallsyms {
    symbols: Vec<Symbol>,
    bad: u64,
}

impl Kallsyms {
    /// Reads a file. Data symbols and those at address 0 are left out; other lines that are no symbols are counted.
    ///
    /// # Errors
    /// Those of the input.
    pub fn read(mut input: impl BufRead) -> io::Result<Kallsyms> {
        let mut all = Kallsyms::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut input).take(LINE).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            match parse(&String::from_utf8_lossy(&line)) {
                Some((kind, symbol)) => {
                    let text = matches!(kind, 't' | 'T' | 'w' | 'W');
                    if text && symbol.address != 0 && all.symbols.len() < LIMIT {
                        all.symbols.push(symbol);
                    }
                }
                None if line.iter().all(u8::is_ascii_whitespace) => {}
                None => all.bad += 1,
            }
        }
        all.symbols.sort_by_key(|symbol| symbol.address);
        Ok(all)
    }

    /// Number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Whether there is none, as where addresses are hidden.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Lines that could not be read.
    #[must_use]
    pub fn bad(&self) -> u64 {
        self.bad
    }

    /// The function that an address lies in, and how many bytes after its start. Of several names of one address the first.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<(&Symbol, u64)> {
        let after = self.symbols.partition_point(|s| s.address <= address);
        let start = self.symbols.get(after.checked_sub(1)?)?.address;
        let first = self.symbols.partition_point(|s| s.address < start);
        Some((self.symbols.get(first)?, address - start))
    }

    /// An address in words: `vfs_read+0x10 [module]`, or the number if it is in no function.
    #[must_use]
    pub fn name(&self, address: u64) -> String {
        let Some((symbol, offset)) = self.find(address) else {
            return format!("{address:#x}");
        };
        let mut text = format!("{}+{offset:#x}", symbol.name);
        if !symbol.module.is_empty() {
            let _ = write!(text, " [{}]", symbol.module);
        }
        text
    }

    /// As [`Kallsyms::name`], but `None` if the address is in no listed function: below the first, or more than 16 MiB behind one.
    #[must_use]
    pub fn near(&self, address: u64) -> Option<String> {
        let (_, offset) = self.find(address)?;
        (offset <= FAR).then(|| self.name(address))
    }

    /// The addresses of all functions of a name: first byte and end.
    #[must_use]
    pub fn ranges(&self, name: &str) -> Vec<(u64, u64)> {
        let named = self.symbols.iter().filter(|s| &*s.name == name);
        let mut all: Vec<_> = named
            .map(|symbol| {
                let after = self
                    .symbols
                    .partition_point(|s| s.address <= symbol.address);
                let end = self.symbols.get(after).map_or(u64::MAX, |s| s.address);
                (symbol.address, end)
            })
            .collect();
        all.dedup();
        all
    }
}

/// Reads one line.
fn parse(line: &str) -> Option<(char, Symbol)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let mut kind = words.next()?.chars();
    let symbol = Symbol {
        address,
        name: words.next()?.into(),
        module: match words.next() {
            Some(word) => word.strip_prefix('[')?.strip_suffix(']')?.into(),
            None => "".into(),
        },
    };
    Some((kind.next()?, symbol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000100 t alloc_it\n\
        ffffffff81000180 d table\nffffffff81000200 T end\nffffffffc0000000 t init\t[lab]\nffffffffc0000040 t alloc_it\t[lab]\n\
        no line\n0000000000000000 T hidden\n";

    #[test]
    fn names_and_ranges() {
        let all = Kallsyms::read(TEXT.as_bytes()).unwrap();
        assert_eq!((all.len(), all.bad()), (6, 1));
        assert_eq!(all.name(0xffff_ffff_8100_0004), "_text+0x4");
        assert_eq!(all.name(0xffff_ffff_8100_01ff), "alloc_it+0xff");
        assert_eq!(all.name(0xffff_ffff_c000_0041), "alloc_it+0x1 [lab]");
        assert_eq!(all.name(0x10), "0x10");
        assert_eq!(
            all.near(0xffff_ffff_c000_0041).as_deref(),
            Some("alloc_it+0x1 [lab]")
        );
        assert_eq!(all.near(5), None);
        assert_eq!(all.near(0xffff_ffff_c200_0000), None);
        assert_eq!(
            all.ranges("alloc_it"),
            [
                (0xffff_ffff_8100_0100, 0xffff_ffff_8100_0200),
                (0xffff_ffff_c000_0040, u64::MAX)
            ]
        );
        assert_eq!(
            all.ranges("_stext"),
            [(0xffff_ffff_8100_0000, 0xffff_ffff_8100_0100)]
        );
        assert!(all.ranges("nosuch").is_empty());
    }

    #[test]
    fn hidden_addresses_make_no_table() {
        let text = "0000000000000000 T a\n0000000000000000 T b\n";
        assert!(Kallsyms::read(text.as_bytes()).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), at: u64) {
            let all = Kallsyms::read(&bytes[..]).unwrap();
            let _ = all.name(at);
            let _ = all.ranges("a");
        }

        #[test]
        fn an_address_is_in_the_function_before_it(mut starts in proptest::collection::btree_set(1u64..1000, 1..20), at in 0u64..1100) {
            let text: String = starts.iter().map(|s| format!("{s:016x} t f{s}\n")).collect();
            let all = Kallsyms::read(text.as_bytes()).unwrap();
            let rest = starts.split_off(&(at + 1));
            drop(rest);
            let want = starts.last().map_or(format!("{at:#x}"), |s| format!("f{s}+{:#x}", at - s));
            prop_assert_eq!(all.name(at), want);
        }
    }
}
