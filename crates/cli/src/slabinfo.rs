//! `memledger slabinfo`: slabs by cache, of a process, a core file or a saved text, as `/proc/slabinfo` shows a kernel's.

use crate::{Failure, Result};
use clap::Args;
use memledger_formats::slabinfo::{self as format, Cache, Slabinfo as Text};
use memledger_inspect::Snapshot;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

pub(crate) const EXAMPLES: &str = "\
Examples:
  memledger slabinfo -p 1234
  memledger slabinfo -p 1234 | sort -k2 -n | tail
  memledger slabinfo --core core.1234 --json
  memledger slabinfo /proc/slabinfo --json        the kernel's
";

/// `memledger slabinfo`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Slabinfo {
    #[command(flatten)]
    source: Source,
    /// Look for object files of a core below DIR first
    #[arg(long, value_name = "DIR", requires = "core")]
    sysroot: Option<PathBuf>,
    /// Print JSON instead of the kernel's text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false, id = "slabs")]
struct Source {
    /// Read a running process
    #[arg(long, short, value_name = "PID")]
    pid: Option<u32>,
    /// Read the core file of one that is gone
    #[arg(long, value_name = "FILE")]
    core: Option<PathBuf>,
    /// Text in the kernel's form; - = standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Reads and prints.
pub(crate) fn run(args: &Slabinfo) -> Result<u8> {
    let mut lost = false;
    let text = match &args.source {
        Source { pid: Some(pid), .. } => of(&Snapshot::read(*pid)?, &mut lost),
        Source {
            core: Some(path), ..
        } => {
            let snapshot = Snapshot::read_core(path, args.sysroot.as_deref());
            of(&snapshot.map_err(|e| named(path, e))?, &mut lost)
        }
        Source { file, .. } => {
            let path = file.as_deref().unwrap_or(Path::new("-"));
            let text = match path.as_os_str() == "-" {
                true => format::read(io::stdin().lock()),
                false => File::open(path).and_then(|file| format::read(BufReader::new(file))),
            };
            text.map_err(|e| named(path, e))?
        }
    };
    if text.bad_lines > 0 {
        let lines: Vec<String> = text.bad.iter().take(10).map(u64::to_string).collect();
        eprintln!(
            "memledger: {} lines are no rows: {}",
            text.bad_lines,
            lines.join(", ")
        );
        lost = true;
    }
    let mut out = io::stdout().lock();
    if args.json {
        let caches: Vec<Value> = text.caches.iter().map(json_of).collect();
        serde_json::to_writer_pretty(
            &mut out,
            &json!({"caches": caches, "bad_lines": text.bad_lines}),
        )?;
        writeln!(out)?;
    } else {
        format::write(&mut out, &text.caches)?;
    }
    out.flush()?;
    Ok(u8::from(lost))
}

/// The caches of a snapshot; says what it could not read.
fn of(snapshot: &Snapshot, lost: &mut bool) -> Text {
    for note in crate::source::notes(snapshot) {
        eprintln!("memledger: {note}");
    }
    *lost = snapshot.torn_units() > 0 || snapshot.unread() > 0;
    Text {
        caches: memledger_inspect::slabinfo(snapshot),
        ..Text::default()
    }
}

/// A cache, by the kernel's names of its columns.
fn json_of(c: &Cache) -> Value {
    json!({
        "name": c.name,
        "active_objs": c.active_objs, "num_objs": c.num_objs, "objsize": c.objsize,
        "objperslab": c.objperslab, "pagesperslab": c.pagesperslab,
        "limit": c.limit, "batchcount": c.batchcount, "sharedfactor": c.sharedfactor,
        "active_slabs": c.active_slabs, "num_slabs": c.num_slabs, "sharedavail": c.sharedavail,
    })
}

fn named(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Message(format!("{}: {error}", path.display()))
}
