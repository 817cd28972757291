//! The quick reader of unwind tables says what the general one says, or declines.
//!
//! Theory: the segment that holds an object's tables is copied from its file; all pointers in it are relative, so
//! addresses in it are right for the copy. PCs asked for: both sides of every row's start, and every function's ends.
//! Big objects are sampled; with `STACKDEPOT_EVERY=1` in the environment they are not.
extern crate std;

use crate::cfi::{Small, parse, quick};
use crate::platform::Object;
use crate::rule::GUESS;
use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer, Register, RegisterRule,
    UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow,
};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::{format, println, string::String, vec, vec::Vec};

/// Room for whatever a real program says.
struct Big;
impl UnwindContextStorage<usize> for Big {
    type Rules = [(Register, RegisterRule<usize>); 128];
    type Stack = [UnwindTableRow<usize, Self>; 16];
}

/// The segment with the unwind tables, and where in it `.eh_frame_hdr` is.
struct Tables {
    bytes: Vec<u8>,
    header: usize,
}

impl Tables {
    /// `None`: not an x86-64 object with unwind tables.
    fn load(path: &Path) -> Option<Self> {
        let file = std::fs::read(path).ok()?;
        let u64_at = |at: usize| Some(u64::from_le_bytes(*file.get(at..)?.first_chunk()?) as usize);
        let u16_at = |at: usize| Some(u16::from_le_bytes(*file.get(at..)?.first_chunk()?) as usize);
        (file.get(..5)? == b"\x7fELF\x02" && u16_at(18)? == 62).then_some(())?;
        let (table, count) = (u64_at(32)?, u16_at(56)?);
        let segments: Vec<[usize; 4]> = (0..count)
            .filter_map(|index| {
                let at = table + index * 56;
                let kind = u64_at(at)? & 0xffff_ffff;
                Some([kind, u64_at(at + 8)?, u64_at(at + 16)?, u64_at(at + 32)?])
            })
            .collect();
        let &[_, _, header, _] = segments.iter().find(|s| s[0] == 0x6474_e550)?;
        let &[_, offset, start, len] = segments
            .iter()
            .find(|s| s[0] == 1 && s[2] <= header && header < s[2] + s[3])?;
        let bytes = file.get(offset..offset + len)?.to_vec();
        let header = header - start;
        Some(Self { bytes, header })
    }

    fn header(&self) -> usize {
        self.bytes.as_ptr().expose_provenance() + self.header
    }

    fn end(&self) -> usize {
        self.bytes.as_ptr_range().end.expose_provenance()
    }

    fn quick(&self, pc: usize) -> Option<u32> {
        let object = Object {
            start: self.header() - self.header,
            end: self.end(),
            bias: 0,
            name: 0,
            identity: 0,
            eh_frame_hdr: self.header(),
        };
        // SAFETY: the bytes of the vector, which is not changed meanwhile.
        unsafe { quick(&object, self.end(), pc) }
    }

    fn general<S: UnwindContextStorage<usize>>(&self, pc: usize) -> u32 {
        // SAFETY: the bytes of the vector, which is not changed meanwhile.
        unsafe { parse::<S>(self.header(), self.end(), pc) }.unwrap_or(GUESS)
    }

    /// Calls `f` with PCs of every `stride`th function.
    fn pcs(&self, stride: usize, mut f: impl FnMut(usize)) -> Option<()> {
        let header = self.header();
        let bases = BaseAddresses::default().set_eh_frame_hdr(header as u64);
        let parsed = EhFrameHdr::new(&self.bytes[self.header..], LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let Pointer::Direct(start) = parsed.eh_frame_ptr() else {
            return None;
        };
        let bases = bases.set_eh_frame(start);
        let at = (start as usize).checked_sub(header - self.header)?;
        let frame = EhFrame::from(EndianSlice::new(self.bytes.get(at..)?, LittleEndian));
        let mut context = UnwindContext::<usize, Big>::new_in();
        let table = parsed.table()?;
        let mut entries = table.iter(&bases);
        let mut index = 0;
        while let Ok(Some((_, place))) = entries.next() {
            index += 1;
            if index % stride != 0 {
                continue;
            }
            let offset = (place.direct().ok()? - start) as usize;
            let Ok(entry) = frame.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset)
            else {
                continue;
            };
            let (begin, end) = (
                entry.initial_address() as usize,
                entry.end_address() as usize,
            );
            [begin.wrapping_sub(1), begin, begin + 1, end - 1, end]
                .into_iter()
                .for_each(&mut f);
            let mut rows = entry.rows(&frame, &bases, &mut context).ok()?;
            while let Ok(Some(row)) = rows.next_row() {
                let at = row.start_address() as usize;
                [at - 1, at, at + 1].into_iter().for_each(&mut f);
            }
        }
        Some(())
    }

