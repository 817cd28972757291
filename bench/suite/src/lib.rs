//! What the workloads share: the global allocator that this build is about, blocks of raw memory, random numbers.
//!
//! Each allocator is a build of its own (a cargo feature), so that nothing is chosen at run time on the path that is measured.

pub mod ast;
pub mod block;
pub mod micro;
pub mod programs;
pub mod threads;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(feature = "snmalloc")]
#[global_allocator]
static ALLOCATOR: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

#[cfg(feature = "dhat")]
#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

#[cfg(feature = "mod-alloc")]
#[global_allocator]
static ALLOCATOR: mod_alloc::ModAlloc = mod_alloc::ModAlloc::new();

#[cfg(feature = "ledger")]
#[global_allocator]
static ALLOCATOR: memledger::Ledger = memledger::Ledger::new();

/// The expression, charged to a tag of this line in the build with tags, and as it is in all others.
#[cfg(feature = "tags")]
#[macro_export]
macro_rules! hooked {
    ($e:expr) => {
        memledger::alloc_hooks!($e)
    };
}

/// The expression, charged to a tag of this line in the build with tags, and as it is in all others.
#[cfg(not(feature = "tags"))]
#[macro_export]
macro_rules! hooked {
    ($e:expr) => {
        $e
    };
}

/// Keep it for the length of `main`: a profiler that has to be started runs until then. It writes to the current directory.
#[must_use]
pub fn profiler() -> impl Sized {
    #[cfg(feature = "dhat")]
    return dhat::Profiler::new_heap();
    #[cfg(not(feature = "dhat"))]
    ()
}

/// Xorshift: the same numbers in each run and under each allocator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`, which is not 0.
    #[inline]
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// Resident bytes of this process.
///
/// # Panics
/// Without /proc.
pub fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("statm has a second number");
    pages * rustix::param::page_size() as u64
}

/// User and system time of this process, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_spread_and_repeat() {
        let (mut a, mut b) = (Random::new(3), Random::new(3));
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            let n = a.below(10);
            assert_eq!(n, b.below(10));
            seen[n] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }

    #[test]
    fn a_touched_block_is_resident() {
        let before = resident();
        let mut v = vec![0_u8; 32 << 20];
        v.iter_mut().step_by(4096).for_each(|b| *b = 1);
        std::hint::black_box(&v);
        assert!(resident() >= before + (30 << 20));
    }
}
