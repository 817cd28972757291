//! Turns return addresses into functions and lines.
//!
//! A return address is after its call, often on the next line or in the next function: one is taken off before the look-up.

use crate::files::{self, ObjectKey, hex};
use crate::object_file::{Function, ObjectFile};
use crate::snapshot::{Ledger, NodeInfo, Snapshot};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where to look for symbols.
#[derive(Debug, Clone, Default)]
pub struct SymbolOptions {
    /// Directories of separate debug files, before `/usr/lib/debug` (the same layout).
    pub debug_dirs: Vec<PathBuf>,
    /// A copy of the root of the process's file system, to look for its files in before the paths as they are.
    pub sysroot: Option<PathBuf>,
    /// Symbol tables only, no DWARF: fast, no lines.
    pub no_dwarf: bool,
}

/// One frame of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Demangled function without parameters; `None` if nothing is known.
    pub func: Option<String>,
    /// Source file.
    pub file: Option<String>,
    /// Line, from 1; 0 = unknown.
    pub line: u32,
    /// File name of the shared object; `None` for the executable.
    pub module: Option<String>,
    /// Path of the object file as the process sees it; empty if the address is in none.
    pub object: String,
    /// GNU build-id of the object, as hex; empty = none.
    pub build_id: String,
    /// Inlined into the next frame.
    pub inlined: bool,
    /// Return address minus one, in the object's own terms (as `addr2line -e` takes it).
    pub addr: u64,
    /// Start of the function in the same terms, from the unwind tables; `None` if not known or the function has a name.
    pub start: Option<u64>,
    /// The object is still loaded.
    pub loaded: bool,
}

impl Frame {
    /// The function; `object+0xstart` if it has no name, with the address itself if its start is not known either.
    pub fn name(&self) -> String {
        match &self.func {
            Some(f) => f.clone(),
            None => self.at(self.start.unwrap_or(self.addr)),
        }
    }

    /// As [`Frame::name`], for a function without a name with the offset in it: `object+0xstart+0xoffset`.
    pub fn place(&self) -> String {
        match (&self.func, self.start) {
            (None, Some(start)) => format!("{}+{:#x}", self.at(start), self.addr - start),
            _ => self.name(),
        }
    }

    fn at(&self, addr: u64) -> String {
        match self.object.is_empty() {
            true => format!("{addr:#x}"),
            false => format!("{}+{addr:#x}", self.object_name()),
        }
    }

    /// File name of the object, of the executable too; `?` if the address is in none.
    pub fn object_name(&self) -> &str {
        let name = self.object.rsplit('/').next().unwrap_or("");
        if name.is_empty() { "?" } else { name }
    }
}

/// An object of the process whose frames are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FrameKey {
    object: ObjectKey,
    is_exe: bool,
    loaded: bool,
    addr: u64,
}

/// Where in which function a return address is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FunctionAt {
    /// Demangled name.
    pub name: Option<String>,
    /// Offset of the return address in the function, and the function's size, in bytes.
    pub extent: Option<(u64, u64)>,
    /// File name of the shared object; `None` for the executable.
    pub module: Option<String>,
}

/// Resolves addresses; keeps object files and addresses, so keep it over several snapshots.
#[derive(Debug, Default)]
pub struct Symbolizer {
    options: SymbolOptions,
    objects: HashMap<ObjectKey, Rc<ObjectFile>>,
    frames: HashMap<FrameKey, Rc<[Rc<Frame>]>>,
}

impl Symbolizer {
    /// An empty one.
    pub fn new(options: SymbolOptions) -> Self {
        Symbolizer {
            options,
            ..Symbolizer::default()
        }
    }

