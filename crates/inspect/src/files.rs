//! Where the file of a mapped object is, and where its debug information.
//!
//! A path is the one that the process sees: it is tried below `/proc/PID/root`, then through `/proc/PID/map_files` (deleted
//! or replaced files; needs privileges), then below the root that the process had, then as it is (the process may be gone). A
//! file whose build-id is not the one that was mapped is never taken; nor is a path whose file was deleted or replaced, unless a
//! build-id says that this is it.

use object::{Object, ReadCache};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What identifies a mapped object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct ObjectKey {
    /// Path as the process sees it.
    pub(crate) path: PathBuf,
    /// GNU build-id; empty if it has none or it is not known.
    pub(crate) build_id: Vec<u8>,
}

/// How to reach the files of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    /// `/proc/PID`, if the process is still there.
    pub(crate) proc_dir: Option<PathBuf>,
    /// Where a copy of the process's files is.
    pub(crate) sysroot: Option<PathBuf>,
    /// The process's own root as the reader sees it; empty for `/`.
    pub(crate) root: PathBuf,
    /// It is the executable.
    pub(crate) is_exe: bool,
    /// The file that was mapped is no longer the one of that path.
    pub(crate) deleted: bool,
    /// Address range of its first mapping.
    pub(crate) range: Option<(u64, u64)>,
}

/// What the head of an object file tells.
#[derive(Debug, Clone, Default)]
pub(crate) struct Info {
    pub(crate) build_id: Vec<u8>,
    /// Has DWARF.
    pub(crate) has_dwarf: bool,
    /// Has a `.symtab`.
    pub(crate) has_symtab: bool,
    /// `.gnu_debuglink`: file name and checksum.
    pub(crate) link: Option<(PathBuf, u32)>,
    /// `.gnu_debugaltlink`: path and build-id of the supplementary file.
    pub(crate) alt: Option<(PathBuf, Vec<u8>)>,
}

