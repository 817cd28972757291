//! Plugins that come and go 1,000 times while their memory lives: rows stay, are marked, go on at reload, and do not multiply;
//! one warning each. The scenarios run in processes of their own, for their standard error.

use memledger_inspect::{Helpers, Snapshot};
use std::alloc::Layout;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

#[global_allocator]
static A: memledger::Ledger = memledger::Ledger::new();

const BYTES: usize = 104;
const LAYOUT: Layout = Layout::new::<[u64; BYTES / 8]>();
const ROUNDS: usize = 1000;

extern "C" fn take(bytes: usize) -> *mut u8 {
    assert_eq!(bytes, BYTES);
    // SAFETY: the size is not 0.
    unsafe { std::alloc::alloc(LAYOUT) }
}

fn give_back(p: *mut u8) {
    // SAFETY: from `take`, given up.
    unsafe { std::alloc::dealloc(p, LAYOUT) }
}

struct Plugin(*mut c_void);

impl Plugin {
    fn open(path: &Path) -> Plugin {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a C string; the constructors are alloc-tag's.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        // SAFETY: after a failed `dlopen` there is a message.
        let error = || unsafe { CStr::from_ptr(libc::dlerror()) };
        assert!(!handle.is_null(), "{:?}", error());
        Plugin(handle)
    }

    fn take(&self, function: &CStr) -> *mut u8 {
        type Function = extern "C" fn(extern "C" fn(usize) -> *mut u8, usize) -> *mut u8;
        // SAFETY: an open handle; the plugin's functions have this type.
        let function = unsafe {
            let address = libc::dlsym(self.0, function.as_ptr());
            assert!(!address.is_null());
            std::mem::transmute::<*mut c_void, Function>(address)
        };
        function(take, BYTES)
    }

    fn close(self) {
        // SAFETY: an open handle, given up here.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

fn is_loaded(path: &Path) -> bool {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a C string; loads nothing.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if !handle.is_null() {
        Plugin(handle).close();
    }
    !handle.is_null()
}

/// (function, bytes, calls, loaded) of each tag of the plugin.
fn tags() -> Vec<(String, u64, u64, bool)> {
    let snapshot = Snapshot::read_self().unwrap();
    let ledger = &snapshot.ledgers[0];
    let all = ledger.tags.iter().zip(&ledger.tag_sums);
    let own = all.filter(|(tag, _)| tag.module == "libplugin");
    own.map(|(tag, sum)| (tag.func.clone(), sum.bytes, sum.calls, tag.loaded))
        .collect()
}

fn expect(calls: u64, loaded: bool) {
    let slot = BYTES.next_multiple_of(8) as u64;
    let (mut by_macro, mut by_caller) = (0, 0);
    for (func, bytes, n, is_loaded) in tags() {
        assert_eq!((bytes, is_loaded), (n * slot, loaded), "{func}");
        match func.as_str() {
            "plugin::plugin_take" => by_macro += n,
            "?" => by_caller += n,
            _ => assert_eq!(n, 0, "{func}"),
        }
    }
    assert_eq!((by_macro, by_caller), (calls, calls));
}

fn round(path: &Path, held: &mut Vec<*mut u8>) {
    let plugin = Plugin::open(path);
    held.push(plugin.take(c"plugin_take"));
    held.push(plugin.take(c"plugin_take_by_caller"));
    plugin.close();
    assert!(!is_loaded(path));
}

fn live(path: &Path) {
    let mut held = Vec::new();
    round(path, &mut held);
    expect(1, false);
    let count = Snapshot::read_self().unwrap().ledgers[0].tags.len();
    for i in 1..ROUNDS {
        round(path, &mut held);
        if i % 100 == 0 {
            expect(i as u64 + 1, false);
        }
    }
    assert_eq!(Snapshot::read_self().unwrap().ledgers[0].tags.len(), count);
    let report = memledger::allocinfo_with(&Helpers::default(), Default::default()).unwrap();
    let marked = report
        .rows
        .iter()
        .filter(|r| r.module.as_deref() == Some("libplugin") && !r.loaded && r.calls == 1000);
    assert_eq!(marked.count(), 2);
    let text = report.to_string();
    let lines = text.lines().filter(|l| l.contains("[libplugin] func:"));
    assert!(lines.clone().count() >= 2 && lines.clone().all(|l| l.contains(" unloaded:yes")));
    // Loaded again: the same rows, not marked.
    let plugin = Plugin::open(path);
    expect_loaded(&plugin, &mut held);
    held.drain(..).for_each(give_back);
    expect(0, true);
    plugin.close();
    expect(0, false);
}

/// The tag of a caller is there again when its place is called again.
fn expect_loaded(plugin: &Plugin, held: &mut Vec<*mut u8>) {
    held.push(plugin.take(c"plugin_take_by_caller"));
    held.push(plugin.take(c"plugin_take"));
    expect(ROUNDS as u64 + 1, true);
}

/// Nothing left: nothing said, at `dlclose` and at the end of the process.
fn clean(path: &Path) {
    for _ in 0..3 {
        let mut held = Vec::new();
        let plugin = Plugin::open(path);
        held.push(plugin.take(c"plugin_take"));
        held.drain(..).for_each(give_back);
        plugin.close();
    }
    Plugin::open(path).take(c"plugin_take");
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn scenario() {
    let path = PathBuf::from(std::env::var("PLUGIN").unwrap());
    match std::env::var("SCENARIO").unwrap().as_str() {
        "live" => live(&path),
        "clean" => clean(&path),
        other => panic!("{other}?"),
    }
}

/// Builds the plugin as the test was built.
fn plugin() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let products = exe.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", "memledger", "--example", "plugin"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.arg("--target-dir").arg(products.parent().unwrap());
    if products.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    products.join("examples/libplugin.so")
}

/// What the scenario wrote to standard error about modules.
fn run(scenario: &str) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "scenario",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env("SCENARIO", scenario).env("PLUGIN", plugin());
    let output = command.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{}\n{errors}", output.status);
    let lines = errors.lines().filter(|l| l.starts_with("memledger:"));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_thousand_reloads_with_live_objects() {
    let said = run("live");
    let file = "crates/memledger/tests/plugin/plugin.rs";
    assert_eq!(said.len(), 3, "{said:#?}");
    assert_eq!(
        said[0],
        "memledger: module libplugin is unloaded with live memory: 208 bytes in 2 objects"
    );
    let one = format!("memledger:   104 bytes in 1 object {file}:");
    assert!(said[1..].iter().all(|l| l.starts_with(&one)), "{said:#?}");
    assert!(said.iter().any(|l| l.ends_with("func:plugin::plugin_take")));
    assert!(said.iter().any(|l| l.ends_with("func:?")));
}

#[test]
fn a_plugin_that_leaves_nothing_behind_is_not_mentioned() {
    assert_eq!(run("clean"), Vec::<String>::new());
}
