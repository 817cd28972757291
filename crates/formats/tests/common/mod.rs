//! Captures of a real kernel, which are not part of the repository. `MEMLEDGER_SHARED` names the folder that has
//! `kernel-data/`; default `../shared` beside the workspace.
#![allow(dead_code, unreachable_pub)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memledger_formats::trace::ring::{Decoder, Endian, EventFormat, PageFormat, RawCpu};
use memledger_formats::trace::{Item, Names, Source};

/// The folder of the captures of Linux 7.3, or a line that says that there is none.
pub fn captures() -> Option<PathBuf> {
    Some(kernel_data()?.join("linux-7.3"))
}

/// The folder of all captures, or a line that says that there is none.
pub fn kernel_data() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("MEMLEDGER_SHARED").map_or(root, PathBuf::from);
    let dir = shared.join("kernel-data");
    if dir.is_dir() {
        return Some(dir);
    }
    println!(
        "skipped: no captures at {} (set MEMLEDGER_SHARED)",
        dir.display()
    );
    None
}

/// A file, unpacked.
pub fn read(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if path.extension().is_none_or(|e| e != "xz") {
        return bytes;
    }
    let mut out = Vec::new();
    liblzma::read::XzDecoder::new(bytes.as_slice())
        .read_to_end(&mut out)
        .expect("well packed");
    out
}

/// The descriptions of a captured kernel.
pub fn decoder(dir: &Path) -> (Arc<Decoder>, PageFormat) {
    let text = |name: &str| String::from_utf8(read(dir.join(name))).expect("text");
    let page = PageFormat::parse(&text("events/header_page")).expect("a page");
    let mut decoder = Decoder::new(Endian::Little, page.commit.1, 4096);
    for entry in std::fs::read_dir(dir.join("events/kmem")).expect("a folder") {
        let path = entry.expect("an entry").path().join("format");
        let format = EventFormat::parse(&String::from_utf8(read(path)).expect("text"));
        decoder.add(&format.expect("a description"));
    }
    decoder.comms(&text("saved_cmdlines.txt"));
    (Arc::new(decoder), page)
}

/// The raw pages of both processors.
pub fn raw(dir: &Path) -> Vec<RawCpu<std::io::Cursor<Vec<u8>>>> {
    let (decoder, page) = decoder(dir);
    let cpu = |n: u32| {
        let bytes = read(dir.join(format!("trace_pipe_raw.cpu{n}.bin.xz")));
        RawCpu::new(
            std::io::Cursor::new(bytes),
            page.clone(),
            decoder.clone(),
            n,
        )
    };
    vec![cpu(0), cpu(1)]
}

/// All items of a source.
pub fn all(source: &mut impl Source, names: &mut Names) -> Vec<Item> {
    let mut out = Vec::new();
    while let Some(item) = source.next_item(names).expect("memory") {
        out.push(item);
    }
    out
}
