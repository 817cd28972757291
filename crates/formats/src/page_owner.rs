//! `/sys/kernel/debug/page_owner`: who allocated each page; and the files of `page_owner_stacks`.
//!
//! ```text
//! Page allocated via order 0, mask 0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), pid 590, tgid 590 (zcat), ts 26624935990 ns
//! PFN 0xb4ac type Movable Block 90 type Movable Flags 0x3003c(referenced|uptodate|node=0|zone=0)
//!  post_alloc_hook+0x67/0x90
//!  vfs_write+0x25a/0x440
//! handle: 110362632
//! Page has been migrated, last migrate reason: compaction
//! Slab cache page
//! Charged (via objcg) to offline memcg labgroup
//! ␤
//! ```
//! Follows `mm/page_owner.c` of Linux 4.6 to 7.3; older and newer ones differ in what is left out:
//!
//! ```text
//! head   = "Page allocated via order " N ", mask 0x" HEX [ "(" FLAGS ")" ]
//!          [ ", pid " N [ ", tgid " N " (" COMM ")" ] ] [ ", ts " N " ns" ] [ ", free_ts " N " ns" ]
//! place  = "PFN " ( "0x" HEX | N ) [ " type " TYPE ] [ " Block " N ] [ " type " TYPE ] [ " Flags " TEXT ]
//! body   = { " " FRAME } { line }
//! record = head place body empty-line
//! ```
//! - COMM is printed raw: it holds blanks, commas, parentheses, newlines, even `), ts 1 ns`. So the head ends at the first
//!   newline that is followed by `PFN ` and a number and before which the whole head can be read: that needs 16 characters, and COMM has
//!   15. An empty line in COMM does not end the record.
//! - A body line that is none of those above is kept as text, so that a line of a newer kernel loses nothing.
//! - A line that starts with `Page allocated via order ` always begins a record, also without an empty line before it.
//! - An empty line with a frame behind it does not end the record.
//! - Additional empty lines, CRLF and a missing last empty line are accepted. A record whose last line has no newline is
//!   reported as [`BadKind::Truncated`]: its stack may be cut off.
//!
//! [`Reader`] streams records in bounded memory; [`StackReader`] does it for `show_stacks`, `show_handles` and
//! `show_stacks_handles`. [`tool`] has the rules by which the kernel's own `page_owner_sort` reads the same text.

mod chunk;
mod reader;
mod record;
mod stacks;
pub mod tool;

pub use reader::{Bad, BadKind, Item, MAX_RECORD, Reader};
pub use record::{
    Body, Head, Memcg, Place, Record, frame_function, frame_module, frames, stack_key,
};
pub use stacks::{Stack, StackItem, StackReader};

/// How each record starts.
pub const START: &[u8] = b"Page allocated via order ";
