//! Public pairs across crates: a library and a program, built from `tests/pair`.

use std::path::Path;
use std::process::Command;

#[test]
fn another_crate_uses_the_macros() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().and_then(Path::parent).unwrap();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pair");
    for file in ["Cargo.toml", "src/lib.rs", "src/main.rs"] {
        let to = source.join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        let text = std::fs::read_to_string(here.join("tests/pair").join(file)).unwrap();
        std::fs::write(to, text.replace("@ROOT@", root.to_str().unwrap())).unwrap();
    }
    // The versions that the workspace uses, which are on this machine already.
    if let Ok(lock) = std::fs::read(root.join("Cargo.lock")) {
        std::fs::write(source.join("Cargo.lock"), lock).unwrap();
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "-j2"]).current_dir(&source);
    cargo.env("CARGO_TARGET_DIR", source.join("target"));
    let output = cargo.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}
