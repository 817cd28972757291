//! Finds and reads the ledger of a process, and turns its sites into source lines.
