//! A small mutex over [`Platform::wait`] whose word says who holds it, and whether somebody sleeps:
//!
//! ```text
//! 0 = free, else  bits 1..32: name of the holding thread (from the address of its slot)   bit 0: somebody may sleep
//! ```
//! A signal handler must not wait while the code that it interrupted holds any lock: not for that one, nor for another,
//! whose holder may have been interrupted as well, by a handler that waits for the first. So each thread counts the locks that
//! it holds or waits for (`ThreadSlot::locks`). The owner stands in the word itself, too, for `fork`: in a handler it must leave
//! a lock to the interrupted code, which goes on in both processes.

use crate::platform::Platform;
use crate::sync::AtomicU32;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering};

const SLEEPERS: u32 = 1;

/// A lock without data: what it guards says so. Const-constructible.
pub struct Lock<P> {
    word: AtomicU32,
    /// `fork` found it held by its own thread.
    skipped: AtomicBool,
    platform: PhantomData<fn() -> P>,
}

impl<P: Platform> Lock<P> {
    /// A free lock.
    pub const fn new() -> Self {
        Lock {
            word: AtomicU32::new(0),
            skipped: AtomicBool::new(false),
            platform: PhantomData,
        }
    }

    /// The word of a lock that this thread holds, without sleepers; never 0.
    fn own() -> u32 {
        ((P::thread() as usize >> 6) as u32) << 1 | 1 << 31
    }

    /// Whether this thread holds it.
    fn is_own(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !SLEEPERS == Self::own()
    }

    #[inline]
    fn try_word(&self, word: u32) -> bool {
        self.word
            .compare_exchange(0, word, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Counts the locks of this thread up, or down.
    #[inline]
    fn count(by: i32) -> u32 {
        // SAFETY: this thread's slot; a handler in between leaves the count as it found it.
        unsafe {
            let count = &raw mut (*P::thread()).locks;
            let old = count.read_volatile();
            count.write_volatile(old.wrapping_add_signed(by));
            old
        }
    }

    /// Takes the lock; spins a little, then sleeps.
    #[inline]
    pub fn acquire(&self) {
        Self::count(1);
        if !self.try_word(Self::own()) {
            self.acquire_slow();
        }
    }

    /// Takes the lock in a signal handler that interrupted this thread inside the manager. `false`: it would have to wait, and must
    /// not, as the interrupted code holds a lock.
    pub fn acquire_nested(&self) -> bool {
        let held = Self::count(1) != 0;
        if !self.try_word(Self::own()) {
            if held {
                Self::count(-1);
                return false;
            }
            self.acquire_slow();
        }
        true
    }

    #[cold]
    fn acquire_slow(&self) {
        let own = Self::own();
        for _ in 0..crate::sync::SPINS {
            if self.word.load(Ordering::Relaxed) == 0 && self.try_word(own) {
                return;
            }
            core::hint::spin_loop();
        }
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word == 0 {
                // Others may sleep, too: who releases must look.
                if self.try_word(own | SLEEPERS) {
                    return;
                }
            } else if word & SLEEPERS != 0
                || self
                    .word
                    .compare_exchange(word, word | SLEEPERS, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                P::wait(&self.word, word | SLEEPERS);
            }
        }
    }

    /// Gives the lock back. Only its holder may.
    #[inline]
    pub fn release(&self) {
        if self.word.swap(0, Ordering::Release) & SLEEPERS != 0 {
            P::wake(&self.word);
        }
        Self::count(-1);
    }

    /// Before `fork`: takes the lock, unless this thread has it (then a signal handler forks).
    pub fn fork_prepare(&self) {
        if self.is_own() {
            self.skipped.store(true, Ordering::Relaxed);
        } else {
            self.acquire();
        }
    }

    /// After `fork`: undoes [`Lock::fork_prepare`]. In the child nobody sleeps, whatever the parent's word says.
    pub fn fork_done(&self, child: bool) {
        if self.skipped.load(Ordering::Relaxed) {
            self.skipped.store(false, Ordering::Relaxed);
        } else if child {
            self.word.store(0, Ordering::Release);
            Self::count(-1);
        } else {
            self.release();
        }
    }
}

impl<P: Platform> Default for Lock<P> {
    fn default() -> Self {
        Self::new()
    }
}
