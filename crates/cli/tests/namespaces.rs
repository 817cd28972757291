//! Processes in other mount and pid namespaces, behind other roots, and of files that are no longer there. Needs root, a C
//! compiler and the preload library; says so where that is missing, or the kernel does not permit namespaces.

mod common;

use common::{library, memledger, output, temporary, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A fixture that runs; killed at the end, with the folder of its files.
struct Held {
    child: Child,
    dir: PathBuf,
}

impl Held {
    /// Starts `command` and waits until its memory is there.
    fn start(dir: &Path, command: &mut Command) -> Self {
        let child = command
            .env_remove("MEMLEDGER")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let dir = dir.to_owned();
        let mut held = Held { child, dir };
        assert_eq!(held.line(), "ready\n");
        held
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        line
    }

    /// Lets it allocate once more.
    fn more(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(self.line(), "more\n");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let dir = temporary(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn compile(out: &Path, options: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/namespaces/hold.c");
    let status = Command::new("cc")
        .args(["-g", "-O1", "-o"])
        .arg(out)
        .arg(source)
        .args(options)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "{options:?}");
}

/// Is this permitted? Says so if not.
fn permitted(command: &[&str]) -> bool {
    let done = Command::new(command[0]).args(&command[1..]).output();
    let ok = done.as_ref().is_ok_and(|done| done.status.success());
    if !ok {
        eprintln!("skipped: {command:?} is not permitted or not there: {done:?}");
    }
    ok
}

/// Calls of the row of `hold_here`, and of `untracked`, by `memledger ARGS`, which prints JSON.
fn held(command: &mut Command) -> (u64, u64) {
    let (code, out, err) = text(&command.output().unwrap());
    assert_eq!(code, 0, "{command:?}: {out}{err}");
    let json: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
    let calls = |func: &str| -> Vec<&Value> {
        let rows = json["rows"].as_array().unwrap();
        rows.iter().filter(|r| r["func"] == func).collect()
    };
    let untracked = calls("untracked")
        .first()
        .map_or(0, |r| r["calls"].as_u64().unwrap());
    let rows = calls("hold_here");
    assert_eq!(rows.len(), 1, "{out}");
    assert!(
        rows[0]["file"].as_str().unwrap().ends_with("hold.c"),
        "{out}"
    );
    assert_eq!(rows[0]["line"], 13, "{out}");
    (rows[0]["calls"].as_u64().unwrap(), untracked)
}

fn allocinfo(pid: &str) -> (u64, u64) {
    held(memledger().args(["allocinfo", "--json", "-p", pid]))
}

/// What the container is: a root of its own on a file system that no other namespace sees, and its own process numbers.
const CONTAINER: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs none "$JAIL"
mkdir "$JAIL/usr" "$JAIL/proc" "$JAIL/opt"
mount --bind /usr "$JAIL/usr"
ln -s usr/lib usr/lib64 "$JAIL/"
mount -t proc proc "$JAIL/proc"
cp "$PROG" "$JAIL/opt/$NAME"
cp "$LIB" "$JAIL/opt/lib.so"
exec chroot "$JAIL" /usr/bin/env LD_PRELOAD=/opt/lib.so "/opt/$NAME"
"#;

/// The fixture as process 1 of a container, and its number outside.
fn container(name: &str) -> Option<(Held, String)> {
    let lib = library()?;
    let unshare = ["unshare", "--pid", "--mount", "--fork", "--mount-proc"];
    if !permitted(&[&unshare[..], &["mount", "-t", "tmpfs", "none", "/mnt"]].concat()) {
        return None;
    }
    let dir = folder(name);
    let (prog, jail) = (dir.join("prog"), dir.join("jail"));
    compile(&prog, &[]);
    fs::create_dir(&jail).unwrap();
    let comm = format!("in{}{name}", std::process::id());
    let held = Held::start(
        &dir,
        Command::new("unshare")
            .args(&unshare[1..])
            .args(["--kill-child", "sh", "-c", CONTAINER])
            .env("JAIL", &jail)
            .env("PROG", &prog)
            .env("LIB", lib)
            .env("NAME", &comm),
    );
    // The file is nowhere to be seen from here.
    fs::remove_file(&prog).unwrap();
    assert!(fs::read_dir(&jail).unwrap().next().is_none());
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pid = pids
        .filter_map(|entry| entry.file_name().into_string().ok())
        .find(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim_end() == comm)
        })
        .expect("the process is seen from outside");
    assert_ne!(pid, "1");
    Some((held, pid))
}

#[test]
fn a_container_seen_from_outside() {
    let Some((mut container, pid)) = container("out") else {
        return;
    };
    assert_eq!(allocinfo(&pid).0, 100);
    for args in [
        &["rss", "--json", "-p"][..],
        &["page-owner", "pinned", "--json", "-p"],
        &["trace", "stat", "--seconds", "0.1", "-p"],
    ] {
        let (code, out, err) = output(&[args, &[&pid]].concat());
        assert_eq!(code, 0, "{args:?}: {out}{err}");
    }
    let file = container.dir.join("events");
    let path = file.to_str().unwrap();
    let mut recorder = memledger()
        .args(["trace", "record", "-p", &pid, "--seconds", "1", "-o", path])
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    container.more();
    assert!(recorder.wait().unwrap().success());
    let (_, report, err) = output(&["trace", "report", path]);
    assert!(report.contains("hold.c:13"), "{report}{err}");
    assert_eq!(allocinfo(&pid).0, 101);
    let (_, before) = allocinfo(&pid);
    assert_eq!(output(&["ctl", "-p", &pid, "mem_profiling=0"]).0, 0);
    container.more();
    assert_eq!(allocinfo(&pid), (101, before + 1));
}

#[test]
fn numbers_of_proc_are_not_those_of_system_calls() {
    let Some((mut container, pid)) = container("in") else {
        return;
    };
    // The reader gets the container's /proc, where the process is 1, and stays in its own pid namespace, where 1 is another.
    let entered = |args: &[&str]| {
        let mut command = Command::new("nsenter");
        command.args([&format!("--mount=/proc/{pid}/ns/mnt"), "--"]);
        command.arg(memledger().get_program()).args(args);
        command
    };
    let show = ["allocinfo", "--json", "-p", "1"];
    let (calls, before) = held(&mut entered(&show));
    assert_eq!(calls, 100);
    let (code, _, err) = text(
        &entered(&["ctl", "-p", "1", "mem_profiling=0"])
            .output()
            .unwrap(),
    );
    assert_eq!(code, 0, "{err}");
    container.more();
    assert_eq!(held(&mut entered(&show)), (100, before + 1));
    let rss = text(&entered(&["rss", "--json", "-p", "1"]).output().unwrap());
    assert_eq!(rss.0, 0, "{rss:?}");
    // The other way round: a reader in a namespace of its own, with the outer /proc.
    let inner = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork"])
            .arg(memledger().get_program())
            .args(args);
        command
    };
    let calls = held(&mut inner(&["allocinfo", "--json", "-p", &pid])).0;
    assert_eq!(calls, 100);
    let done = text(
        &inner(&["run", "--", "sh", "-c", "exit 7"])
            .output()
            .unwrap(),
    );
    assert_eq!(done.0, 7, "{done:?}");
    assert!(
        done.2
            .contains("not measured: /proc is not that of this pid namespace"),
        "{done:?}"
    );
}

