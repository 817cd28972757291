//! The executable. First argument: the scenario; then the directory of the plugins. Ends by listing all rows.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;

use alloc_tag::{SlotState, alloc_hooks, alloc_hooks_tag, alloc_tag, current, slot_state};
use common::fake::Seen;
use memledger_abi::{FIRST_TAG, TAG_LOADED, TagRow};

#[cfg(feature = "linked")]
common::fake_note!(common::fake);

type Run = extern "C" fn(extern "C" fn() -> u32) -> u32;
type See = extern "C" fn() -> Seen;

struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Library {
        let name = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a C string; the constructors are of this package.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        // SAFETY: after a failed `dlopen` there is a message.
        let error = || unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) }.to_string_lossy();
        assert!(!handle.is_null(), "{}", error());
        Library(handle)
    }

    fn symbol<F: Copy>(&self, name: &str) -> Option<F> {
        let name = CString::new(name).unwrap();
        // SAFETY: a C string and an open handle.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr() as *const c_char) };
        // SAFETY: the callers name the type that the symbol has in this package.
        (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
    }

    fn run(&self) -> u32 {
        self.symbol::<Run>("plugin_run").unwrap()(look)
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
        // SAFETY: an open handle.
        unsafe { libc::dlclose(handle) };
    }
    !handle.is_null()
}

/// What the runtimes of the process see.
fn all_seen() -> Vec<Seen> {
    let mut all = Vec::new();
    #[cfg(feature = "linked")]
    all.push(common::fake::seen());
    if let Some(see) = Library(libc::RTLD_DEFAULT).symbol::<See>("fake_seen") {
        all.push(see());
    }
    all
}

/// The current tag as the runtimes see it: all the same.
extern "C" fn look() -> u32 {
    let all = all_seen();
    assert!(all.iter().all(|seen| seen.current == all[0].current), "{all:?}");
    all[0].current
}

fn row(index: u32) -> &'static TagRow {
    let seen = all_seen()[0];
    assert!((FIRST_TAG..FIRST_TAG + seen.count).contains(&index), "{index}");
    // SAFETY: the table has `count` rows and stays for ever.
    unsafe { &*(seen.tags as *const TagRow).add((index - FIRST_TAG) as usize) }
}

fn text(start: u64, len: u32) -> &'static str {
    // SAFETY: address and length from a row; strings of rows stay for ever.
    std::str::from_utf8(unsafe { std::slice::from_raw_parts(start as *const u8, len as usize) }).unwrap()
}

fn module(index: u32) -> &'static str {
    text(row(index).module, row(index).module_len)
}

fn hooks() {
    assert_eq!(look(), 0);
    let (outer, inner, again) = alloc_hooks!((look(), alloc_hooks!(look()), look()));
    assert!(outer != 0 && inner != 0 && outer != inner && outer == again);
    assert_eq!((row(outer).line, module(outer)), (line!() - 2, ""));
    assert_eq!(text(row(outer).func, row(outer).func_len), "app::hooks");
    assert_eq!((look(), current()), (0, 0));

    // Early exit.
    let early = |text: &str| -> Result<u32, std::num::ParseIntError> {
        alloc_hooks!({
            let n: u32 = text.parse()?;
            assert_ne!(look(), 0);
            Ok(n)
        })
    };
    assert!(early("1").is_ok() && look() == 0);
    assert!(early("x").is_err() && look() == 0);
    let mut turns = 0;
    while turns < 3 {
        turns += 1;
        alloc_hooks!(if turns == 2 { break });
    }
    assert_eq!((turns, look()), (2, 0));

    // Panic, under an outer tag.
    std::panic::set_hook(Box::new(|_| ()));
    let tag = alloc_tag!();
    alloc_hooks_tag!(tag, {
        let caught = std::panic::catch_unwind(|| alloc_hooks!(if look() != 0 { panic!("{}", look()) }));
        assert!(caught.is_err());
        assert_eq!(look(), tag.index());
    });
    let _ = std::panic::take_hook();
    assert_eq!(look(), 0);

    // A tag that nobody registered leaves the outer one.
    let stray = alloc_tag::CodeTag::new("f", "m", || "", 1, 1);
    alloc_hooks_tag!(tag, assert_eq!(alloc_hooks_tag!(&stray, look()), tag.index()));

    // One tag for all instances; threads have their own slot.
    assert_eq!(common::generic(1_u8), common::generic("x"));
    assert_eq!(common::Holder(1).method(), common::Holder("x").method());
    assert_ne!(common::inlined(), common::tagged!(current()));
    alloc_hooks!({
        let mine = look();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(look(), 0);
                assert_eq!(common::kept(&|| assert_ne!(look(), 0)), common::kept(&|| ()));
                assert_eq!(alloc_tag::set_current(mine), 0);
                assert_eq!((look(), alloc_tag::set_current(0)), (mine, mine));
            });
        });
        assert_eq!(look(), mine);
    });
}

