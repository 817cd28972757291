//! Core files give the rows that the live process had.

mod common;

use common::{library, memledger, temporary, text};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void **v;
__attribute__((noinline)) void *node(size_t n) { void *p = malloc(n); memset(p, 1, n); return p; }
int main(int argc, char **argv) {
    int n = atoi(argv[1]);
    v = malloc(n * sizeof *v);
    for (int i = 0; i < n; i++) v[i] = node(24 + i % 5 * 16);
    void *big = calloc(1, 3 << 20);
    puts("ready"); fflush(stdout);
    if (getchar() == 'f') { free(v[0]); free(v[0]); }
    abort();
    return big != 0;
}
"#;

/// A program that runs in a folder of its own; `None` if it cannot be had here.
struct Lab {
    dir: PathBuf,
    child: Child,
}

impl Lab {
    fn start(name: &str, objects: &str, options: &[&str]) -> Option<Self> {
        let library = library()?.canonicalize().unwrap();
        let dir = temporary(name);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("p.c"), PROGRAM).unwrap();
        let built = Command::new("cc")
            .current_dir(&dir)
            .args(["-O1", "-w", "-o", "p", "p.c"])
            .args(options)
            .status();
        if !built.is_ok_and(|status| status.success()) {
            eprintln!("skipped: cc does not work here");
            return None;
        }
        // The limit of file sizes keeps a dump that goes wrong small.
        let script =
            "ulimit -c unlimited; ulimit -f 4000000; exec env LD_PRELOAD=\"$0\" ./p \"$1\"";
        let mut child = Command::new("bash")
            .current_dir(&dir)
            .args(["-c", script])
            .arg(library)
            .arg(objects)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Lab { dir, child })
    }

    /// Raw rows of the live process.
    fn live(&self) -> String {
        let pid = self.child.id().to_string();
        let out = memledger()
            .args(["allocinfo", "--raw", "-p", &pid])
            .output();
        let (code, rows, err) = text(&out.unwrap());
        assert_eq!(code, 0, "{err}");
        rows
    }

    /// Lets it die; the core file that the kernel wrote, unless it writes them elsewhere.
    fn die(&mut self, how: u8) -> Option<PathBuf> {
        use std::io::Write;
        self.child.stdin.take().unwrap().write_all(&[how]).unwrap();
        self.child.wait().unwrap();
        let files = std::fs::read_dir(&self.dir).unwrap();
        let mut paths = files.map(|entry| entry.unwrap().path());
        let found = paths.find(|p| p.file_name().unwrap().to_string_lossy().starts_with("core"));
        if found.is_none() {
            eprintln!("skipped: the kernel writes core files elsewhere (core_pattern)");
        }
        found
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn of_core(core: &Path, more: &[&str]) -> (i32, String, String) {
    let mut command = memledger();
    command.args(["allocinfo", "--core"]).arg(core).args(more);
    text(&command.output().unwrap())
}

#[test]
fn a_million_objects_in_cores_of_gdb_and_of_the_kernel() {
    let Some(mut lab) = Lab::start("million", "1000000", &["-g"]) else {
        return;
    };
    let live = lab.live();
    assert!(live.contains(" 1000000 "), "{live}");
    let pid = lab.child.id().to_string();
    let gcore = Command::new("gcore")
        .current_dir(&lab.dir)
        .args(["-o", "gdb", &pid])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if gcore.is_ok_and(|status| status.success()) {
        let core = lab.dir.join(format!("gdb.{pid}"));
        assert_eq!(of_core(&core, &["--raw"]), (0, live.clone(), String::new()));
        // The terabyte of reserved addresses is not in it.
        assert!(core.metadata().unwrap().len() < 1 << 30);
    } else {
        eprintln!("skipped: gcore does not work here");
    }
    // Reading a character takes a buffer, which is there in the kernel's core, too: it was before the live reading.
    let Some(core) = lab.die(b'a') else { return };
    let (code, rows, err) = of_core(&core, &["--raw"]);
    assert_eq!((code, rows, err.as_str()), (0, live, ""));
}

#[test]
fn stripped_and_dead_inside_free() {
    let Some(mut lab) = Lab::start("inside", "1000", &["-s"]) else {
        return;
    };
    let Some(core) = lab.die(b'f') else { return };
    let (_, rows, err) = of_core(&core, &["--raw", "--no-guess"]);
    // One of the thousand is free.
    assert!(rows.lines().any(|l| l.contains("   999 p")), "{rows}{err}");
}

#[test]
fn truncated_and_wrong_files() {
    let Some(mut lab) = Lab::start("cut", "1000", &[]) else {
        return;
    };
    let Some(core) = lab.die(b'a') else { return };
    let size = core.metadata().unwrap().len();
    let file = std::fs::OpenOptions::new().write(true).open(&core).unwrap();
    file.set_len(size - 4096).unwrap();
    let (code, out, err) = of_core(&core, &[]);
    let said = format!("{out}{err}");
    assert!(
        code != 0 && said.contains("truncated: it lacks the last 4096 of"),
        "{said}"
    );
    file.set_len(100_000).unwrap();
    let (code, _, err) = of_core(&core, &[]);
    assert!(code == 2 && err.contains("truncated"), "{err}");
    let (code, _, err) = of_core(&lab.dir.join("p.c"), &[]);
    assert!(code == 2 && err.contains("p.c: not a core file"), "{err}");
    let core = core.to_str().unwrap();
    let (code, _, err) = common::output(&["allocinfo", core]);
    assert!(code == 2 && err.contains("--core"), "{err}");
}