#[test]
fn behind_another_root() {
    let Some(lib) = library() else { return };
    if !permitted(&["chroot", "/", "true"]) {
        return;
    }
    let dir = folder("root");
    // Inside of its root the program is /opt/prog, which is nothing outside.
    let inside = dir.join("jail/opt");
    fs::create_dir_all(&inside).unwrap();
    compile(&inside.join("prog"), &["-Wl,--build-id=none"]);
    fs::copy(lib, inside.join("lib.so")).unwrap();
    // Its libraries, without a mount.
    for path in libraries(&inside.join("prog")) {
        let to = dir.join("jail").join(path.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&path, to).unwrap();
    }
    let mut command = Command::new("chroot");
    command
        .arg(dir.join("jail"))
        .arg("/opt/prog")
        .env("LD_PRELOAD", "/opt/lib.so");
    let held = Held::start(&dir, &mut command);
    assert_eq!(allocinfo(&held.child.id().to_string()).0, 100);
}

/// The shared objects that a program and the preload library are linked with.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let out = Command::new("ldd").arg(program).output().unwrap();
    let mut list: Vec<PathBuf> = String::from_utf8_lossy(&out.stdout)
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    list.push(PathBuf::from("/lib/x86_64-linux-gnu/libgcc_s.so.1"));
    list.retain(|path| path.is_file());
    list
}

#[test]
fn files_replaced_while_they_run() {
    let Some(lib) = library() else { return };
    for id in ["-Wl,--build-id=none", "-Wl,--build-id=sha1"] {
        let dir = folder(&format!("gone{}", id.len()));
        let (prog, part) = (dir.join("prog"), dir.join("libpart.so"));
        let shared = ["-DPART=1", "-shared", "-fPIC", id];
        compile(&part, &shared);
        let (run, here) = (
            format!("-Wl,-rpath,{}", dir.display()),
            dir.to_str().unwrap(),
        );
        compile(&prog, &["-DPART=2", id, "-L", here, "-lpart", &run]);
        let held = Held::start(&dir, Command::new(&prog).env("LD_PRELOAD", &lib));
        let pid = held.child.id().to_string();
        assert_eq!(allocinfo(&pid).0, 100);
        // Another library at the same path.
        let other = dir.join("other");
        compile(&other, &[&shared[..], &["-DOTHER"]].concat());
        fs::rename(&other, &part).unwrap();
        if nix::unistd::geteuid().is_root() {
            assert_eq!(allocinfo(&pid).0, 100);
        } else {
            let out = output(&["allocinfo", "--json", "-p", &pid]).1;
            assert!(!out.contains("wrong_here"), "{out}");
        }
        fs::remove_file(&prog).unwrap();
        fs::remove_file(&part).unwrap();
        let (code, out, err) = output(&["allocinfo", "--json", "-p", &pid]);
        assert_eq!(code, 0, "{err}");
        assert!(!out.contains("wrong_here"), "{out}");
    }
}
