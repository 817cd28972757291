//! The shape of a core file: ELF header, program headers, and the notes that say what was mapped where.
//!
//! Notes are walked by their headers; only the contents of wanted ones are read, so that a core of many thousand threads
//! costs no memory. Layouts are those of `<elf.h>`, `<sys/procfs.h>` and, for `NT_FILE`, of `fs/binfmt_elf.c`.

use super::{CoreInfo, ReadAt};
use crate::decode::{u16_at, u32_at, u64_at};
use crate::error::{Error, Result};
use crate::proc::Mapping;
use std::path::PathBuf;

const EHDR: usize = 64;
const PHDR: usize = 56;
const ET_CORE: u16 = 4;
const EM_X86_64: u16 = 62;
/// `e_phnum` when the count stands in `sh_info` of section 0 instead.
const PN_XNUM: u16 = 0xffff;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_PRSTATUS: u32 = 1;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_FILE: u32 = 0x4649_4c45;
const AT_PHDR: u64 = 3;
/// Most program headers believed (`vm.max_map_count` is seldom above this).
const MAX_SEGMENTS: u64 = 1 << 22;
/// Most bytes of one note believed.
const MAX_NOTE: u64 = 256 << 20;

/// A range of addresses that the core lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Where its bytes are in the file, and how many of them from `start` on are there.
    pub(super) offset: u64,
    pub(super) have: u64,
}

/// All that is read when a core file is opened.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// In order of address, not overlapping.
    pub(super) segments: Vec<Segment>,
    /// From `NT_FILE`, in order of address.
    pub(super) mappings: Vec<Mapping>,
    pub(super) info: CoreInfo,
    /// Path of the executable; empty if not known.
    pub(super) exe: PathBuf,
}

fn bad(what: impl Into<String>) -> Error {
    Error::Core { what: what.into() }
}

/// Reads `len` bytes at `at` of the file.
fn bytes(file: &dyn ReadAt, at: u64, len: usize, what: &str) -> Result<Vec<u8>> {
    let mut buf = vec![0; len];
    file.read_exact_at(&mut buf, at)
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                bad(format!("the core file is truncated: it ends in its {what}"))
            }
            _ => Error::io(format!("core file: {what}"), e),
        })?;
    Ok(buf)
}

/// Reads the headers and notes.
pub(super) fn parse(file: &dyn ReadAt) -> Result<Parsed> {
    let size = file.size();
    let mut head = vec![0; (size.min(EHDR as u64)) as usize];
    file.read_exact_at(&mut head, 0)
        .map_err(|e| Error::io("core file", e))?;
    check_head(&head)?;
    let count = match u16_at(&head, 56) {
        PN_XNUM => {
            let section = bytes(file, u64_at(&head, 40), 64, "section header")?;
            u64::from(u32_at(&section, 44))
        }
        n => u64::from(n),
    };
    if count > MAX_SEGMENTS || usize::from(u16_at(&head, 54)) != PHDR {
        return Err(bad("not a core file: its program headers make no sense"));
    }
    let headers = bytes(
        file,
        u64_at(&head, 32),
        count as usize * PHDR,
        "program headers",
    )?;
    let mut out = Parsed::default();
    let mut notes = Vec::new();
    let mut phdr = 0;
    for p in headers.chunks_exact(PHDR) {
        let (offset, filesz) = (u64_at(p, 8), u64_at(p, 32));
        match u32_at(p, 0) {
            PT_LOAD => add_segment(&mut out, p, size),
            PT_NOTE => notes.push((offset, filesz)),
            _ => continue,
        }
        out.info.wanted_size = out.info.wanted_size.max(offset.saturating_add(filesz));
    }
    out.info.size = size;
    for (offset, len) in notes {
        read_notes(file, offset, len, &mut out, &mut phdr)?;
    }
    out.segments.sort_unstable_by_key(|s| s.start);
    drop_overlaps(&mut out.segments);
    out.mappings.sort_by_key(|m| m.start);
    let exe = out
        .mappings
        .iter()
        .find(|m| m.start <= phdr && phdr < m.end);
    out.exe = exe.map(|m| PathBuf::from(&m.path)).unwrap_or_default();
    Ok(out)
}

