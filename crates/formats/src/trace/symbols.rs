//! `/proc/kallsyms`: which function an address of the kernel is in.

/// Functions by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Sorted by address.
    list: Vec<(u64, Box<str>)>,
}

impl Symbols {
    /// Reads lines `ADDRESS TYPE NAME[ [MODULE]]`; others are skipped. Addresses of 0, which the kernel shows to those without
    /// privilege, are of no use and skipped too.
    #[must_use]
    pub fn parse(text: &str) -> Symbols {
        let mut list: Vec<(u64, Box<str>)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let kind = words.next()?;
                let name = words.next()?;
                if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
                    return None;
                }
                let name = match words.next() {
                    Some(module) => format!("{name} {module}"),
                    None => name.to_owned(),
                };
                Some((address, name.into_boxed_str()))
            })
            .collect();
        list.sort_by_key(|(address, _)| *address);
        list.dedup_by_key(|(address, _)| *address);
        Symbols { list }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// `function+0x10 [module]`; `None` below the first function.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<String> {
        let after = self.list.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.list.get(after.checked_sub(1)?)?;
        let offset = address - start;
        // Nothing is this large; the address is of something that is not listed.
        if offset > 1 << 24 {
            return None;
        }
        Some(match name.split_once(' ') {
            Some((name, module)) => format!("{name}+{offset:#x} {module}"),
            None => format!("{name}+{offset:#x}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let text = "ffffffff81000000 T _stext\nffffffff81000010 t f\nffffffffc0000000 t g\t[ext4]\n0 t z\nffffffff81000020 d data\n";
        let symbols = Symbols::parse(text);
        assert_eq!(
            symbols.name(0xffff_ffff_8100_0014).as_deref(),
            Some("f+0x4")
        );
        assert_eq!(
            symbols.name(0xffff_ffff_c000_0003).as_deref(),
            Some("g+0x3 [ext4]")
        );
        assert_eq!(symbols.name(5), None);
    }
}
