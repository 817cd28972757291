//! Several object files in one process: an executable, plugins, a runtime that is preloaded, linked in, both, or late.
//! Built from `tests/objects` in each profile and with each linker; the checks themselves are in `examples/app.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const PROFILES: [&str; 4] = ["dev", "release", "thin", "fat"];

struct Builder {
    source: PathBuf,
    linker: &'static str,
    flags: &'static str,
}

impl Builder {
    /// Copies the package, so that its lock file and targets stay out of the source tree.
    fn new(linker: &'static str, flags: &'static str) -> Builder {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.parent().and_then(Path::parent).unwrap();
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("objects-{linker}"));
        for file in files(&here.join("tests/objects")) {
            let to = source.join(file.strip_prefix(here.join("tests/objects")).unwrap());
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            let text = std::fs::read_to_string(&file)
                .unwrap()
                .replace("@ROOT@", root.to_str().unwrap());
            if std::fs::read_to_string(&to).ok().as_ref() != Some(&text) {
                std::fs::write(&to, text).unwrap();
            }
        }
        if let Ok(lock) = std::fs::read(root.join("Cargo.lock")) {
            // The versions that the workspace uses, which are on this machine already.
            let _ = std::fs::write(source.join("Cargo.lock"), lock);
        }
        Builder {
            source,
            linker,
            flags,
        }
    }

    /// Builds the executable with the runtime inside, moves it out of the way, then builds everything without; returns
    /// the directory of the products. The former is called `linked`, or `late` if that runtime is ready late.
    fn build(&self, profile: &str) -> PathBuf {
        let products = self
            .source
            .join("target")
            .join(if profile == "dev" { "debug" } else { profile })
            .join("examples");
        for (features, name) in [("linked", "linked"), ("linked,by_constructor", "late")] {
            self.cargo(profile, &["--features", features, "--example", "app"]);
            std::fs::copy(products.join("app"), products.join(name)).unwrap();
        }
        self.cargo(profile, &["--examples"]);
        products
    }

    fn cargo(&self, profile: &str, what: &[&str]) {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--quiet", "-j2", "--profile", profile])
            .args(what);
        cargo
            .current_dir(&self.source)
            .env("CARGO_TARGET_DIR", self.source.join("target"));
        cargo
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("RUSTFLAGS", self.flags);
        let status = cargo.status().unwrap();
        assert!(status.success(), "build with {} in {profile}", self.linker);
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Runs the executable in a scenario; returns its list of rows, or says why it failed.
fn run(app: &Path, preload: Option<&Path>, scenario: &str, plugins: &Path) -> String {
    let mut command = Command::new(app);
    command.arg(scenario).arg(plugins);
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{app:?} {scenario}: {}\n{errors}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Functions with tags by module, each row checked against the source.
fn functions(rows: &str, source: &Path) -> BTreeMap<String, Vec<String>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows.lines() {
        let fields: Vec<&str> = row.split('\t').collect();
        let [module, file, line, column, func, path] = fields[..] else {
            panic!("{row}")
        };
        let text = std::fs::read_to_string(source.join(file)).unwrap();
        let line = text
            .lines()
            .nth(line.parse::<usize>().unwrap() - 1)
            .unwrap();
        let place = line
            .chars()
            .skip(column.parse::<usize>().unwrap() - 1)
            .collect::<String>();
        let macros = [
            "alloc_hooks!",
            "alloc_tag!",
            "common::tagged!",
            "alloc_tag::alloc_hooks!",
        ];
        assert!(
            macros.iter().any(|name| place.starts_with(name)),
            "{row}: {place}"
        );
        assert!(func.starts_with(path), "{row}");
        modules
            .entry(module.to_string())
            .or_default()
            .push(func.to_string());
    }
    modules.values_mut().for_each(|list| list.sort());
    modules
}

fn expected() -> BTreeMap<String, Vec<String>> {
    let common = [
        "common::Holder<_>::method::{{closure}}",
        "common::dead",
        "common::generic",
        "common::inlined",
        "common::kept",
    ];
    let with = |own: &[&str]| {
        let mut all: Vec<String> = own.iter().chain(&common).map(|s| s.to_string()).collect();
        all.sort();
        all
    };
    let app = ["app::hooks"; 6];
    let rest = [
        "app::hooks::{{closure}}",
        "app::hooks::{{closure}}",
        "app::late",
        "app::late",
        "app::main",
        "app::plugins",
    ];
    BTreeMap::from([
        (String::new(), with(&[&app[..], &rest].concat())),
        ("libplugin_a".into(), with(&["plugin_a::plugin_run"])),
        ("libcopy_of_a".into(), with(&["plugin_a::plugin_run"])),
        (
            "libplugin_b".into(),
            with(&["plugin_b::plugin_run", "plugin_b::inner::never_called"]),
        ),
    ])
}

/// One build at a time.
static BUILDING: Mutex<()> = Mutex::new(());

fn check(builder: &Builder, made_by_lld: bool) {
    let _building = BUILDING.lock().unwrap_or_else(|broken| broken.into_inner());
    for profile in PROFILES {
        let plain = builder.build(profile);
        let app = plain.join("app");
        let bytes = std::fs::read(&app).unwrap();
        assert_eq!(
            bytes.windows(12).any(|w| w == b"Linker: LLD "),
            made_by_lld,
            "not the linker that was asked for"
        );
        let runtime = plain.join("libruntime.so");
        let (linked, late) = (plain.join("linked"), plain.join("late"));
        run(&app, None, "none", &plain);
        run(&app, None, "late", &plain);
        for (app, preload, scenario) in [
            (&app, true, "one"),
            (&linked, false, "one"),
            (&linked, true, "two"),
            (&late, false, "one"),
            (&late, true, "two"),
        ] {
            let rows = run(app, preload.then_some(runtime.as_path()), scenario, &plain);
            let mut found = functions(&rows, &builder.source);
            let all = found.len();
            let of_b = found["libplugin_b"].clone();
            found.retain(|module, list| !(module.starts_with("libmany") && *list == of_b));
            assert_eq!(all - found.len(), 40);
            assert_eq!(found, expected(), "{} {profile} {scenario}", builder.linker);
        }
        println!("{} {profile}: ok", builder.linker);
    }
}

#[test]
fn with_rust_lld() {
    let sysroot = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .unwrap();
    let sysroot = String::from_utf8(sysroot.stdout).unwrap();
    let lld =
        Path::new(sysroot.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld/ld.lld");
    if !lld.exists() {
        eprintln!("skipped: this toolchain has no {}", lld.display());
        return;
    }
    check(&Builder::new("rust-lld", ""), true);
}

#[test]
fn with_gnu_ld() {
    if Command::new("ld.bfd").arg("--version").output().is_err() {
        eprintln!("skipped: ld.bfd (package binutils) is not installed");
        return;
    }
    check(
        &Builder::new("gnu-ld", "-C linker-features=-lld -C link-arg=-fuse-ld=bfd"),
        false,
    );
}
