//! Stacks that are not the thread's own, or end early; code without unwind tables; how much stack a walk needs.
#![allow(clippy::undocumented_unsafe_blocks)]

mod common;
use common::*;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

const PAGE: usize = 4096;
type Recurse = unsafe extern "C" fn(Callback, *mut c_void, i32);
type Shape = unsafe extern "C" fn(Callback, *mut c_void);

fn map(bytes: usize, protection: i32) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let memory = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory.cast()
}

/// `bytes` of stack between two pages that cannot be accessed.
fn guarded_stack(bytes: usize) -> *mut u8 {
    let all = map(bytes + 2 * PAGE, libc::PROT_NONE);
    let stack = unsafe { all.add(PAGE) };
    assert_eq!(
        unsafe { libc::mprotect(stack.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) },
        0
    );
    stack
}

thread_local! {
    static WORK: Cell<Option<(Recurse, *mut c_void, i32)>> = const { Cell::new(None) };
}

extern "C" fn do_work() {
    let (recurse, arg, depth) = WORK.get().expect("work is set");
    unsafe { recurse(capture, arg, depth) };
}

/// Runs `recurse` on the stack `[stack, stack + bytes)`.
fn on_stack(stack: *mut u8, bytes: usize, recurse: Recurse, arg: *mut c_void, depth: i32) {
    WORK.set(Some((recurse, arg, depth)));
    unsafe {
        let mut home: libc::ucontext_t = std::mem::zeroed();
        let mut there: libc::ucontext_t = std::mem::zeroed();
        assert_eq!(libc::getcontext(&mut there), 0);
        there.uc_stack.ss_sp = stack.cast();
        there.uc_stack.ss_size = bytes;
        there.uc_link = &mut home;
        libc::makecontext(&mut there, do_work, 0);
        assert_eq!(libc::swapcontext(&mut home, &there), 0);
    }
}

fn recurse_of(name: &str, options: &[&str]) -> Recurse {
    let path = build("frames.c", name, options);
    let library = std::mem::ManuallyDrop::new(Library::open(&path));
    library.get("recurse")
}

#[test]
fn green_threads_are_walked_within_their_page() {
    for (name, options) in VARIANTS {
        let recurse = recurse_of(&format!("frames-green-{name}"), options);
        let depot = depot();
        let walk = walker(depot);
        let before = BOUNDS.with_borrow(|b| b.known());
        for round in 0..50 {
            let stack = guarded_stack(16 * PAGE);
            for depth in [0, 1, 2, 3, 20, 60] {
                let mut job = Job::new(&walk, 64, true);
                on_stack(stack, 16 * PAGE, recurse, job.arg(), depth);
                let got = stack_of(depot, &job);
                let want = &job.references[0];
                assert!(
                    !got.is_empty() && got.len() <= want.len(),
                    "{name} {round} {depth}"
                );
                assert_eq!(got[..], want[..got.len()], "{name} {round} {depth}");
            }
            // The memory goes away; nothing may remember it as stack.
            assert_eq!(
                unsafe { libc::munmap(stack.sub(PAGE).cast(), 18 * PAGE) },
                0
            );
        }
        let known = BOUNDS.with_borrow(|b| b.known());
        assert_eq!(before.1.max(known.1), known.1);
        // Back on its own stack, the thread sees all of it.
        let mut job = Job::new(&walk, 64, true);
        unsafe { recurse(capture, job.arg(), 30) };
        check(depot, &job);
    }
}

fn stack_of(depot: &stackdepot::Depot, job: &Job) -> Vec<u64> {
    stack(depot, job.walks[0])
}

static mut SIGNAL_WORK: (usize, usize) = (0, 0);

extern "C" fn on_signal(_: i32) {
    let (recurse, arg) = unsafe { SIGNAL_WORK };
    let recurse: Recurse = unsafe { std::mem::transmute(recurse) };
    unsafe { recurse(capture, arg as *mut c_void, 3) };
}

#[test]
fn a_signal_handler_on_its_own_stack() {
    let recurse = recurse_of("frames-signal", &["-O2", "-fomit-frame-pointer"]);
    let depot = depot();
    let walk = walker(depot);
    let bytes = 64 * PAGE;
    let memory = guarded_stack(bytes);
    let alternate = libc::stack_t {
        ss_sp: memory.cast(),
        ss_flags: 0,
        ss_size: bytes,
    };
    let mut job = Job::new(&walk, 32, false);
    unsafe {
        assert_eq!(libc::sigaltstack(&alternate, null_mut()), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, null_mut()), 0);
        SIGNAL_WORK = (recurse as usize, job.arg() as usize);
        for _ in 0..20 {
            assert_eq!(libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1), 0);
        }
    }
    assert_eq!(job.walks.len(), 20);
    let frames = stack_of(depot, &job);
    // Four frames of `recurse`, the handler, and the trampoline, where it ends.
    assert!((4..=6).contains(&frames.len()), "{frames:x?}");
    let (lo, hi) = BOUNDS.with_borrow(|b| b.known());
    let place = memory.addr();
    assert!(!(lo..hi).contains(&place));
    let mut own = Job::new(&walk, 32, true);
    unsafe { recurse(capture, own.arg(), 5) };
    check(depot, &own);
}

