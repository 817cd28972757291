//! `show_stacks`, `show_handles` and `show_stacks_handles`: one block for each stack, then an empty line.
//!
//! ```text
//! block = { " " FRAME } [ "handle: " N ] [ "nr_base_pages: " N ] empty-line
//! ```
//! Linux 6.9 prints `stack_count: N` instead of `nr_base_pages: N`: allocations, not pages.

use super::reader::{Bad, BadKind, MAX_RECORD};
use std::io::{self, BufRead, Read};

/// One stack and its pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stack {
    /// Number of its first line, from 1.
    pub line: u64,
    /// The frames, each with its leading blank and newline; empty in `show_handles`.
    pub frames: Vec<u8>,
    /// Number of the stack in the kernel's depot.
    pub handle: Option<u64>,
    /// Pages of 4 KiB that are allocated from it now; absent in `show_stacks_handles`.
    pub pages: Option<u64>,
    /// Allocations, where the kernel prints these instead of pages.
    pub count: Option<u64>,
}

/// What comes next.
#[derive(Debug)]
pub enum StackItem {
    /// A stack.
    Stack(Stack),
    /// A loss.
    Bad(Bad),
}

/// Reads stacks from anything. Needs memory for one of them.
#[derive(Debug)]
pub struct StackReader<R> {
    from: R,
    line: u64,
}

impl<R: BufRead> StackReader<R> {
    /// Reads from `from`.
    pub fn new(from: R) -> Self {
        StackReader { from, line: 0 }
    }

    /// The next stack or loss; `None` at the end.
    ///
    /// # Errors
    /// What reading the input gave.
    pub fn next_item(&mut self) -> io::Result<Option<StackItem>> {
        let mut stack = Stack::default();
        let mut bad: Option<Bad> = None;
        loop {
            let mut text = Vec::new();
            let end = self.read_line(&mut text)? == 0;
            let whole = text.last() == Some(&b'\n');
            let line = text.strip_suffix(b"\n").unwrap_or(&text);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                match bad {
                    Some(bad) => return Ok(Some(StackItem::Bad(bad))),
                    None if stack.line > 0 => return Ok(Some(finish(stack))),
                    None if end => return Ok(None),
                    None => continue,
                }
            }
            if stack.line == 0 {
                stack.line = self.line;
            }
            let kind = if !whole {
                BadKind::Truncated
            } else if stack.frames.len() > MAX_RECORD {
                BadKind::TooLong
            } else if stack.take(line) {
                continue;
            } else {
                BadKind::NoRecord
            };
            bad.get_or_insert_with(|| Bad {
                line: self.line,
                kind,
                text: String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned(),
            });
        }
    }

    /// A line of bounded length; what is longer looks like more lines.
    fn read_line(&mut self, text: &mut Vec<u8>) -> io::Result<usize> {
        let limit = MAX_RECORD as u64;
        let got = (&mut self.from).take(limit).read_until(b'\n', text)?;
        self.line += u64::from(got > 0);
        Ok(got)
    }
}

/// A block must say something of the stack.
fn finish(stack: Stack) -> StackItem {
    if stack.pages.is_some() || stack.count.is_some() || stack.handle.is_some() {
        return StackItem::Stack(stack);
    }
    let text = String::from_utf8_lossy(&stack.frames[..stack.frames.len().min(200)]);
    StackItem::Bad(Bad {
        line: stack.line,
        kind: BadKind::Truncated,
        text: text.lines().next().unwrap_or_default().to_owned(),
    })
}

impl Stack {
    /// Takes a line; false if it is none of a stack.
    fn take(&mut self, line: &[u8]) -> bool {
        if line[0] == b' ' {
            self.frames.extend_from_slice(line);
            self.frames.push(b'\n');
            return self.pages.is_none() && self.handle.is_none();
        }
        let (field, text) = if let Some(text) = line.strip_prefix(b"handle: ") {
            (&mut self.handle, text)
        } else if let Some(text) = line.strip_prefix(b"nr_base_pages: ") {
            (&mut self.pages, text)
        } else if let Some(text) = line.strip_prefix(b"stack_count: ") {
            (&mut self.count, text)
        } else {
            return false;
        };
        let new = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
        let ok = field.is_none() && new.is_some();
        *field = new;
        ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_losses() {
        let text = b" a+0x1/0x2\n b+0x1/0x2\nnr_base_pages: 7\n\n\nhandle: 3\nnr_base_pages: 18446744073709551615\n\nwhat\n\n a\nnr_base_pages: x\n\n a\nhandle: 4\n\n lost\n";
        let mut reader = StackReader::new(&text[..]);
        let (mut stacks, mut bad) = (Vec::new(), Vec::new());
        while let Some(item) = reader.next_item().unwrap() {
            match item {
                StackItem::Stack(s) => stacks.push((s.line, s.handle, s.pages)),
                StackItem::Bad(b) => bad.push((b.line, b.kind)),
            }
        }
        assert_eq!(
            stacks,
            [
                (1, None, Some(7)),
                (6, Some(3), Some(u64::MAX)),
                (14, Some(4), None)
            ]
        );
        assert_eq!(
            bad,
            [
                (9, BadKind::NoRecord),
                (12, BadKind::NoRecord),
                (17, BadKind::Truncated)
            ]
        );
    }
}
