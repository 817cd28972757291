//! The memory manager whose ledger is the account: slabs, page runs, index vectors.
