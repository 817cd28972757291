//! The buffer of those who cut a stream: what is not used yet moves to the front, and more is read behind it.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

/// Bytes asked for at once.
pub(super) const CHUNK: usize = 1 << 18;

/// Moves `rest` of `buf` to its front and reads up to [`CHUNK`] bytes behind it; how many bytes came, 0 at the end of the input.
pub(super) fn read_behind(
    from: &mut impl Read,
    buf: &mut Vec<u8>,
    rest: Range<usize>,
) -> io::Result<usize> {
    let end = rest.len();
    buf.copy_within(rest, 0);
    if buf.len() < end + CHUNK {
        buf.resize(end + CHUNK, 0);
    }
    loop {
        match from.read(&mut buf[end..]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
