//! Finds descriptors by the ELF notes of mapped objects.

use crate::{Mapping, Memory};
use memledger_abi::Descriptor;

/// A descriptor found in a process.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Its address.
    pub addr: u64,
    /// Its contents when found.
    pub descriptor: Descriptor,
}

/// Result of a search.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Descriptors of the right layout, in order of address.
    pub found: Vec<Found>,
    /// Versions of those with another layout.
    pub other_versions: Vec<u32>,
    /// Notes whose descriptor was no descriptor.
    pub bad: usize,
}

/// Searches all mapped objects.
pub fn descriptors(_mem: &dyn Memory, _mappings: &[Mapping]) -> Search {
    todo!()
}
