//! What is told of a command before it runs.

mod common;

use common::{compile, scratch};
use memledger_inspect::preflight;
use memledger_inspect::preflight::Problem;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn problems(command: &Path) -> Vec<Problem> {
    preflight(command.as_os_str(), &[]).problems
}

fn write(name: &str, text: &[u8], mode: u32) -> PathBuf {
    let path = scratch().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn programs() {
    let dynamic = compile("names.cc", &[]);
    assert_eq!(problems(&dynamic), []);
    assert_eq!(
        problems(&compile("names.cc", &["-static"])),
        [Problem::Static]
    );
    assert_eq!(
        problems(&compile("names.cc", &["-static-pie"])),
        [Problem::Static]
    );
    let own = write("own.c", b"void *malloc(unsigned long n) { return (void *)(n * 0); }\nint main(void) { return 0; }\n", 0o644);
    let program = own.with_file_name("own");
    common::run(
        "cc",
        &[
            "-rdynamic",
            "-fno-builtin",
            "-o",
            program.to_str().unwrap(),
            own.to_str().unwrap(),
        ],
    );
    assert_eq!(problems(&program), [Problem::OwnAllocator("malloc".into())]);
    // gcc's address sanitizer is a library; what its programs need of it is a symbol.
    let asan = write(
        "asan.c",
        b"void __asan_init(void); int main(void) { __asan_init(); return 0; }\n",
        0o644,
    );
    let (runtime, program) = (
        asan.with_file_name("runtime.so"),
        asan.with_file_name("asan"),
    );
    let source = write("runtime.c", b"void __asan_init(void) {}\n", 0o644);
    let [runtime, source, text] = [&runtime, &source, &asan].map(|p| p.to_str().unwrap());
    common::run("cc", &["-shared", "-fPIC", "-o", runtime, source]);
    common::run("cc", &["-o", program.to_str().unwrap(), text, runtime]);
    assert_eq!(
        problems(&program),
        [Problem::OwnAllocator("__asan_init".into())]
    );
    let mut bytes = std::fs::read(&dynamic).unwrap();
    bytes[4] = 1;
    assert!(matches!(
        problems(&write("x32", &bytes, 0o755))[..],
        [Problem::WrongArchitecture(_)]
    ));
    bytes[4] = 2;
    bytes[18] = 183; // EM_AARCH64
    assert!(matches!(
        problems(&write("arm", &bytes, 0o755))[..],
        [Problem::WrongArchitecture(_)]
    ));
    assert!(matches!(
        problems(&write("cut", &bytes[..100], 0o755))[..],
        [Problem::Unreadable(_) | Problem::WrongArchitecture(_)]
    ));
}

#[test]
fn other_files() {
    assert_eq!(problems(Path::new("/nowhere/at/all")), [Problem::NotFound]);
    assert_eq!(
        problems(&write("plain", b"hello", 0o644)),
        [Problem::NotExecutable]
    );
    assert_eq!(problems(&write("text", b"hello", 0o755)), [Problem::NotElf]);
    assert_eq!(problems(&write("empty", b"", 0o755)), [Problem::NotElf]);
    assert_eq!(problems(&scratch()), [Problem::NotExecutable]);
    assert_eq!(preflight(OsStr::new(""), &[]).problems, [Problem::NotFound]);
}

#[test]
fn scripts_and_path() {
    let program = compile("names.cc", &[]);
    let dir = program.parent().unwrap().as_os_str().to_owned();
    let env: Vec<(OsString, OsString)> =
        vec![("PATH".into(), [OsStr::new("/nowhere:"), &dir].concat_os())];
    let found = preflight(OsStr::new("prog"), &env);
    assert_eq!((found.path, found.problems), (program.clone(), vec![]));
    assert_eq!(
        preflight(OsStr::new("progg"), &env).problems,
        [Problem::NotFound]
    );
    let script = write(
        "s",
        format!("#! {} -x y\n", program.display()).as_bytes(),
        0o755,
    );
    let report = preflight(script.as_os_str(), &env);
    assert_eq!(
        (report.measurable(), &report.path, &report.elf),
        (true, &script, &program)
    );
    let by_env = write("e", b"#!/usr/bin/env -S X=1 prog -u\nrest", 0o755);
    assert_eq!(preflight(by_env.as_os_str(), &env).elf, program);
    let nested = write("n", format!("#!{}", script.display()).as_bytes(), 0o755);
    assert_eq!(
        preflight(nested.as_os_str(), &env).interpreters,
        [script, program]
    );
    let itself = write("loop", b"", 0o755);
    std::fs::write(&itself, format!("#!{}\n", itself.display())).unwrap();
    assert_eq!(problems(&itself), [Problem::NotElf]);
    assert_eq!(
        problems(&write("no", b"#!/nowhere/sh\n", 0o755)),
        [Problem::NotFound]
    );
}

#[test]
fn secure_mode() {
    let program = compile("names.cc", &[]);
    let set =
        |mode| std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o4755);
    // Setuid to the user who runs it has no effect.
    assert_eq!(problems(&program), []);
    if std::os::unix::fs::chown(&program, Some(65534), Some(65534)).is_ok() {
        set(0o4755);
        assert_eq!(problems(&program), [Problem::Secure("setuid")]);
        set(0o2755);
        assert_eq!(problems(&program), [Problem::Secure("setgid")]);
        set(0o755);
        assert_eq!(problems(&program), []);
    }
}

trait Concat {
    fn concat_os(&self) -> OsString;
}

impl Concat for [&OsStr] {
    fn concat_os(&self) -> OsString {
        self.iter().fold(OsString::new(), |mut all, part| {
            all.push(part);
            all
        })
    }
}