    fn functions(&self) -> usize {
        u32::from_le_bytes(*self.bytes[self.header + 8..].first_chunk().unwrap()) as usize
    }
}

/// Large objects of this machine, of several compilers and languages, as far as there are any.
fn objects() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = vec![std::env::current_exe().unwrap()];
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    all.extend(
        maps.lines()
            .filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..]))),
    );
    let folders = [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/local/lib",
        "/usr/lib/llvm-14/lib",
        "/usr/lib/gcc/x86_64-linux-gnu/12",
    ];
    let words = [
        "libc.so",
        "libstdc++.so",
        "libpython3",
        "libLLVM",
        "libclang",
        "cc1",
        "cc1plus",
        "lto1",
        "ld-linux",
        "libm.so",
        "libcrypto.so",
        "libgcc_s",
        "libgmp",
        "libz.so",
        "libjemalloc",
    ];
    for folder in folders {
        let Ok(entries) = std::fs::read_dir(folder) else {
            continue;
        };
        all.extend(entries.flatten().map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            words.iter().any(|word| name.starts_with(word))
        }));
    }
    for program in [
        "bash",
        "git",
        "python3",
        "perl",
        "gdb",
        "node",
        "redis-server",
        "make",
    ] {
        all.push(Path::new("/usr/bin").join(program));
    }
    let mut all: Vec<_> = all
        .into_iter()
        .filter_map(|p| p.canonicalize().ok())
        .collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn real_objects() {
    let every = std::env::var_os("STACKDEPOT_EVERY").is_some();
    let (mut all, mut answered, mut cramped, mut files) = (0u64, 0u64, 0u64, 0);
    for path in objects() {
        let Some(tables) = Tables::load(&path) else {
            continue;
        };
        let stride = if every {
            1
        } else {
            tables.functions() / 300 + 1
        };
        let (mut here, mut quick) = (0u64, 0u64);
        let done = tables.pcs(stride, |pc| {
            let general = tables.general::<Big>(pc);
            here += 1;
            if let Some(rule) = tables.quick(pc) {
                quick += 1;
                let at = pc.wrapping_sub(tables.header());
                assert_eq!(rule, general, "{path:?} header + {at:#x}");
            }
            cramped += u64::from(tables.general::<Small>(pc) != general);
        });
        done.unwrap_or_else(|| panic!("{path:?}"));
        println!(
            "{:>9} PCs {:>8.4} % {path:?}",
            here,
            quick as f64 * 100.0 / here as f64
        );
        files += 1;
        all += here;
        answered += quick;
    }
    println!("{files} files, {all} PCs, {answered} answered, {cramped} need more room");
    assert!(
        files >= 3 && answered * 1000 > all * 990,
        "{answered} of {all}"
    );
}

/// A table of one function, at `begin` from the header, with this CIE and FDE behind their lengths and identifiers.
fn made(cie: &[u8], range: u32, program: &[u8]) -> Tables {
    let mut bytes = vec![1, 0x1b, 3, 0x3b];
    let mut word = |value: u32| bytes.extend(value.to_le_bytes());
    word(16);
    word(1);
    word(0x1000);
    // The FDE follows the CIE: length, identifier, body.
    let at = 20 + 8 + cie.len() as u32;
    word(at);
    word(4 + cie.len() as u32);
    word(0);
    bytes.extend(cie);
    let mut word = |value: u32| bytes.extend(value.to_le_bytes());
    word(4 + 8 + 1 + program.len() as u32);
    word(at + 4 - 20);
    word(0x1000u32.wrapping_sub(at + 8));
    word(range);
    bytes.push(0);
    bytes.extend(program);
    bytes.extend([0; 4]);
    Tables { bytes, header: 0 }
}

const COMMON: &[u8] = b"\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\0\0";

