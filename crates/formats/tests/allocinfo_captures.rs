//! Every captured `/proc/allocinfo` reads without loss and prints back byte for byte.
//!
//! The captures are not part of the repository. `MEMLEDGER_SHARED` names the folder that has `kernel-data/`; default
//! `../shared` beside the workspace.

mod common;
use common::kernel_data;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use memledger_formats::allocinfo::{
    self, Allocinfo, BadKind, Version, kernel_total, merge_by_key, total,
};

/// Files of that name, in all folders.
fn files(dir: &Path, wanted: &dyn Fn(&str) -> bool, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default()
            .to_owned();
        if path.is_dir() {
            files(&path, wanted, out);
        } else if wanted(&name) {
            out.push(path);
        }
    }
}

fn parse(bytes: &[u8]) -> Allocinfo {
    // A small buffer, so that lines cross its end.
    allocinfo::read(BufReader::with_capacity(100, bytes)).expect("memory")
}

#[test]
fn every_capture_prints_back_byte_for_byte() {
    let Some(dir) = kernel_data() else { return };
    let mut found = Vec::new();
    files(
        &dir,
        &|n| n.starts_with("allocinfo.") && n.ends_with(".txt"),
        &mut found,
    );
    assert!(found.len() >= 15, "only {} captures", found.len());
    for path in &found {
        let bytes = std::fs::read(path).expect("readable");
        let parsed = parse(&bytes);
        assert_eq!(parsed.bad, [], "{}", path.display());
        assert!(parsed.rows.len() >= 1900, "{}", path.display());
        let mut printed = Vec::new();
        allocinfo::write(
            &mut printed,
            parsed.version.expect("a header"),
            &parsed.rows,
        )
        .expect("memory");
        assert!(printed == bytes, "{} differs", path.display());
    }
    println!("{} captures", found.len());
}

#[test]
fn rows_of_an_out_of_tree_module() {
    let Some(dir) = kernel_data() else { return };
    let mut found = Vec::new();
    files(
        &dir,
        &|n| n.starts_with("lableak.") && n.contains("loaded"),
        &mut found,
    );
    assert_eq!(found.len(), 3);
    for path in found {
        let text = std::fs::read_to_string(path).expect("readable");
        let parsed = parse(text.as_bytes());
        assert_eq!((parsed.version, parsed.rows.len()), (None, 6));
        let printed: String = parsed
            .rows
            .iter()
            .map(|r| allocinfo::write_row(r, Version::V2_0))
            .collect();
        let rows: String = text
            .lines()
            .filter(|l| l.contains("func:"))
            .map(|l| format!("{l}\n"))
            .collect();
        assert_eq!(printed, rows);
        // The other line is a message of the script that made the capture.
        assert!(
            parsed
                .bad
                .iter()
                .all(|b| b.kind == BadKind::Bytes && b.text.contains("rmmod"))
        );
    }
}

#[test]
fn figures_of_the_background_capture() {
    let Some(dir) = kernel_data() else { return };
    let bytes = std::fs::read(dir.join("linux-7.3/allocinfo.3-background.txt")).expect("readable");
    let rows = parse(&bytes).rows;
    let sums = kernel_total(&rows);
    assert_eq!(
        (
            sums.gross.rows,
            sums.gross.live_rows,
            sums.gross.inaccurate_rows
        ),
        (2037, 553, 6)
    );
    assert_eq!(sums.gross.bytes / 1024, 369_276);
    // The slab pages, and six pages of per-CPU chunks.
    assert_eq!(sums.backing.bytes, 22_605_824 + 45_056 + 24_576);
    assert_eq!(sums.net.bytes + sums.backing.bytes, sums.gross.bytes);
    let merged = merge_by_key(rows.iter().cloned());
    assert_eq!(merged.len(), 2037 - 4);
    assert_eq!(total(&merged).bytes, sums.gross.bytes);
    assert_eq!(
        merged
            .iter()
            .filter(|r| r.module.as_deref() == Some("ext4"))
            .count(),
        76
    );
}