extern "C" fn small_thread(arg: *mut c_void) -> *mut c_void {
    let recurse: Recurse = unsafe { std::mem::transmute(arg) };
    let depot = depot();
    let walk = walker(depot);
    let mut job = Job::new(&walk, 64, false);
    unsafe { recurse(capture, job.arg(), 20) };
    let frames = stack(depot, job.walks[0]);
    // recurse x 21, this function, start_thread, clone3.
    Box::into_raw(Box::new(frames.len())).cast()
}

#[test]
fn threads_with_the_smallest_stack() {
    let recurse = recurse_of("frames-small", &["-O2", "-fomit-frame-pointer"]);
    for _ in 0..20 {
        unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            libc::pthread_attr_init(&mut attributes);
            assert_eq!(
                libc::pthread_attr_setstacksize(&mut attributes, 64 << 10),
                0
            );
            let mut thread = std::mem::zeroed();
            let arg = recurse as *mut c_void;
            assert_eq!(
                libc::pthread_create(&mut thread, &attributes, small_thread, arg),
                0
            );
            let mut result = null_mut();
            assert_eq!(libc::pthread_join(thread, &mut result), 0);
            let frames = *Box::from_raw(result.cast::<usize>());
            assert!((23..=26).contains(&frames), "{frames}");
        }
    }
}

/// Copies machine code to an executable page.
fn jit(code: &[u8]) -> Shape {
    let page = map(PAGE, libc::PROT_READ | libc::PROT_WRITE);
    unsafe {
        page.copy_from_nonoverlapping(code.as_ptr(), code.len());
        assert_eq!(
            libc::mprotect(page.cast(), PAGE, libc::PROT_READ | libc::PROT_EXEC),
            0
        );
        std::mem::transmute(page)
    }
}

#[test]
fn generated_code_is_walked_by_frame_pointers() {
    // push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret
    let framed = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3,
    ];
    let f = jit(&framed);
    let depot = depot();
    let walk = walker(depot);
    let mut job = Job::new(&walk, 4, false);
    unsafe { f(capture, job.arg()) };
    let frames = stack(depot, job.walks[0]);
    assert_eq!(frames[0], f as usize as u64 + 12);
    assert!(frames.len() >= 2, "{frames:x?}");
    // Its caller is this test.
    let here = generated_code_is_walked_by_frame_pointers as fn() as usize as u64;
    assert!(frames[1] > here && frames[1] < here + 4096, "{frames:x?}");
}

#[test]
fn a_wrong_guess_makes_no_node() {
    // rbp points at a word of data that looks like an address, as a frame would have it:
    // push rbp; sub rsp, 0x20; mov rdx, 0x123456789abc; mov [rsp+0x10], rdx; lea rbp, [rsp+0x8];
    // mov rax, rdi; mov rdi, rsi; call rax; add rsp, 0x20; pop rbp; ret
    let code: Vec<u8> = [
        &[0x55, 0x48, 0x83, 0xec, 0x20, 0x48, 0xba][..],
        &0x1234_5678_9abc_u64.to_le_bytes(),
        &[
            0x48, 0x89, 0x54, 0x24, 0x10, 0x48, 0x8d, 0x6c, 0x24, 0x08, 0x48, 0x89, 0xf8, 0x48,
            0x89, 0xf7,
        ],
        &[0xff, 0xd0, 0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3],
    ]
    .concat();
    let f = jit(&code);
    let depot = depot();
    let walk = walker(depot);
    let mut job = Job::new(&walk, 8, false);
    unsafe { f(capture, job.arg()) };
    let frames = stack(depot, job.walks[0]);
    assert_eq!(frames.len(), 1, "{frames:x?}");
    assert_eq!(depot.node_count(), 2);
}

thread_local! {
    static LOWEST: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// The miss path must fit on stacks that a program made small: a fresh depot, on a painted stack.
#[test]
fn a_walk_needs_little_stack() {
    const PAINT: u8 = 0xa5;
    let recurse = recurse_of("frames-paint", &["-O2", "-fomit-frame-pointer"]);
    let depot = depot();
    let probe = |sp: usize, fp: usize, depth: u32, bounds: &mut stackdepot::StackBounds| {
        let marker = 0u8;
        LOWEST.set((&raw const marker as usize, sp));
        unsafe { depot.walk(sp, fp, depth, bounds) }
    };
    let bytes = 64 << 10;
    let memory = guarded_stack(bytes);
    unsafe { memory.write_bytes(PAINT, bytes) };
    let mut job = Job::new(&probe, 12, false);
    on_stack(memory, bytes, recurse, job.arg(), 4);
    assert!(stack(depot, job.walks[0]).len() > 4);
    let painted = unsafe { std::slice::from_raw_parts(memory, bytes) };
    let lowest = memory.addr() + painted.iter().position(|&b| b != PAINT).unwrap();
    let used = LOWEST.get().0 - lowest;
    println!("{used} bytes of stack on the miss path");
    let limit = if cfg!(debug_assertions) {
        24 << 10
    } else {
        6 << 10
    };
    assert!(used < limit, "{used}");
}
