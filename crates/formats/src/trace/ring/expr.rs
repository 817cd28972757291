//! The constant expressions of C in which a kernel gives the values of flags: numbers, casts, and `| ^ & << >> + - * ~`.

/// Deepest nesting that is followed.
const DEPTH: u32 = 100;

/// The list `"|", { VALUE, "NAME" }, { VALUE, "NAME" }...`. Entries whose value cannot be computed are left out, so that
/// their bits are printed as a number.
pub(super) fn flag_list(text: &str) -> Vec<(u64, String)> {
    let mut out = Vec::new();
    let Some(mut rest) = text
        .trim_start()
        .strip_prefix('"')
        .and_then(|t| t.split_once('"'))
        .map(|t| t.1)
    else {
        return out;
    };
    loop {
        rest = rest.trim_start().trim_start_matches(',').trim_start();
        let Some(entry) = rest.strip_prefix('{') else {
            return out;
        };
        let Some((value, after)) = entry.split_once(", \"").or_else(|| entry.split_once(",\""))
        else {
            return out;
        };
        let Some((name, after)) = after.split_once('"') else {
            return out;
        };
        if let Some(value) = evaluate(value) {
            out.push((value, name.to_owned()));
        }
        let Some((_, after)) = after.split_once('}') else {
            return out;
        };
        rest = after;
    }
}

/// Value of a whole expression.
pub(super) fn evaluate(text: &str) -> Option<u64> {
    let mut parser = Parser {
        text: text.as_bytes(),
        at: 0,
        depth: 0,
    };
    let value = parser.binary(0)?;
    parser.blank();
    (parser.at == text.len()).then_some(value)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

impl Parser<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn blank(&mut self) {
        while self.peek().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: &[u8]) -> bool {
        self.blank();
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// An operator, with how tightly it binds.
    fn operator(&mut self) -> Option<(u8, [u8; 2], usize)> {
        self.blank();
        let rest = &self.text[self.at..];
        let two = [*rest.first()?, rest.get(1).copied().unwrap_or(0)];
        Some(match &two {
            b"<<" | b">>" => (4, two, 2),
            [b'|', _] => (1, [b'|', 0], 1),
            [b'^', _] => (2, [b'^', 0], 1),
            [b'&', _] => (3, [b'&', 0], 1),
            [b'+', _] => (5, [b'+', 0], 1),
            [b'-', _] => (5, [b'-', 0], 1),
            [b'*', _] => (6, [b'*', 0], 1),
            _ => return None,
        })
    }

    /// Operators that bind at least as tightly as `least`.
    fn binary(&mut self, least: u8) -> Option<u64> {
        let mut left = self.unary()?;
        while let Some((level, token, len)) = self.operator() {
            if level < least.max(1) {
                break;
            }
            self.at += len;
            let right = self.binary(level + 1)?;
            let shift = u32::try_from(right).unwrap_or(u32::MAX);
            left = match &token {
                b"<<" => left.checked_shl(shift).unwrap_or(0),
                b">>" => left.checked_shr(shift).unwrap_or(0),
                b"|\0" => left | right,
                b"^\0" => left ^ right,
                b"&\0" => left & right,
                b"+\0" => left.wrapping_add(right),
                b"-\0" => left.wrapping_sub(right),
                _ => left.wrapping_mul(right),
            };
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<u64> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let value = if self.eat(b"~") {
            !self.unary()?
        } else if self.eat(b"-") {
            self.unary()?.wrapping_neg()
        } else if self.eat(b"(") {
            self.blank();
            if self.peek().is_ascii_alphabetic() || self.peek() == b'_' {
                // A cast: the names of a type.
                while self.peek() != b')' {
                    let byte = self.peek();
                    if !(byte.is_ascii_alphanumeric() || b"_ *".contains(&byte)) {
                        return None;
                    }
                    self.at += 1;
                }
                self.at += 1;
                self.unary()?
            } else {
                let value = self.binary(0)?;
                self.eat(b")").then_some(value)?
            }
        } else {
            self.number()?
        };
        self.depth -= 1;
        Some(value)
    }

    fn number(&mut self) -> Option<u64> {
        self.blank();
        let start = self.at;
        while self.peek().is_ascii_alphanumeric() {
            self.at += 1;
        }
        let word = std::str::from_utf8(&self.text[start..self.at]).ok()?;
        let word = word.trim_end_matches(['u', 'U', 'l', 'L']);
        match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => word.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::evaluate;

    #[test]
    fn values() {
        assert_eq!(evaluate("1 << 4 | 0x3u & ~1UL"), Some(0x12));
        assert_eq!(
            evaluate(
                "( unsigned long)((( gfp_t)((((1UL))) << (5)))|(( gfp_t)((((1UL))) << (11))))"
            ),
            Some(0x820)
        );
        assert_eq!(evaluate("(( gfp_t)0)"), Some(0));
        assert_eq!(evaluate("2 * 3 - -1"), Some(7));
        assert_eq!(evaluate("1 << 99"), Some(0));
        for bad in ["", "BIT(3)", "1 +", "(1", "1 2", "(a", "0x"] {
            assert_eq!(evaluate(bad), None, "{bad}");
        }
        assert_eq!(evaluate(&"(".repeat(100_000)), None);
    }
}
