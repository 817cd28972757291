//! Code tags used for memory allocations: the current tag, hooks, sites and the index space.
