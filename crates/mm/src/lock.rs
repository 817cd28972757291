//! A small mutex over [`Platform::wait`]: 0 free, 1 held, 2 held and somebody sleeps (Drepper, "Futexes are tricky").

use crate::platform::Platform;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};

/// A lock without data: what it guards says so. Const-constructible, survives `fork` through
/// [`Lock::acquire`]/[`Lock::release_after_fork`].
pub struct Lock<P> {
    word: AtomicU32,
    platform: PhantomData<fn() -> P>,
}

impl<P: Platform> Lock<P> {
    /// A free lock.
    pub const fn new() -> Self {
        Lock {
            word: AtomicU32::new(0),
            platform: PhantomData,
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        self.word
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock; spins a little, then sleeps.
    #[inline]
    pub fn acquire(&self) {
        if !self.try_acquire() {
            self.acquire_slow();
        }
    }

    #[cold]
    fn acquire_slow(&self) {
        for _ in 0..100 {
            if self.word.load(Ordering::Relaxed) == 0 && self.try_acquire() {
                return;
            }
            core::hint::spin_loop();
        }
        while self.word.swap(2, Ordering::Acquire) != 0 {
            P::wait(&self.word, 2);
        }
    }

    /// Gives the lock back. Only its holder may.
    #[inline]
    pub fn release(&self) {
        if self.word.swap(0, Ordering::Release) == 2 {
            P::wake(&self.word);
        }
    }

    /// Makes the lock free in a forked child, whatever state the parent's sleepers left it in.
    pub fn release_after_fork(&self) {
        self.word.store(0, Ordering::Release);
    }
}

impl<P: Platform> Default for Lock<P> {
    fn default() -> Self {
        Self::new()
    }
}
