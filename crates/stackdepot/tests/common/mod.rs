//! What the tests share: a naked entry like an allocator's, a second unwinder, and C code built on the spot.
#![allow(dead_code, missing_docs, unreachable_pub)]

use memledger_abi::{Node, node_ra};
use stackdepot::{Depot, Paths, Platform, StackBounds, Walk};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;

pub type Callback = unsafe extern "C" fn(*mut c_void);

thread_local! {
    pub static BOUNDS: RefCell<StackBounds> = const { RefCell::new(StackBounds::ZERO) };
}

/// One or more walks to do, and what came of them.
pub struct Job<'a> {
    pub walk: &'a dyn Fn(usize, usize, u32, &mut StackBounds) -> Walk,
    pub depth: u32,
    /// Compare with the other unwinder?
    pub compare: bool,
    pub walks: Vec<Walk>,
    pub references: Vec<Vec<u64>>,
}

/// Walks `depot`, and sees to it that walks which are kept are the same: when they are kept, when they are found, and when
/// they were kept by an earlier call.
pub fn walker<P: Platform>(
    depot: &Depot<P>,
) -> impl Fn(usize, usize, u32, &mut StackBounds) -> Walk {
    move |sp, fp, depth, bounds| {
        // SAFETY: called by `entered` with the place of its return address and its thread's bounds.
        let walk = unsafe { depot.walk(sp, fp, depth, bounds) };
        if let Some(paths) = paths(std::ptr::from_ref(depot).addr(), depth) {
            for _ in 0..2 {
                // SAFETY: as above; the table is this thread's, and of this depot.
                let known = unsafe { depot.walk_known(sp, fp, depth, bounds, paths) };
                assert_eq!(known, walk);
            }
        }
        walk
    }
}

/// This thread's table of walks for a depot.
fn paths(depot: usize, depth: u32) -> Option<&'static Paths> {
    thread_local! {
        static ALL: RefCell<HashMap<(usize, u32), &'static Paths>> = RefCell::default();
    }
    let layout = Layout::from_size_align(Paths::bytes(depth)?, 64).unwrap();
    ALL.with_borrow_mut(|all| {
        let paths = all.entry((depot, depth)).or_insert_with(|| {
            // SAFETY: zeroed memory of the right size and alignment, never freed.
            unsafe { Paths::begin(NonNull::new(alloc_zeroed(layout)).unwrap(), depth).as_ref() }
        });
        Some(*paths)
    })
}

impl<'a> Job<'a> {
    pub fn new(
        walk: &'a dyn Fn(usize, usize, u32, &mut StackBounds) -> Walk,
        depth: u32,
        compare: bool,
    ) -> Self {
        Job {
            walk,
            depth,
            compare,
            walks: Vec::new(),
            references: Vec::new(),
        }
    }
    pub fn arg(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }
}

/// The callback that C code calls with a `Job`.
#[unsafe(naked)]
pub unsafe extern "C" fn capture(job: *mut c_void) {
    core::arch::naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {entered}", entered = sym entered)
}

unsafe extern "C" fn entered(job: *mut c_void, sp: usize, fp: usize) {
    // SAFETY: the tests pass a `Job` that nobody else uses during the call.
    let job = unsafe { &mut *job.cast::<Job>() };
    // SAFETY: errno is a thread's own.
    unsafe { *libc::__errno_location() = 12345 };
    let walk = BOUNDS.with_borrow_mut(|bounds| (job.walk)(sp, fp, job.depth, bounds));
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 12345);
    job.walks.push(walk);
    if job.compare {
        // SAFETY: the word that holds the return address of `capture`.
        let ra = unsafe { *(sp as *const u64) };
        job.references.push(reference(ra, job.depth as usize));
    }
}

/// Return addresses from `first` on, by the unwinder of the C runtime.
pub fn reference(first: u64, depth: usize) -> Vec<u64> {
    let mut all = Vec::new();
    backtrace::trace(|frame| {
        all.push(frame.ip() as u64);
        true
    });
    let begin = all
        .iter()
        .position(|&ra| ra == first)
        .expect("the frame is on the stack");
    all[begin..]
        .iter()
        .take(depth)
        .copied()
        .take_while(|&ra| ra != 0)
        .collect()
}

pub fn nodes<P: Platform>(depot: &Depot<P>) -> &[Node] {
    // SAFETY: the depot says so; racing changes are not looked at by these tests.
    unsafe {
        std::slice::from_raw_parts(
            depot.nodes_address() as *const Node,
            depot.node_count() as usize,
        )
    }
}

/// Return addresses of a node, innermost first.
pub fn stack<P: Platform>(depot: &Depot<P>, walk: Walk) -> Vec<u64> {
    let nodes = nodes(depot);
    let mut id = walk.node().expect("a node") as usize;
    let mut out = Vec::new();
    while id != 0 {
        out.push(node_ra(nodes[id].key));
        id = nodes[id].parent as usize;
    }
    out.reverse();
    out
}

/// Each walk of the job, in its order.
pub fn check<P: Platform>(depot: &Depot<P>, job: &Job) {
    assert!(!job.walks.is_empty());
    assert_eq!(job.walks.len(), job.references.len());
    for (walk, want) in job.walks.iter().zip(&job.references) {
        assert_eq!(hex(&stack(depot, *walk)), hex(want), "depth {}", job.depth);
    }
}

pub fn hex(list: &[u64]) -> Vec<String> {
    list.iter().map(|ra| format!("{ra:#x}")).collect()
}

/// Builds a C file to a shared library named `name`.
pub fn build(source: &str, name: &str, options: &[&str]) -> PathBuf {
    let out =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(source);
    let status = Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&out)
        .arg(source)
        .args(options)
        .status();
    assert!(status.expect("gcc runs").success());
    out
}

/// A loaded library.
pub struct Library(*mut c_void);

impl Library {
    pub fn open(path: &Path) -> Self {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a library of the tests.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Self(handle)
    }
    /// Function `name`, of type `F`.
    pub fn get<F: Copy>(&self, name: &str) -> F {
        assert_eq!(size_of::<F>(), size_of::<usize>());
        let name = CString::new(name).unwrap();
        // SAFETY: a live handle and a C string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null());
        // SAFETY: the caller says what it is.
        unsafe { std::mem::transmute_copy(&symbol) }
    }
    pub fn close(self) {
        // SAFETY: a live handle.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// The option sets that frames are tried with.
pub const VARIANTS: [(&str, &[&str]); 5] = [
    ("omit", &["-O2", "-fomit-frame-pointer", "-mavx2"]),
    ("keep", &["-O2", "-fno-omit-frame-pointer", "-mavx2"]),
    ("small", &["-Os", "-fomit-frame-pointer"]),
    ("plain", &["-O0"]),
    (
        "push",
        &[
            "-O2",
            "-fomit-frame-pointer",
            "-mno-accumulate-outgoing-args",
            "-mpush-args",
            "-mavx2",
        ],
    ),
];

pub fn depot() -> &'static Depot {
    let depot = Box::leak(Box::new(Depot::new()));
    depot.init().unwrap();
    depot
}
