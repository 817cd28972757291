//! Finds descriptors by the ELF notes of mapped objects.
//!
//! Program headers and notes are loaded with an object, so they are read from the process's memory: it does not matter
//! whether the file is stripped, deleted, replaced or in another mount namespace. An object is taken to be any readable
//! mapping of a file from offset 0 that begins with an ELF header.

use crate::decode::{self, u16_at, u32_at, u64_at};
use crate::mem::{Memory, Span};
use crate::proc::Mapping;
use memledger_abi::{Descriptor, MAGIC, NOTE_NAME, NOTE_TYPE, VERSION};

const EHDR_SIZE: usize = 64;
const PHDR_SIZE: usize = 56;
const MAX_PHDRS: usize = 512;
/// Notes are some hundred bytes; what is larger is no note that we want.
const MAX_NOTES: u64 = 256 << 10;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const PAGE: u64 = 4096;

/// A descriptor found in a process.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Its address.
    pub addr: u64,
    /// Its contents when found.
    pub descriptor: Descriptor,
}

/// Result of a search.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Descriptors of the right layout, in order of address.
    pub found: Vec<Found>,
    /// Versions of those with another layout.
    pub other_versions: Vec<u32>,
    /// Notes that did not lead to a descriptor.
    pub bad: usize,
    /// Objects that were looked at.
    pub objects: usize,
}

/// A program header.
#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u32,
    offset: u64,
    vaddr: u64,
    memsz: u64,
    align: u64,
}

/// Searches all mapped objects.
pub fn descriptors(mem: &dyn Memory, mappings: &[Mapping]) -> Search {
    let mut search = Search::default();
    let mut addrs = Vec::new();
    for (base, header) in objects(mem, mappings) {
        search.objects += 1;
        let segments = segments(mem, base, &header);
        let Some(bias) = bias(base, &segments) else {
            continue;
        };
        for s in segments
            .iter()
            .filter(|s| s.kind == PT_NOTE && s.memsz <= MAX_NOTES)
        {
            let at = bias.wrapping_add(s.vaddr);
            let mut notes = vec![0; s.memsz as usize];
            if mem.read(at, &mut notes).is_ok() {
                scan_notes(&notes, at, s.align, &mut addrs);
            }
        }
    }
    addrs.sort_unstable();
    addrs.dedup();
    for addr in addrs {
        match check(mem, addr) {
            Ok(descriptor) => search.found.push(Found { addr, descriptor }),
            Err(Some(version)) => search.other_versions.push(version),
            Err(None) => search.bad += 1,
        }
    }
    search
}

/// Does the object mapped at `base` ask for a loader? `None` if it cannot be read.
pub(crate) fn has_interpreter(mem: &dyn Memory, base: u64) -> Option<bool> {
    let mut header = [0; EHDR_SIZE];
    mem.read(base, &mut header).ok()?;
    let segments = segments(mem, base, &header);
    (!segments.is_empty()).then(|| segments.iter().any(|s| s.kind == PT_INTERP))
}

/// Mapped ELF objects of this machine's class: base address and header.
fn objects(mem: &dyn Memory, mappings: &[Mapping]) -> Vec<(u64, [u8; EHDR_SIZE])> {
    let candidates: Vec<u64> = mappings
        .iter()
        .filter(|m| m.offset == 0 && m.readable && !m.path.is_empty() && !m.path.starts_with('['))
        .map(|m| m.start)
        .collect();
    let mut headers = vec![[0; EHDR_SIZE]; candidates.len()];
    let mut spans: Vec<Span<'_>> = candidates
        .iter()
        .zip(&mut headers)
        .map(|(&a, h)| Span::new(a, h))
        .collect();
    mem.read_many(&mut spans);
    let ok: Vec<bool> = spans.iter().map(|s| s.ok).collect();
    let all = candidates.into_iter().zip(headers).zip(ok);
    // ELF, 64 bits, little-endian.
    all.filter(|((_, h), ok)| *ok && h.starts_with(b"\x7fELF\x02\x01"))
        .map(|(o, _)| o)
        .collect()
}

/// Program headers of the object mapped at `base`.
fn segments(mem: &dyn Memory, base: u64, header: &[u8; EHDR_SIZE]) -> Vec<Segment> {
    let (offset, size) = (u64_at(header, 32), usize::from(u16_at(header, 54)));
    let count = usize::from(u16_at(header, 56));
    if size != PHDR_SIZE || count > MAX_PHDRS {
        return Vec::new();
    }
    let mut bytes = vec![0; count * PHDR_SIZE];
    if mem.read(base.wrapping_add(offset), &mut bytes).is_err() {
        return Vec::new();
    }
    let one = |p: &[u8]| Segment {
        kind: u32_at(p, 0),
        offset: u64_at(p, 8),
        vaddr: u64_at(p, 16),
        memsz: u64_at(p, 40),
        align: u64_at(p, 48),
    };
    bytes.chunks_exact(PHDR_SIZE).map(one).collect()
}

