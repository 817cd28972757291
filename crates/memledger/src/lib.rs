//! Exact, always-on accounting of every byte a program allocates, as its global allocator.
