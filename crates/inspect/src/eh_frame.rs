//! Where functions begin and end, from the unwind tables.
//!
//! `.eh_frame` stays in a stripped file, as exceptions and backtraces need it: one entry (FDE) for each function, with its
//! start and length. What a compiler splits off a function (`.cold`) has an entry of its own, and so stays a function of its
//! own. A file without the section (hand-written, or built with `-fno-asynchronous-unwind-tables`) has no bounds.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::{Object, ObjectSection, ReadCache};
use std::fs::File;

/// Start and end of a function, in the file's own addresses.
pub(crate) type Bounds = (u64, u64);

/// Bounds of all functions of an object file, sorted. Stops at the first entry that makes no sense.
pub(crate) fn functions(file: File) -> Vec<Bounds> {
    let cache = ReadCache::new(file);
    let Ok(object) = object::File::parse(&cache) else {
        return Vec::new();
    };
    let address = |name| object.section_by_name(name).map_or(0, |s| s.address());
    let Some(section) = object.section_by_name(".eh_frame") else {
        return Vec::new();
    };
    let Ok(data) = section.data() else {
        return Vec::new();
    };
    let bases = BaseAddresses::default()
        .set_eh_frame(section.address())
        .set_text(address(".text"))
        .set_got(address(".got"));
    parse(data, &bases)
}

fn parse(data: &[u8], bases: &BaseAddresses) -> Vec<Bounds> {
    let table = EhFrame::new(data, LittleEndian);
    let mut entries = table.entries(bases);
    let mut out = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let (start, len) = (fde.initial_address(), fde.len());
        if let Some(end) = start.checked_add(len).filter(|_| start > 0 && len > 0) {
            out.push((start, end));
        }
    }
    out.sort_unstable();
    out.dedup_by_key(|b| b.0);
    out
}

/// The function that holds `addr`.
pub(crate) fn find(functions: &[Bounds], addr: u64) -> Option<Bounds> {
    let after = functions.partition_point(|b| b.0 <= addr);
    functions[..after].last().copied().filter(|b| addr < b.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test program's own functions: each known address lies in one that begins there.
    #[test]
    fn of_this_program() {
        let path = std::env::current_exe().unwrap();
        let all = functions(File::open(&path).unwrap());
        assert!(all.len() > 100, "{}", all.len());
        assert!(all.iter().all(|b| b.0 < b.1) && all.is_sorted());
        let data = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*data).unwrap();
        use object::ObjectSymbol;
        let (mut same, mut other) = (0, 0);
        for s in file.symbols().filter(|s| s.size() > 16) {
            if s.kind() == object::SymbolKind::Text && s.is_definition() {
                let bounds = (s.address(), s.address() + s.size());
                match find(&all, bounds.1 - 1) {
                    Some(found) if found == bounds => same += 1,
                    _ => other += 1,
                }
            }
        }
        assert!(same > 100 && other * 20 < same, "{same} {other}");
    }

    #[test]
    fn garbage_and_gaps() {
        let bases = BaseAddresses::default().set_eh_frame(0x1000);
        assert_eq!(parse(&[0xff; 64], &bases), []);
        assert_eq!(parse(&[], &bases), []);
        let all = [(0x10, 0x20), (0x30, 0x40)];
        assert_eq!(find(&all, 0xf), None);
        assert_eq!(find(&all, 0x10), Some((0x10, 0x20)));
        assert_eq!(find(&all, 0x20), None);
        assert_eq!(find(&all, 0x3f), Some((0x30, 0x40)));
        assert_eq!(find(&all, 0x40), None);
        assert_eq!(find(&[], 0x40), None);
    }
}