/// Opens and looks at an object file; `None` if it is none.
pub(crate) fn info(path: &Path) -> Option<Info> {
    let cache = ReadCache::new(open_regular(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let path_of = |b: &[u8]| PathBuf::from(String::from_utf8_lossy(b).into_owned());
    let has_bytes = |name: &str| {
        use object::ObjectSection;
        // A file of debug information only keeps the headers of the other sections, without bytes.
        file.section_by_name(name)
            .is_some_and(|s| s.file_range().is_some_and(|(_, size)| size > 0))
    };
    Some(Info {
        build_id: file.build_id().ok().flatten().unwrap_or_default().to_vec(),
        has_dwarf: has_bytes(".debug_info") || has_bytes(".zdebug_info"),
        has_symtab: has_bytes(".symtab"),
        link: file
            .gnu_debuglink()
            .ok()
            .flatten()
            .map(|(p, crc)| (path_of(p), crc)),
        alt: file
            .gnu_debugaltlink()
            .ok()
            .flatten()
            .map(|(p, id)| (path_of(p), id.to_vec())),
    })
}

/// Opens a regular file; never blocks on a FIFO or a device.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    File::open(path)
}

/// The file of an object, if it can be reached and is the one that was mapped.
pub(crate) fn locate(key: &ObjectKey, place: &Place) -> Option<(PathBuf, Info)> {
    let mut candidates = Vec::new();
    let by_path = !place.deleted || !key.build_id.is_empty();
    if let Some(dir) = &place.proc_dir {
        if place.is_exe {
            candidates.push(dir.join("exe"));
        }
        if key.path.is_absolute() && by_path {
            candidates.push(below(&dir.join("root"), &key.path));
        }
        if let Some((start, end)) = place.range {
            candidates.push(dir.join(format!("map_files/{start:x}-{end:x}")));
        }
        if key.path.is_relative() && !key.path.as_os_str().is_empty() && by_path {
            candidates.push(dir.join("cwd").join(&key.path));
        }
    }
    if by_path {
        if key.path.is_absolute() && !place.root.as_os_str().is_empty() {
            candidates.push(below(&place.root, &key.path));
        }
        candidates.extend(below_sysroot(place.sysroot.as_deref(), &key.path));
    }
    candidates.into_iter().find_map(|path| {
        let info = info(&path)?;
        (key.build_id.is_empty() || info.build_id == key.build_id).then_some((path, info))
    })
}

/// Where to look for a file: below `sysroot` if there is one, then as it is.
pub(crate) fn below_sysroot(sysroot: Option<&Path>, path: &Path) -> Vec<PathBuf> {
    let first = sysroot
        .filter(|_| path.is_absolute())
        .map(|root| below(root, path));
    first.into_iter().chain([path.to_owned()]).collect()
}

/// `path` below another root.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Finds the separate debug file of an object: by build-id, then by link.
pub(crate) fn debug_file(
    key: &ObjectKey,
    info: Option<&Info>,
    place: &Place,
    dirs: &[PathBuf],
) -> Option<(PathBuf, Info)> {
    let id = info.map_or(&key.build_id, |i| &i.build_id);
    let roots = debug_dirs(place, dirs);
    for dir in &roots {
        if let Some(found) = by_build_id(dir, id) {
            return Some(found);
        }
    }
    let (name, crc) = info?.link.as_ref()?;
    // Only a name: what points elsewhere is not followed.
    let name = name.file_name()?;
    let real = fs::canonicalize(&key.path).unwrap_or_else(|_| key.path.clone());
    // A link here need not be one in the process's own root.
    let mut parents = vec![real.parent()?, key.path.parent()?];
    parents.dedup();
    let own_root = place.proc_dir.as_ref().map(|dir| dir.join("root"));
    let mut candidates = Vec::new();
    for parent in parents {
        let near = [parent.join(name), parent.join(".debug").join(name)];
        let root = Some(&place.root).filter(|root| !root.as_os_str().is_empty());
        let others = own_root.iter().chain(root).chain(&place.sysroot);
        candidates.extend(others.flat_map(|root| near.iter().map(|c| below(root, c))));
        candidates.extend(near.iter().cloned());
        candidates.extend(roots.iter().map(|d| below(d, parent).join(name)));
    }
    candidates.into_iter().find_map(|path| {
        let found = self::info(&path)?;
        let same = if id.is_empty() || found.build_id.is_empty() {
            crc_of_file(&path).ok()? == *crc
        } else {
            found.build_id == *id
        };
        same.then_some((path, found))
    })
}

/// Directories of debug files, the process's own ones included.
fn debug_dirs(place: &Place, dirs: &[PathBuf]) -> Vec<PathBuf> {
    let system = Path::new("/usr/lib/debug");
    let mut out = dirs.to_vec();
    out.push(system.to_owned());
    if let Some(dir) = &place.proc_dir {
        out.push(below(&dir.join("root"), system));
    }
    out.extend(place.sysroot.iter().map(|root| below(root, system)));
    out
}

fn by_build_id(dir: &Path, id: &[u8]) -> Option<(PathBuf, Info)> {
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let path = dir.join(format!(".build-id/{first:02x}/{}.debug", hex(rest)));
    let found = info(&path)?;
    (found.build_id.is_empty() || found.build_id == id).then_some((path, found))
}

/// The supplementary (dwz) file that `path`'s information refers to.
pub(crate) fn supplementary(
    path: &Path,
    info: &Info,
    place: &Place,
    dirs: &[PathBuf],
) -> Option<PathBuf> {
    let (alt, id) = info.alt.as_ref()?;
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut candidates = vec![real.parent().map_or_else(|| alt.clone(), |p| p.join(alt))];
    candidates.extend(
        debug_dirs(place, dirs)
            .iter()
            .filter_map(|d| by_build_id(d, id))
            .map(|(p, _)| p),
    );
    candidates
        .into_iter()
        .find(|p| self::info(p).is_some_and(|i| i.build_id == *id))
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The CRC-32 of a file, as `.gnu_debuglink` has it (IEEE 802.3).
fn crc_of_file(path: &Path) -> io::Result<u32> {
    let mut file = open_regular(path)?;
    let mut buf = vec![0; 64 << 10];
    let mut crc = !0;
    loop {
        match file.read(&mut buf)? {
            0 => return Ok(!crc),
            n => crc = crc32(crc, &buf[..n]),
        }
    }
}

fn crc32(crc: u32, data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut c = i as u32;
            let mut bit = 0;
            while bit < 8 {
                c = if c & 1 == 1 {
                    0xedb8_8320 ^ (c >> 1)
                } else {
                    c >> 1
                };
                bit += 1;
            }
            table[i] = c;
            i += 1;
        }
        table
    };
    data.iter()
        .fold(crc, |c, b| TABLE[((c as u8) ^ b) as usize] ^ (c >> 8))
}

#[cfg(test)]
mod tests {
    #[test]
    fn checksum() {
        assert_eq!(!super::crc32(!0, b"123456789"), 0xcbf4_3926);
    }
}
