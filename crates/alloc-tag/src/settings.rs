//! The `MEMLEDGER` environment variable: `0|1|never[,compressed][,depth=N][,page_owner=on][,report_failed=on][,trace=on][,trace_size=N][,trace_mode=overwrite|stop][,trace_stat=on]`.
//!
//! The first word is that of the kernel's `sysctl.vm.mem_profiling=` boot parameter and takes the words of its `kstrtobool`
//! (whole words here, of either case). The rest is a list in any order. Parsed from bytes, without allocation, because it
//! is read before there is an allocator.

use memledger_abi::trace::{TRACER_CACHES, TRACER_EVENTS, TRACER_OBJECTS, TRACER_SITES};

/// Most frames of a site.
pub const MAX_DEPTH: u32 = 64;

/// Start value of the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Off, can be switched on.
    Off,
    /// On, can be switched off.
    On,
    /// Off for good; no ledger exists.
    Never,
}

/// What the variable says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Start value of the switch.
    pub mode: Mode,
    /// Cells of 2 bytes were asked for. See [`Settings::unsupported`].
    pub compressed: bool,
    /// Frames kept of a site: `1..=MAX_DEPTH`.
    pub depth: u32,
    /// Keep a record of who took each run of pages.
    pub page_owner: bool,
    /// The largest rows go to standard error when an allocation fails.
    pub report_failed: bool,
    /// Trace from the first allocation on.
    pub trace: bool,
    /// Bytes of a thread's ring of events; 0 = not said.
    pub trace_size: u64,
    /// Full rings drop new events rather than overwrite old ones.
    pub trace_stop: bool,
    /// What the tracer does, as bits of `memledger_abi::trace`; 0 = not said.
    pub tracers: u32,
}

/// What could not be understood: the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsError<'a> {
    /// Not a word of this list, or `0|1|never` after the first place, or twice.
    Unknown(&'a [u8]),
    /// The number of `depth=` is not in `1..=MAX_DEPTH`.
    Depth(&'a [u8]),
    /// `page_owner=` with another value than on or off.
    PageOwner(&'a [u8]),
    /// A word of the tracer with another value than it can have.
    Trace(&'a [u8]),
}

impl SettingsError<'_> {
    /// The word, as it was written.
    pub fn word(&self) -> &[u8] {
        match self {
            SettingsError::Unknown(word)
            | SettingsError::Depth(word)
            | SettingsError::PageOwner(word)
            | SettingsError::Trace(word) => word,
        }
    }
}

impl core::fmt::Display for SettingsError<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let word = self.word().escape_ascii();
        match self {
            SettingsError::Unknown(_) => {
                write!(
                    f,
                    "MEMLEDGER: unknown word '{word}' (known: 0, 1, never, compressed, depth=N, page_owner=, report_failed=, trace=, trace_size=, trace_mode=, trace_stat=)"
                )
            }
            SettingsError::PageOwner(_) => {
                write!(f, "MEMLEDGER: '{word}': page_owner=on|off")
            }
            SettingsError::Trace(_) => write!(
                f,
                "MEMLEDGER: '{word}': trace=on|off, trace_size=4K to 1G, trace_mode=overwrite|stop, trace_stat=on|off"
            ),
            SettingsError::Depth(_) => write!(
                f,
                "MEMLEDGER: '{word}': depth must be from 1 to {MAX_DEPTH}"
            ),
        }
    }
}

impl core::error::Error for SettingsError<'_> {}

impl Default for Settings {
    fn default() -> Self {
        Settings::DEFAULT
    }
}

impl Settings {
    /// On, 4 frames.
    pub const DEFAULT: Settings = Settings {
        mode: Mode::On,
        compressed: false,
        depth: 4,
        page_owner: false,
        report_failed: false,
        trace: false,
        trace_size: 0,
        trace_stop: false,
        tracers: 0,
    };

    /// Parses the value of the variable. Empty = the default. As in the kernel, one bad word spoils the whole value.
    ///
    /// ```
    /// use alloc_tag::{Mode, Settings};
    /// let settings = Settings::parse(b"0,depth=8").unwrap();
    /// assert_eq!((settings.mode, settings.depth), (Mode::Off, 8));
    /// assert_eq!(Settings::parse(b"1,dept=8").unwrap_err().word(), b"dept=8");
    /// ```
    pub fn parse(value: &[u8]) -> Result<Settings, SettingsError<'_>> {
        let mut settings = Settings::DEFAULT;
        if value.is_empty() {
            return Ok(settings);
        }
        for (position, word) in value.split(|&b| b == b',').enumerate() {
            if let Some(mode) = mode(word).filter(|_| position == 0) {
                settings.mode = mode;
            } else if let Some(number) = word.strip_prefix(b"depth=") {
                settings.depth = depth(number).ok_or(SettingsError::Depth(word))?;
            } else if let Some(value) = word.strip_prefix(b"page_owner=") {
                settings.page_owner = switch(value).ok_or(SettingsError::PageOwner(word))?;
            } else if let Some(value) = word.strip_prefix(b"report_failed=") {
                settings.report_failed = switch(value).ok_or(SettingsError::Unknown(word))?;
            } else if word.starts_with(b"trace") {
                settings.trace_word(word)?;
            } else if word == b"compressed" {
                settings.compressed = true;
            } else {
                return Err(SettingsError::Unknown(word));
            }
        }
        Ok(settings)
    }

    fn trace_word<'a>(&mut self, word: &'a [u8]) -> Result<(), SettingsError<'a>> {
        let mut parts = word.splitn(2, |&b| b == b'=');
        let (name, value) = (parts.next().unwrap_or(&[]), parts.next().unwrap_or(&[]));
        let bad = SettingsError::Trace(word);
        match name {
            b"trace" => self.trace = switch(value).ok_or(bad)?,
            b"trace_size" => self.trace_size = size(value).ok_or(bad)?,
            b"trace_mode" => {
                self.trace_stop = match value {
                    b"stop" => true,
                    b"overwrite" => false,
                    _ => return Err(bad),
                }
            }
            b"trace_stat" => {
                let on = switch(value).ok_or(bad)?;
                self.tracers = if on { TRACERS } else { 0 };
            }
            _ => return Err(SettingsError::Unknown(word)),
        }
        Ok(())
    }

    /// Name of a setting that is asked for and that this version does not do.
    pub fn unsupported(&self) -> Option<&'static str> {
        self.compressed.then_some("compressed")
    }
}

