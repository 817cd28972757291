//! One page of a kernel's ring buffer.
//!
//! A page starts with the time of its first event and the number of bytes of data, whose upper bits say whether events were
//! lost before it (and whether their number stands after the data). Then come entries, each with a word that holds its type
//! or length (5 bits) and the time since the entry before (27 bits); types 29 to 31 are padding, a long time, and an absolute
//! time. Follows `kernel/trace/ring_buffer.c`.

use super::format::PageFormat;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
const DELTA_BITS: u32 = 27;
/// Events were lost before this page.
const MISSED: u64 = 1 << 31;
/// Their number stands after the data.
const MISSED_STORED: u64 = 1 << 30;
/// The number of bytes of data.
const COMMIT: u64 = (1 << 27) - 1;
/// The bits that an absolute time does not have.
const TIME_MSB: u64 = 0xf8 << 56;

/// Order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Endian {
    /// The lowest first.
    #[default]
    Little,
    /// The highest first.
    Big,
}

impl Endian {
    /// A number of 1, 2, 4 or 8 bytes; `None` if it does not lie in `bytes`, or for other sizes.
    #[inline]
    #[must_use]
    pub fn get(self, bytes: &[u8], offset: usize, size: usize) -> Option<u64> {
        let bytes = bytes.get(offset..)?;
        let little = self == Endian::Little;
        Some(match size {
            8 => {
                let b = *bytes.first_chunk::<8>()?;
                if little {
                    u64::from_le_bytes(b)
                } else {
                    u64::from_be_bytes(b)
                }
            }
            4 => {
                let b = *bytes.first_chunk::<4>()?;
                u64::from(if little {
                    u32::from_le_bytes(b)
                } else {
                    u32::from_be_bytes(b)
                })
            }
            2 => {
                let b = *bytes.first_chunk::<2>()?;
                u64::from(if little {
                    u16::from_le_bytes(b)
                } else {
                    u16::from_be_bytes(b)
                })
            }
            1 => u64::from(*bytes.first()?),
            _ => return None,
        })
    }
}

/// What a page starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageHead {
    /// Time of the first event.
    pub time: u64,
    /// Bytes of data.
    pub commit: usize,
    /// Events that were lost before: `Some(None)` if their number is not known.
    pub lost: Option<Option<u64>>,
}

/// Reads the start of a page. `None` if it is shorter than it says.
#[must_use]
pub fn page_head(page: &[u8], format: &PageFormat, endian: Endian) -> Option<PageHead> {
    let time = endian.get(page, format.timestamp.0, format.timestamp.1)?;
    let word = endian.get(page, format.commit.0, format.commit.1)?;
    let commit = usize::try_from(word & COMMIT).ok()?;
    let end = format.data.0.checked_add(commit)?;
    if end > page.len() {
        return None;
    }
    let count = (word & MISSED_STORED != 0)
        .then(|| endian.get(page, end, format.commit.1))
        .flatten();
    let lost = (word & MISSED != 0).then_some(count);
    Some(PageHead { time, commit, lost })
}

/// An entry of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub time: u64,
    /// Where its record starts in the data of the page.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

/// What comes next in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// An entry.
    Entry(Entry),
    /// Nothing.
    End,
    /// Something that cannot be. The rest of the page is lost.
    Broken,
}

/// A place in the data of a page.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    at: usize,
    time: u64,
}

impl Cursor {
    /// At the first entry of a page.
    #[must_use]
    pub fn new(head: &PageHead) -> Self {
        Cursor {
            at: 0,
            time: head.time,
        }
    }

    /// Offset in the data of the page.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// The next entry that has a record.
    #[inline]
    pub fn next(&mut self, data: &[u8], endian: Endian) -> Next {
        loop {
            if self.at >= data.len() {
                return Next::End;
            }
            let Some(word) = endian.get(data, self.at, 4) else {
                return Next::Broken;
            };
            let word = word as u32;
            let (kind, delta) = match endian {
                Endian::Little => (word & 31, word >> 5),
                Endian::Big => (word >> DELTA_BITS, word & ((1 << DELTA_BITS) - 1)),
            };
            let delta = u64::from(delta);
            let body = self.at + 4;
            if (1..PADDING).contains(&kind) {
                return self.entry(data, body, kind as usize * 4, delta);
            }
            if kind == PADDING && delta == 0 {
                return Next::End;
            }
            let Some(array) = endian.get(data, body, 4) else {
                return Next::Broken;
            };
            match kind {
                0 => {
                    let len = (array as usize).wrapping_sub(4);
                    if array < 4 || len > data.len() {
                        return Next::Broken;
                    }
                    return self.entry(data, body + 4, len, delta);
                }
                // The time of a discarded entry is not counted, as in the kernel's own reader.
                PADDING => self.at = body.saturating_add(array as usize),
                TIME_EXTEND => {
                    self.time = self.time.wrapping_add(delta + (array << DELTA_BITS));
                    self.at = body + 4;
                }
                TIME_STAMP => {
                    self.time = absolute(delta + (array << DELTA_BITS), self.time);
                    self.at = body + 4;
                }
                _ => return Next::Broken,
            }
        }
    }