/// The offset of `pc` in the function is below `range`.
fn ask(tables: &Tables, offset: usize) -> (Option<u32>, u32) {
    let pc = tables.header() + 0x1000 + offset;
    (tables.quick(pc), tables.general::<Big>(pc))
}

#[test]
fn a_signal_frame_ends_the_walk() {
    let tables = made(
        b"\x01zRS\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01\0",
        16,
        &[],
    );
    assert_eq!(ask(&tables, 3), (Some(crate::rule::END), crate::rule::END));
    assert_eq!(ask(&tables, 16), (Some(GUESS), GUESS));
}

#[test]
fn an_undefined_return_address_ends_the_walk() {
    let tables = made(COMMON, 16, &[0x07, 16]);
    assert_eq!(ask(&tables, 3), (Some(crate::rule::END), crate::rule::END));
}

/// Instructions as compilers write them, and some that they do not.
fn instruction() -> impl Strategy<Value = Vec<u8>> {
    let register = prop_oneof![Just(6u8), Just(7), Just(16), Just(3), 0u8..40];
    let small = 0u8..0x80;
    prop_oneof![
        (0x40u8..0x50).prop_map(|op| vec![op]),
        (register.clone(), small.clone()).prop_map(|(r, n)| vec![0x80 | (r & 63), n]),
        register.clone().prop_map(|r| vec![0xc0 | (r & 63)]),
        (register.clone(), small.clone()).prop_map(|(r, n)| vec![0x0c, r, n]),
        register.clone().prop_map(|r| vec![0x0d, r]),
        (small.clone(), 0u8..4).prop_map(|(n, m)| vec![0x0e, n | 0x80, m]),
        (5u8..10, register, small).prop_map(|(op, r, n)| vec![op, r, n]),
        Just(vec![0x0a]),
        Just(vec![0x0b]),
        Just(vec![0]),
        (2u8..5, any::<[u8; 4]>()).prop_map(|(op, n)| [&[op], &n[..1 << (op - 2)]].concat()),
        proptest::collection::vec(any::<u8>(), 0..6),
    ]
}

fn agree(tables: &Tables, pc: usize) -> Result<bool, TestCaseError> {
    let quick = tables.quick(pc);
    if let Some(rule) = quick {
        let about: String = format!("{:02x?}", tables.bytes);
        prop_assert_eq!(rule, tables.general::<Big>(pc), "{}", about);
    }
    Ok(quick.is_some())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_programs(parts in proptest::collection::vec(instruction(), 0..24), initial in instruction()) {
        let program = parts.concat();
        let other = [&COMMON[..9], &initial, &COMMON[9..]].concat();
        for cie in [COMMON, &other] {
            let tables = made(cie, 200, &program);
            for offset in [0, 1, 5, 20, 100, 199, 200] {
                agree(&tables, tables.header() + 0x1000 + offset)?;
            }
        }
    }

    #[test]
    fn changed_bytes(changes in proptest::collection::vec((20usize..120, any::<u8>()), 1..4),
                     parts in proptest::collection::vec(instruction(), 0..10),
                     cut in 0usize..60) {
        let personal = b"\x01zPLR\0\x01\x78\x10\x07\x9b\x10\0\0\0\x1b\x1b\x0c\x07\x08\x90\x01\0\0";
        for cie in [COMMON, personal] {
            let mut tables = made(cie, 200, &parts.concat());
            for &(at, value) in &changes {
                if let Some(byte) = tables.bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if cut < 20 {
                tables.bytes.truncate(tables.bytes.len() - cut);
            }
            tables.bytes.shrink_to_fit();
            for offset in [0, 1, 20, 199, 200] {
                agree(&tables, tables.header() + 0x1000 + offset)?;
            }
        }
    }

    /// With a header of any content the readers may differ (its order is taken on trust), but nothing goes wrong.
    #[test]
    fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), headed: bool, pc: u32) {
        if headed && bytes.len() > 12 {
            bytes[..12].copy_from_slice(&[1, 0x1b, 3, 0x3b, 0, 0, 0, 0, pc as u8 % 16, 0, 0, 0]);
        }
        let tables = Tables { bytes, header: 0 };
        let at = tables.header().wrapping_add(pc as i32 as usize);
        let _ = (tables.quick(at), tables.quick(pc as usize), tables.quick(usize::MAX));
    }
}