fn mode(word: &[u8]) -> Option<Mode> {
    let is = |words: &[&str]| {
        words
            .iter()
            .any(|w| word.eq_ignore_ascii_case(w.as_bytes()))
    };
    if is(&["1", "y", "yes", "t", "true", "on"]) {
        Some(Mode::On)
    } else if is(&["0", "n", "no", "f", "false", "off"]) {
        Some(Mode::Off)
    } else {
        (word == b"never").then_some(Mode::Never)
    }
}

/// All that the tracer can do.
const TRACERS: u32 = TRACER_EVENTS | TRACER_SITES | TRACER_CACHES | TRACER_OBJECTS;

fn switch(value: &[u8]) -> Option<bool> {
    match mode(value)? {
        Mode::On => Some(true),
        Mode::Off => Some(false),
        Mode::Never => None,
    }
}

/// A number of bytes from 4 KiB to 1 GiB, with `K`, `M` or `G` (of 1024) behind it or not.
fn size(value: &[u8]) -> Option<u64> {
    let (digits, shift) = match value {
        [digits @ .., b'K'] => (digits, 10),
        [digits @ .., b'M'] => (digits, 20),
        [digits @ .., b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    let ok = !digits.is_empty() && digits.len() <= 10 && digits.iter().all(u8::is_ascii_digit);
    let n = ok.then(|| digits.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')))?;
    let bytes = n.checked_mul(1 << shift)?;
    (1 << 12..=1 << 30).contains(&bytes).then_some(bytes)
}

fn depth(number: &[u8]) -> Option<u32> {
    let digits = !number.is_empty() && number.len() <= 4 && number.iter().all(u8::is_ascii_digit);
    let value = digits.then(|| number.iter().fold(0, |n, d| n * 10 + u32::from(d - b'0')))?;
    (1..=MAX_DEPTH).contains(&value).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let on = Settings::DEFAULT;
        let cases: [(&[u8], Settings); 12] = [
            (b"", on),
            (b"1", on),
            (b"on", on),
            (b"Y", on),
            (
                b"0",
                Settings {
                    mode: Mode::Off,
                    ..on
                },
            ),
            (
                b"off",
                Settings {
                    mode: Mode::Off,
                    ..on
                },
            ),
            (
                b"n",
                Settings {
                    mode: Mode::Off,
                    ..on
                },
            ),
            (
                b"never",
                Settings {
                    mode: Mode::Never,
                    ..on
                },
            ),
            (
                b"1,compressed",
                Settings {
                    compressed: true,
                    ..on
                },
            ),
            (
                b"never,compressed,depth=1",
                Settings {
                    mode: Mode::Never,
                    compressed: true,
                    depth: 1,
                    ..on
                },
            ),
            (b"depth=64", Settings { depth: 64, ..on }),
            (
                b"0,depth=2,depth=3",
                Settings {
                    mode: Mode::Off,
                    depth: 3,
                    ..on
                },
            ),
        ];
        for (text, settings) in cases {
            assert_eq!(
                Settings::parse(text),
                Ok(settings),
                "{}",
                text.escape_ascii()
            );
        }
        assert_eq!(
            Settings::parse(b"1,compressed").unwrap().unsupported(),
            Some("compressed")
        );
        assert_eq!(on.unsupported(), None);
    }

    #[test]
    fn bad_words() {
        for text in [
            &b"2"[..],
            b"yikes",
            b"nevermore",
            b"COMPRESSED",
            b" 1",
            b"\xff",
        ] {
            assert_eq!(Settings::parse(text), Err(SettingsError::Unknown(text)));
        }
        for (text, word) in [
            (&b"1,"[..], &b""[..]),
            (b",1", b""),
            (b"1,0", b"0"),
            (b"depth=2,1", b"1"),
            (b"1,x", b"x"),
        ] {
            assert_eq!(Settings::parse(text), Err(SettingsError::Unknown(word)));
        }
        for text in [
            &b"depth="[..],
            b"depth=0",
            b"depth=65",
            b"depth=-1",
            b"depth=99999999999",
            b"depth=4 ",
        ] {
            assert_eq!(Settings::parse(text), Err(SettingsError::Depth(text)));
        }
    }

    #[test]
    fn messages_are_one_printable_line() {
        extern crate std;
        use std::string::ToString;
        let text = SettingsError::Unknown(b"a\nb\xff").to_string();
        assert_eq!(
            text,
            r"MEMLEDGER: unknown word 'a\nb\xff' (known: 0, 1, never, compressed, depth=N, page_owner=, report_failed=, trace=, trace_size=, trace_mode=, trace_stat=)"
        );
    }
}