    #[inline]
    fn entry(&mut self, data: &[u8], start: usize, len: usize, delta: u64) -> Next {
        let end = start + len;
        if end > data.len() {
            return Next::Broken;
        }
        self.time = self.time.wrapping_add(delta);
        self.at = start + len.next_multiple_of(4);
        Next::Entry(Entry {
            time: self.time,
            start,
            end,
        })
    }
}

/// An absolute time has 59 bits: the others are those of the time before.
fn absolute(time: u64, before: u64) -> u64 {
    let full = (time & !TIME_MSB) | (before & TIME_MSB);
    if before & TIME_MSB != 0 && full < before {
        return full.wrapping_add(1 << 59);
    }
    full
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(time: u64) -> PageHead {
        PageHead {
            time,
            commit: 0,
            lost: None,
        }
    }

    fn little(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn entries_times_and_padding() {
        let data = little(&[
            1 | (5 << 5),
            7, // 4 bytes, 5 later
            30 | (1 << 5),
            2, // 1 + 2 << 27 later
            29 | (9 << 5),
            8,
            0,
            0, // discarded
            2 | (1 << 5),
            8,
            9, // 8 bytes
            31,
            4, // absolute
            3 << 5,
            9,
            0xaaaa,
            0,  // length word: 5 bytes and padding
            29, // nothing more
            77,
        ]);
        // The padding says the bytes after its first word: 8 = its array word and one more; the word after is skipped too.
        let mut data = data;
        data[20..24].copy_from_slice(&12_u32.to_le_bytes());
        let mut cursor = Cursor::new(&head(100));
        let mut got = Vec::new();
        while let Next::Entry(entry) = cursor.next(&data, Endian::Little) {
            got.push((entry.time, entry.start, entry.end));
        }
        let t = 105 + 1 + (2 << 27) + 1;
        assert_eq!(got, [(105, 4, 8), (t, 36, 44), ((4 << 27) + 3, 60, 65)]);
    }

    #[test]
    fn big_endian_and_broken() {
        let words = [(1_u32 << 27) | 5, 7];
        let data: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        let want = Entry {
            time: 6,
            start: 4,
            end: 8,
        };
        assert_eq!(
            Cursor::new(&head(1)).next(&data, Endian::Big),
            Next::Entry(want)
        );
        assert_eq!(
            Cursor::new(&head(1)).next(&data[..6], Endian::Big),
            Next::Broken
        );
        assert_eq!(
            Cursor::new(&head(1)).next(&data[..3], Endian::Big),
            Next::Broken
        );
        let zero = little(&[0, 3, 0]);
        assert_eq!(
            Cursor::new(&head(1)).next(&zero, Endian::Little),
            Next::Broken
        );
    }

    #[test]
    fn lost_counts() {
        let format = PageFormat {
            timestamp: (0, 8),
            commit: (8, 8),
            data: (16, 48),
        };
        let mut page = vec![0; 64];
        page[8..16].copy_from_slice(&(8 | MISSED | MISSED_STORED).to_le_bytes());
        page[24] = 99;
        let head = page_head(&page, &format, Endian::Little).expect("whole");
        assert_eq!((head.commit, head.lost), (8, Some(Some(99))));
        page[8..16].copy_from_slice(&(48 | MISSED).to_le_bytes());
        assert_eq!(
            page_head(&page, &format, Endian::Little)
                .expect("whole")
                .lost,
            Some(None)
        );
        page[8..16].copy_from_slice(&49_u64.to_le_bytes());
        assert_eq!(page_head(&page, &format, Endian::Little), None);
    }
}
