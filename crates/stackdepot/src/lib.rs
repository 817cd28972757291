//! Capture and deduplication of call stacks in one walk: the context trie.
