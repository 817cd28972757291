//! Nanoseconds for a walk of N frames, least of several rounds: one stack again and again, and 64 stacks at random.
//!
//! Run: `cargo run --release -p stackdepot --example walk_bench`.

use stackdepot::{Depot, StackBounds};
use std::hint::black_box;
use std::time::Instant;

static DEPOT: Depot = Depot::new();
const WALKS: u32 = 200_000;

struct State {
    bounds: StackBounds,
    depth: u32,
    sum: u64,
}

/// Enters like an allocator: place of the return address and rbp.
#[unsafe(naked)]
unsafe extern "C" fn enter(state: *mut State) {
    core::arch::naked_asm!("mov rsi, rsp", "mov rdx, rbp", "jmp {walk}", walk = sym walk)
}

unsafe extern "C" fn walk(state: *mut State, sp: usize, fp: usize) {
    // SAFETY: `enter` passes its caller's state and registers.
    let state = unsafe { &mut *state };
    // SAFETY: as above; one thread.
    let walk = unsafe { DEPOT.walk(sp, fp, state.depth, &state.bounds) };
    state.sum = state.sum.wrapping_add(u64::from(walk.raw()));
}

/// A frame at one of two return addresses for each bit.
#[inline(never)]
fn nest(state: &mut State, bits: u32, levels: u32, repeat: u32) {
    if levels == 0 {
        for _ in 0..repeat {
            // SAFETY: the function's type is as declared.
            unsafe { enter(black_box(state)) };
        }
    } else if bits & 1 == 0 {
        even(state, bits >> 1, levels - 1, repeat);
    } else {
        odd(state, bits >> 1, levels - 1, repeat);
    }
    black_box(levels);
}

#[inline(never)]
fn even(state: &mut State, bits: u32, levels: u32, repeat: u32) {
    nest(state, bits, levels, repeat);
    black_box(0);
}

#[inline(never)]
fn odd(state: &mut State, bits: u32, levels: u32, repeat: u32) {
    nest(state, bits, levels, repeat);
    black_box(1);
}

/// Nanoseconds for a walk, calls included.
fn time(state: &mut State, random: bool) -> f64 {
    let begin = Instant::now();
    if random {
        let mut x = 1u32;
        for _ in 0..WALKS / 8 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            nest(state, x >> 26, 6, 8);
        }
    } else {
        nest(state, 0b10_1101, 6, WALKS);
    }
    begin.elapsed().as_secs_f64() * 1e9 / f64::from(WALKS)
}

fn main() {
    DEPOT.init().expect("memory for the depot");
    let mut state = State {
        bounds: StackBounds::ZERO,
        depth: 1,
        sum: 0,
    };
    println!(
        "{:>3} {:>10} {:>22}",
        "N", "one stack", "64 stacks, 8 walks each"
    );
    for depth in [1, 2, 4, 8, 16] {
        state.depth = depth;
        let least = |state: &mut State, random| {
            (0..15)
                .map(|_| time(state, random))
                .fold(f64::MAX, f64::min)
        };
        println!(
            "{depth:>3} {:>7.1} ns {:>19.1} ns",
            least(&mut state, false),
            least(&mut state, true)
        );
    }
    println!("{} nodes, {} bytes", DEPOT.node_count(), DEPOT.meta_bytes());
}