fn plugins(dir: &Path) {
    let paths = ["libplugin_a.so", "libplugin_b.so", "libplugin_none.so"].map(|name| dir.join(name));
    let first = paths.each_ref().map(|path| Library::open(path));
    let (a, b) = (first[0].run(), first[1].run());
    assert_eq!((module(a), module(b), first[2].run()), ("libplugin_a", "libplugin_b", 0));
    alloc_hooks!({
        let mine = look();
        assert_eq!((first[0].run(), first[2].run(), look()), (a, mine, mine));
    });
    // The same file under another name, at the same time: rows of its own.
    let copy = dir.join("libcopy_of_a.so.1.2");
    std::fs::copy(&paths[0], &copy).unwrap();
    let second = Library::open(&copy);
    let c = second.run();
    assert_eq!((module(c), first[0].run()), ("libcopy_of_a", a));
    second.close();
    // Many at once: a plugin takes no static TLS.
    let many: Vec<_> = (0..40).map(|i| dir.join(format!("libmany{i}.so"))).collect();
    many.iter().for_each(|path| assert_ne!(std::fs::copy(&paths[1], path).unwrap(), 0));
    let many: Vec<_> = many.iter().map(|path| Library::open(path)).collect();
    assert!(many.iter().enumerate().all(|(i, library)| module(library.run()) == format!("libmany{i}")));
    many.into_iter().for_each(Library::close);
    first.into_iter().for_each(Library::close);

    let count = all_seen()[0].count;
    for _ in 0..1000 {
        assert!([a, b, c].iter().all(|&index| row(index).flags & TAG_LOADED == 0));
        let both = [&paths[1], &paths[0]].map(|path| Library::open(path));
        assert_eq!((both[0].run(), both[1].run()), (b, a));
        assert!(row(a).flags & row(b).flags & TAG_LOADED != 0 && row(c).flags & TAG_LOADED == 0);
        both.into_iter().for_each(Library::close);
        assert!(!is_loaded(&paths[0]) && !is_loaded(&paths[1]));
    }
    assert_eq!(all_seen()[0].count, count);
    assert_eq!((module(a), text(row(a).func, row(a).func_len)), ("libplugin_a", "plugin_a::plugin_run"));
}

/// A runtime that comes late: noticed, and cured by registering again.
fn late(dir: &Path) {
    assert_eq!(slot_state(), SlotState::NoRuntime);
    let library = Library::open(&dir.join("libruntime.so"));
    let see: See = library.symbol("fake_seen").unwrap();
    assert_eq!(slot_state(), SlotState::Split);
    alloc_hooks!(assert_eq!((see().current, current()), (0, 0)));
    assert!(alloc_tag::register_self());
    assert_eq!(slot_state(), SlotState::Shared);
    alloc_hooks!(assert!(see().current != 0 && see().current == current()));
    assert!(!alloc_tag::runtime::start_local());
}

fn list() {
    for index in FIRST_TAG..FIRST_TAG + all_seen()[0].count {
        let row = row(index);
        let (file, func) = (text(row.file, row.file_len), text(row.func, row.func_len));
        println!("{}\t{file}\t{}\t{}\t{func}\t{}", module(index), row.line, row.column, text(row.path, row.path_len));
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = Path::new(&args[2]);
    match args[1].as_str() {
        "none" => {
            assert_eq!(slot_state(), SlotState::NoRuntime);
            assert_eq!(alloc_hooks!(current()), 0);
            let plugin = Library::open(&dir.join("libplugin_none.so"));
            assert_eq!(plugin.run(), 0);
            return;
        }
        "late" => return late(dir),
        "one" => assert_eq!(all_seen().len(), 1),
        "two" => {
            // The one in the executable comes first, unless it was not ready when the other began.
            let all = all_seen();
            let first = usize::from(cfg!(feature = "by_constructor"));
            assert_eq!(all.len(), 2);
            assert!(all[first].primary && !all[1 - first].primary && all[0].tags == all[1].tags, "{all:?}");
        }
        other => panic!("scenario {other}?"),
    }
    assert_eq!(slot_state(), SlotState::Shared);
    hooks();
    plugins(dir);
    let all = all_seen();
    assert!(all.iter().all(|seen| seen.count == all[0].count), "{all:?}");
    list();
}