/// What to add to an address of the file, given where its first page is mapped.
fn bias(base: u64, segments: &[Segment]) -> Option<u64> {
    let first = segments
        .iter()
        .find(|s| s.kind == PT_LOAD && s.offset < PAGE)?;
    Some(base.wrapping_sub(first.vaddr.wrapping_sub(first.offset)))
}

/// GNU build-id of the object mapped at `base`, from its notes in memory; `None` if it has none or it cannot be read.
pub(crate) fn build_id(mem: &dyn Memory, base: u64) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut header = [0; EHDR_SIZE];
    mem.read(base, &mut header).ok()?;
    let segments = segments(mem, base, &header);
    let bias = bias(base, &segments)?;
    let notes = segments
        .iter()
        .filter(|s| s.kind == PT_NOTE && s.memsz <= MAX_NOTES);
    for s in notes {
        let mut bytes = vec![0; s.memsz as usize];
        if mem.read(bias.wrapping_add(s.vaddr), &mut bytes).is_err() {
            continue;
        }
        let mut id = None;
        each_note(&bytes, s.align, |kind, name, desc| {
            if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && !desc.is_empty() {
                id = bytes.get(desc).map(<[u8]>::to_vec);
            }
        });
        if id.is_some() {
            return id;
        }
    }
    None
}

/// Calls `one` with type, name and place of the contents of each note that is whole.
fn each_note(notes: &[u8], align: u64, mut one: impl FnMut(u32, &[u8], std::ops::Range<usize>)) {
    let align = if align == 8 { 8 } else { 4 };
    let round = |n: usize| n.checked_next_multiple_of(align);
    let mut pos = 0;
    while pos + 12 <= notes.len() {
        let (namesz, descsz) = (u32_at(notes, pos) as usize, u32_at(notes, pos + 4) as usize);
        let kind = u32_at(notes, pos + 8);
        let name = pos + 12;
        let (Some(desc), Some(next)) = (
            round(name + namesz),
            round(name + namesz).and_then(|desc| round(desc + descsz)),
        ) else {
            return;
        };
        if desc + descsz <= notes.len() {
            one(kind, &notes[name..name + namesz], desc..desc + descsz);
        }
        pos = next;
    }
}

/// Adds the descriptor addresses that the notes at address `at` give.
fn scan_notes(notes: &[u8], at: u64, align: u64, addrs: &mut Vec<u64>) {
    each_note(notes, align, |kind, name, desc| {
        let ours = name.strip_suffix(b"\0") == Some(NOTE_NAME.as_bytes());
        if kind == NOTE_TYPE && ours && desc.len() == 8 {
            let addr = at.wrapping_add(desc.start as u64);
            addrs.push(addr.wrapping_add(u64_at(notes, desc.start)));
        }
    });
}

/// Reads and checks a descriptor; on failure its version, if it is one of another layout.
pub(crate) fn check(mem: &dyn Memory, addr: u64) -> Result<Descriptor, Option<u32>> {
    let mut bytes = [0; size_of::<Descriptor>()];
    // The head alone first: another version may be shorter.
    mem.read(addr, &mut bytes[..16]).map_err(|_| None)?;
    let head = decode::descriptor(&bytes);
    if head.magic != MAGIC {
        return Err(None);
    }
    if head.version != VERSION || head.size as usize != bytes.len() {
        return Err(Some(head.version));
    }
    mem.read(addr, &mut bytes).map_err(|_| None)?;
    Ok(decode::descriptor(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_both_alignments() {
        for align in [4usize, 8] {
            let mut notes = Vec::new();
            let mut push = |name: &[u8], kind: u32, desc: &[u8]| {
                for n in [name.len() as u32, desc.len() as u32, kind] {
                    notes.extend(n.to_ne_bytes());
                }
                for part in [name, desc] {
                    notes.extend(part);
                    notes.resize(notes.len().next_multiple_of(align), 0);
                }
            };
            push(b"GNU\0", 3, &[1; 20]);
            push(b"memledger\0", 1, &(-0x40i64).to_ne_bytes());
            push(b"memledger\0", 2, &[0; 8]);
            push(b"memledgeR\0", 1, &[0; 8]);
            let mut addrs = Vec::new();
            scan_notes(&notes, 0x1000, align as u64, &mut addrs);
            let first = (12 + 4usize + 20).next_multiple_of(align);
            let desc = (first + 12 + 10).next_multiple_of(align);
            assert_eq!(addrs, [0x1000 + desc as u64 - 0x40]);
            for cut in 0..notes.len() {
                scan_notes(&notes[..cut], 0x1000, align as u64, &mut addrs);
            }
        }
    }
}