    /// Frames of a site's stack, innermost first, inlined frames expanded.
    pub fn stack(&mut self, snapshot: &Snapshot, ledger: &Ledger, node: u32) -> Vec<Rc<Frame>> {
        let nodes = ledger.stack(node);
        nodes
            .iter()
            .flat_map(|n| {
                self.node(snapshot, ledger, n)
                    .iter()
                    .cloned()
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Frames of one node: that of the call and those inlined into it.
    fn node(&mut self, snapshot: &Snapshot, ledger: &Ledger, node: &NodeInfo) -> Rc<[Rc<Frame>]> {
        let (key, bias, place) = identify(snapshot, ledger, node);
        let addr = node.ra.wrapping_sub(1).wrapping_sub(bias);
        let key = FrameKey {
            object: key,
            is_exe: place.is_exe,
            loaded: place.loaded,
            addr,
        };
        if let Some(frames) = self.frames.get(&key) {
            return frames.clone();
        }
        let object = self.object(snapshot, &key.object, &place);
        let raw = object.frames(addr);
        // One without a name is alone: nothing inlined is known of it.
        let unnamed = raw.iter().all(|f| f.func.is_none());
        let start = object.bounds(addr).filter(|_| unnamed).map(|b| b.0);
        let name = key.object.path.to_string_lossy().into_owned();
        let short = key
            .object
            .path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned());
        let frame = |raw: crate::object_file::RawFrame| {
            Rc::new(Frame {
                func: raw.func,
                file: raw.file,
                line: raw.line,
                module: short.clone().filter(|_| !key.is_exe),
                object: name.clone(),
                build_id: hex(&object.build_id),
                inlined: raw.inlined,
                addr,
                start,
                loaded: key.loaded,
            })
        };
        let frames: Rc<[Rc<Frame>]> = raw.into_iter().map(frame).collect();
        self.frames.insert(key, frames.clone());
        frames
    }

    /// The function that a node's call is in, inlined ones not expanded, with the offset of the return address in it.
    pub fn function_at(
        &mut self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        node: &NodeInfo,
    ) -> FunctionAt {
        let (key, bias, place) = identify(snapshot, ledger, node);
        let addr = node.ra.wrapping_sub(1).wrapping_sub(bias);
        let object = self.object(snapshot, &key, &place);
        let short = key
            .path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned());
        FunctionAt {
            name: object.function(addr).name,
            extent: object
                .extent(addr)
                .map(|(start, size)| (addr + 1 - start, size)),
            module: short.filter(|_| !place.is_exe),
        }
    }

    /// The function of one node's call, without lines; with the address in its object's terms.
    pub(crate) fn function(
        &mut self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        node: &NodeInfo,
    ) -> Place {
        let (key, bias, place) = identify(snapshot, ledger, node);
        let addr = node.ra.wrapping_sub(1).wrapping_sub(bias);
        let object = self.object(snapshot, &key, &place);
        let function = object.function(addr);
        Place {
            object: key.path.to_string_lossy().into_owned(),
            build_id: hex(&object.build_id),
            function,
            addr,
        }
    }

    fn object(&mut self, snapshot: &Snapshot, key: &ObjectKey, place: &Where) -> Rc<ObjectFile> {
        // Without a build-id the same path may be another file in another process: do not mix them up.
        let cache_key = match key.build_id.is_empty() {
            true => ObjectKey {
                build_id: format!("pid {} ", snapshot.process.pid).into_bytes(),
                ..key.clone()
            },
            false => ObjectKey {
                path: PathBuf::new(),
                build_id: key.build_id.clone(),
            },
        };
        if let Some(object) = self.objects.get(&cache_key) {
            return object.clone();
        }
        let object = if key.path.as_os_str().is_empty() && key.build_id.is_empty() {
            ObjectFile::default()
        } else {
            let proc_dir = snapshot
                .process
                .alive()
                .then(|| PathBuf::from(format!("/proc/{}", snapshot.process.pid)));
            let files = files::Place {
                proc_dir,
                sysroot: self.options.sysroot.clone(),
                root: snapshot.process.root.clone(),
                is_exe: place.is_exe,
                deleted: place.deleted,
                range: place.range,
            };
            ObjectFile::load(
                key,
                &files,
                &self.options.debug_dirs,
                !self.options.no_dwarf,
            )
        };
        let object = Rc::new(object);
        self.objects.insert(cache_key, object.clone());
        object
    }
}

/// A call, as the guess at wrappers sees it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) object: String,
    pub(crate) build_id: String,
    pub(crate) function: Function,
    pub(crate) addr: u64,
}

/// Where an object was.
#[derive(Debug, Clone, Default)]
struct Where {
    is_exe: bool,
    loaded: bool,
    /// Its file was deleted or replaced since it was mapped.
    deleted: bool,
    range: Option<(u64, u64)>,
}

/// Which object a node is in, and its bias: from its module record, else from the mappings.
fn identify(snapshot: &Snapshot, ledger: &Ledger, node: &NodeInfo) -> (ObjectKey, u64, Where) {
    let process = &snapshot.process;
    let record = ledger
        .modules
        .get(node.module as usize)
        .filter(|_| node.module != 0);
    let mapped = process.mapping(record.map_or(node.ra.wrapping_sub(1), |m| m.start));
    let Some(record) = record else {
        // Code of no object: generated, or unknown to the runtime. A file mapping tells at least the name.
        let mapped = mapped.filter(|m| m.path.starts_with('/') && !node.dead);
        let path = mapped.map(|m| PathBuf::from(&m.path)).unwrap_or_default();
        let deleted = mapped.is_some_and(|m| m.deleted);
        let bias = mapped.map_or(0, |m| m.start.wrapping_sub(m.offset));
        let is_exe = !path.as_os_str().is_empty() && path == process.exe;
        return (
            ObjectKey {
                path,
                build_id: Vec::new(),
            },
            bias,
            Where {
                is_exe,
                loaded: !node.dead,
                deleted,
                range: None,
            },
        );
    };
    let is_exe = record.name.is_empty();
    let loaded = record.loaded && !node.dead;
    // The kernel's path is absolute and free of links; the loader's may be relative to a directory that has changed.
    let mapped = mapped.filter(|m| loaded && m.path.starts_with('/'));
    let path = match mapped {
        _ if is_exe && !process.exe.as_os_str().is_empty() => process.exe.clone(),
        Some(m) => PathBuf::from(&m.path),
        None => Path::new(&record.name).to_owned(),
    };
    let range = mapped.map(|m| (m.start, m.end));
    let deleted = mapped.is_some_and(|m| m.deleted);
    (
        ObjectKey {
            path,
            build_id: record.build_id.clone(),
        },
        record.bias,
        Where {
            is_exe,
            loaded,
            deleted,
            range,
        },
    )
}
