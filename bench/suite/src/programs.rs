//! Workloads that are small programs: their time is their own, and the allocator's part is what it is in such programs.
//!
//! Each gives a checksum, which must be the same under every allocator.

use crate::{Random, ast, hooked};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// A JSON document of at least so many bytes: records with strings, numbers, lists and objects.
pub fn json_text(bytes: usize) -> String {
    let mut r = Random::new(43);
    let mut out = String::with_capacity(bytes + 1000);
    out.push('[');
    while out.len() < bytes {
        if out.len() > 1 {
            out.push(',');
        }
        let id = r.next();
        let _ = write!(
            out,
            r#"{{"id":{id},"name":"customer {:x}","balance":{}.{:02},"active":{},"tags":["#,
            r.below(1 << 30),
            r.below(100_000),
            r.below(100),
            id.is_multiple_of(3)
        );
        for i in 0..r.below(6) {
            let _ = write!(
                out,
                r#"{}"tag-{}""#,
                if i == 0 { "" } else { "," },
                r.below(500)
            );
        }
        let _ = write!(
            out,
            r#"],"address":{{"street":"{} Long Lane \"{}\"","code":"{:05}","at":[{},-{}.5]}},"note":null}}"#,
            r.below(300),
            r.below(40),
            r.below(99_999),
            r.below(180),
            r.below(90)
        );
    }
    out.push(']');
    out
}

/// Words of a text of about so many bytes, a few of them frequent.
pub fn words_text(bytes: usize) -> String {
    let mut r = Random::new(47);
    let mut out = String::with_capacity(bytes + 100);
    while out.len() < bytes {
        // The product of two gives small numbers more often.
        let n = r.below(1000) * r.below(1000) / 20;
        let _ = write!(
            out,
            "{}{:x}",
            ["the", "wor", "list", "under", "quick"][n % 5],
            n
        );
        out.push(if r.below(12) == 0 { '\n' } else { ' ' });
    }
    out
}

/// Parses the document and prints it again.
///
/// # Errors
/// The parser's.
pub fn json(text: &str) -> Result<u64, serde_json::Error> {
    let value: serde_json::Value = hooked!(serde_json::from_str(text)?);
    let printed = hooked!(serde_json::to_string(&value)?);
    let records = value.as_array().map_or(0, Vec::len);
    Ok(checksum(&printed) ^ records as u64)
}

/// Where each word stands; then the words by their number, joined.
pub fn words(text: &str) -> u64 {
    let mut places: HashMap<String, Vec<u32>> = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        for word in line.split(' ').filter(|w| !w.is_empty()) {
            // As most programs have it: an owned key for each look-up.
            let key = hooked!(word.to_uppercase());
            hooked!(places.entry(key).or_default().push(number as u32));
        }
    }
    let mut ordered: Vec<(String, Vec<u32>)> = hooked!(places.into_iter().collect());
    ordered.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(&b.0)));
    let lines: Vec<String> = hooked!(
        ordered
            .iter()
            .map(|(w, p)| format!("{w} {} {:?}", p.len(), p.last()))
            .collect()
    );
    checksum(&hooked!(lines.join("\n")))
}

/// A map of strings in order: filled, searched in ranges, its values edited, half of it taken out.
pub fn tree(entries: usize) -> u64 {
    let mut r = Random::new(53);
    let mut map: BTreeMap<String, String> = BTreeMap::new();
    for i in 0..entries {
        let key = hooked!(format!("{:06x}/item-{}", r.below(1 << 24), i % 100));
        let value = hooked!(format!("value {i} of {entries}"));
        hooked!(map.insert(key, value));
    }
    let mut sum = 0;
    for _ in 0..entries {
        let from = hooked!(format!("{:06x}", r.below(1 << 24)));
        for (key, value) in map.range_mut(from..).take(3) {
            let words: Vec<&str> = hooked!(value.split(' ').rev().collect());
            *value = hooked!(words.join(" "));
            sum ^= checksum(key) ^ checksum(value);
        }
    }
    let keys: Vec<String> = hooked!(map.keys().step_by(2).cloned().collect());
    for key in &keys {
        sum = sum.rotate_left(3) ^ map.remove(key).map_or(0, |v| checksum(&v));
    }
    let upper: BTreeMap<String, usize> = hooked!(
        map.into_iter()
            .map(|(k, v)| (k.replace('/', "::"), v.len()))
            .collect()
    );
    sum ^ upper.len() as u64
}

/// Compiles: parse, optimise, print, and once more with what was printed.
///
/// # Errors
/// The parser's.
pub fn compile(text: &str) -> Result<u64, String> {
    let once = ast::print(&ast::optimise(ast::parse(text)?));
    let twice = ast::print(&ast::optimise(ast::parse(&once)?));
    Ok(checksum(&once).rotate_left(1) ^ checksum(&twice))
}

/// FNV-1a over words of 8 bytes, so that it is a small part of the time.
fn checksum(text: &str) -> u64 {
    text.as_bytes()
        .chunks(8)
        .fold(0xcbf2_9ce4_8422_2325, |sum: u64, c| {
            let mut word = [0; 8];
            word[..c.len()].copy_from_slice(c);
            (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_repeat_and_depend_on_the_input() {
        let text = json_text(10_000);
        assert_eq!(json(&text).unwrap(), json(&text).unwrap());
        assert_ne!(json(&text).unwrap(), json(&json_text(20_000)).unwrap());
        assert_eq!(words("b a\nb"), checksum("B 2 Some(1)\nA 1 Some(0)"));
        assert_eq!(tree(1000), tree(1000));
        assert_ne!(tree(1000), tree(1001));
        let program = ast::generate(50);
        assert_eq!(compile(&program).unwrap(), compile(&program).unwrap());
    }

    #[test]
    fn documents_have_their_size() {
        assert!((50_000..51_000).contains(&json_text(50_000).len()));
        assert!((50_000..50_100).contains(&words_text(50_000).len()));
    }
}
