//! What the depot asks of the system. The real one is [`crate::Linux`]; tests have their own.

/// A loaded object file, as the loader describes it. Addresses in bytes; 0 = absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Lowest address of its mapping.
    pub start: usize,
    /// End of its mapping.
    pub end: usize,
    /// What to subtract from an address to get the address in the file's own terms.
    pub bias: usize,
    /// Address of its path, NUL-terminated; empty for the executable.
    pub name: usize,
    /// Identity of the loaded object (address of the loader's record).
    pub identity: usize,
    /// Address of `.eh_frame_hdr`.
    pub eh_frame_hdr: usize,
}

/// The system below the depot.
///
/// # Safety
/// Implementations must not allocate, block on a lock that an interrupted thread may hold, unwind or change `errno`,
/// and what they return must be true: the depot reads memory that they say is readable, and uses what they map.
pub unsafe trait Platform {
    /// Reserves `bytes` of address space (a multiple of the page size), not accessible yet. Null: no room.
    fn reserve(&self, bytes: usize) -> *mut u8;
    /// Makes `[start, start + bytes)` of a reservation readable and writable; what was so already is kept. False: no
    /// memory.
    fn commit(&self, start: *mut u8, bytes: usize) -> bool;
    /// Maps `bytes` of zeroed memory that is never freed. Null: no memory.
    fn map(&self, bytes: usize) -> *mut u8;
    /// The object file that `pc` lies in.
    fn find_object(&self, pc: usize) -> Option<Object>;
    /// Can the page that begins at `page` be read?
    fn readable(&self, page: usize) -> bool;
    /// End of the calling thread's stack, as the system set it up; 0 = not known.
    fn stack_end(&self) -> usize;
}