/// Is it the head of a core file of this machine? If not, says what it is.
fn check_head(head: &[u8]) -> Result<()> {
    let packed = [
        (&b"\x28\xb5\x2f\xfd"[..], "zstd -d"),
        (b"\xfd7zXZ\0", "xz -d"),
        (b"\x04\x22\x4d\x18", "lz4 -d"),
        (b"\x1f\x8b", "gzip -d"),
    ];
    if let Some((_, tool)) = packed.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(bad(format!(
            "compressed: unpack it first ({tool}, or coredumpctl dump)"
        )));
    }
    if !head.starts_with(b"\x7fELF") {
        return Err(bad("not a core file: it does not begin as ELF does"));
    }
    if head.len() < EHDR {
        return Err(bad("the core file is truncated: it ends in its header"));
    }
    if u16_at(head, 16) != ET_CORE {
        return Err(bad("not a core file, but another kind of ELF file"));
    }
    if !head.starts_with(b"\x7fELF\x02\x01") || u16_at(head, 18) != EM_X86_64 {
        return Err(bad("a core file of another machine than x86-64"));
    }
    Ok(())
}

fn add_segment(out: &mut Parsed, p: &[u8], size: u64) {
    let (offset, start) = (u64_at(p, 8), u64_at(p, 16));
    let (filesz, memsz) = (u64_at(p, 32), u64_at(p, 40));
    let Some(end) = start.checked_add(memsz).filter(|_| memsz > 0) else {
        return;
    };
    let have = filesz.min(memsz).min(size.saturating_sub(offset));
    out.segments.push(Segment {
        start,
        end,
        offset,
        have,
    });
}

/// Drops what overlaps the segment before it: an address has one meaning.
fn drop_overlaps(segments: &mut Vec<Segment>) {
    let mut last = 0;
    segments.retain(|s| {
        let fits = s.start >= last;
        if fits {
            last = s.end;
        }
        fits
    });
}

/// Walks one note segment.
fn read_notes(
    file: &dyn ReadAt,
    offset: u64,
    len: u64,
    out: &mut Parsed,
    phdr: &mut u64,
) -> Result<()> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    while end.saturating_sub(at) >= 12 {
        let head = bytes(file, at, 12, "notes")?;
        let (namesz, descsz) = (u64::from(u32_at(&head, 0)), u64::from(u32_at(&head, 4)));
        let name = at + 12;
        let desc = name + namesz.next_multiple_of(4);
        let next = desc.saturating_add(descsz.next_multiple_of(4));
        if next > end.saturating_add(3) || descsz > MAX_NOTE {
            return Err(bad("its notes make no sense"));
        }
        let kind = u32_at(&head, 8);
        let wanted = matches!(kind, NT_PRPSINFO | NT_AUXV | NT_FILE)
            || (kind == NT_PRSTATUS && out.info.signal.is_none());
        if wanted && namesz == 5 && bytes(file, name, 5, "notes")? == b"CORE\0" {
            let desc = bytes(file, desc, descsz as usize, "notes")?;
            read_note(kind, &desc, out, phdr);
        }
        at = next;
    }
    Ok(())
}

fn read_note(kind: u32, desc: &[u8], out: &mut Parsed, phdr: &mut u64) {
    let text = |from: usize, to: usize| {
        let field = desc.get(from..to.min(desc.len())).unwrap_or_default();
        let end = field.iter().position(|&b| b == 0).unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end]).trim_end().to_owned()
    };
    match kind {
        // The first is that of the thread that died.
        NT_PRSTATUS => out.info.signal = Some(u16_at(desc, 12).into()),
        NT_PRPSINFO => {
            out.info.pid = u32_at(desc, 24);
            (out.info.comm, out.info.args) = (text(40, 56), text(56, 136));
        }
        NT_AUXV => {
            let mut pairs = desc.chunks_exact(16);
            let found = pairs.find(|p| u64_at(p, 0) == AT_PHDR);
            *phdr = found.map_or(0, |p| u64_at(p, 8));
        }
        _ => read_files(desc, &mut out.mappings),
    }
}

/// `NT_FILE`: count, page size, then start, end and page offset of each, then the paths.
fn read_files(desc: &[u8], out: &mut Vec<Mapping>) {
    let (count, page) = (u64_at(desc, 0), u64_at(desc, 8));
    let Some(table) = count
        .checked_mul(24)
        .and_then(|n| usize::try_from(n).ok())
        .and_then(|n| desc.get(16..)?.split_at_checked(n))
    else {
        return;
    };
    let paths = table.1.split(|&b| b == 0);
    for (entry, path) in table.0.chunks_exact(24).zip(paths) {
        let path = String::from_utf8_lossy(path);
        let (path, deleted) = match path.strip_suffix(" (deleted)") {
            Some(path) => (path, true),
            None => (&*path, false),
        };
        let (start, end) = (u64_at(entry, 0), u64_at(entry, 8));
        if start < end {
            out.push(Mapping {
                start,
                end,
                offset: u64_at(entry, 16).saturating_mul(page),
                readable: true,
                path: path.to_owned(),
                deleted,
            });
        }
    }
}
