//! Numbers for what events name.
//!
//! Names are few and events are many. The tables have a limit, so that a broken or malicious trace cannot take all memory;
//! what comes after it is called `(more)` and counted.

use rustc_hash::FxHashMap;
use std::borrow::Cow;

/// Most names in one table.
const LIMIT: usize = 1 << 22;

/// Most frames kept of a stack.
pub const MAX_FRAMES: usize = 256;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(u32);

        impl $name {
            /// Nothing is named.
            pub const NONE: $name = $name(0);
            /// One of those beyond the limit of the table.
            pub const MORE: $name = $name(1);

            /// As an index for vectors; dense from 0.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// Whether nothing is named.
            #[must_use]
            pub fn is_none(self) -> bool {
                self.0 == 0
            }
        }
    };
}

id! {
    /// A word: the name of a cache, of a task, flags.
    WordId
}
id! {
    /// A call site.
    SiteId
}
id! {
    /// A call stack: a list of call sites.
    StackId
}

/// A call site, as the trace gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// A code address, to be looked up in a symbol table.
    Address(u64),
    /// Text, as `vfs_read+0x10`.
    Text(WordId),
}

/// The tables.
#[derive(Debug)]
pub struct Names {
    words: Vec<Box<str>>,
    word_ids: FxHashMap<Box<str>, WordId>,
    sites: Vec<Site>,
    address_ids: FxHashMap<u64, SiteId>,
    text_ids: FxHashMap<WordId, SiteId>,
    stacks: Vec<Box<[SiteId]>>,
    stack_ids: FxHashMap<Box<[SiteId]>, StackId>,
    over: u64,
}

impl Default for Names {
    fn default() -> Self {
        Self::new()
    }
}

impl Names {
    /// Empty tables.
    #[must_use]
    pub fn new() -> Self {
        Names {
            words: vec!["".into(), "(more)".into()],
            word_ids: FxHashMap::default(),
            sites: vec![Site::Text(WordId::NONE), Site::Text(WordId::MORE)],
            address_ids: FxHashMap::default(),
            text_ids: FxHashMap::default(),
            stacks: vec![Box::default(), Box::default()],
            stack_ids: FxHashMap::default(),
            over: 0,
        }
    }

    /// How many times a name did not fit into its table.
    #[must_use]
    pub fn over(&self) -> u64 {
        self.over
    }

    /// Number of a word; none for the empty one.
    pub fn word(&mut self, text: &str) -> WordId {
        if text.is_empty() {
            return WordId::NONE;
        }
        if let Some(id) = self.word_ids.get(text) {
            return *id;
        }
        let Some(id) = next(self.words.len()).map(WordId) else {
            self.over += 1;
            return WordId::MORE;
        };
        self.words.push(text.into());
        self.word_ids.insert(text.into(), id);
        id
    }

    /// Number of a word in any bytes; those that are not UTF-8 become replacement characters.
    pub fn word_bytes(&mut self, bytes: &[u8]) -> WordId {
        match String::from_utf8_lossy(bytes) {
            Cow::Borrowed(text) => self.word(text),
            Cow::Owned(text) => self.word(&text),
        }
    }

    /// A word by its number.
    #[must_use]
    pub fn text(&self, id: WordId) -> &str {
        self.words.get(id.index()).map_or("", |word| word)
    }

    /// Number of words; all numbers are below.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// The word whose index is this; none if there is none.
    #[must_use]
    pub fn nth_word(&self, index: usize) -> WordId {
        match u32::try_from(index) {
            Ok(n) if index < self.words.len() => WordId(n),
            _ => WordId::NONE,
        }
    }

    /// Number of the call site at a code address; none for 0.
    pub fn address(&mut self, address: u64) -> SiteId {
        if address == 0 {
            return SiteId::NONE;
        }
        if let Some(id) = self.address_ids.get(&address) {
            return *id;
        }
        let id = self.new_site(Site::Address(address));
        if id != SiteId::MORE {
            self.address_ids.insert(address, id);
        }
        id
    }

    /// Number of a call site that is known by text.
    pub fn site(&mut self, text: &str) -> SiteId {
        let word = self.word(text);
        if word.is_none() {
            return SiteId::NONE;
        }
        if let Some(id) = self.text_ids.get(&word) {
            return *id;
        }
        let id = self.new_site(Site::Text(word));
        if id != SiteId::MORE {
            self.text_ids.insert(word, id);
        }
        id
    }

    fn new_site(&mut self, site: Site) -> SiteId {
        let Some(id) = next(self.sites.len()).map(SiteId) else {
            self.over += 1;
            return SiteId::MORE;
        };
        self.sites.push(site);
        id
    }

    /// A call site by its number.
    #[must_use]
    pub fn get_site(&self, id: SiteId) -> Site {
        let none = Site::Text(WordId::NONE);
        self.sites.get(id.index()).copied().unwrap_or(none)
    }

    /// Number of sites; all numbers are below.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.sites.len()
    }

    /// The site whose index is this; none if there is none.
    #[must_use]
    pub fn nth_site(&self, index: usize) -> SiteId {
        match u32::try_from(index) {
            Ok(n) if index < self.sites.len() => SiteId(n),
            _ => SiteId::NONE,
        }
    }

    /// Number of a stack, whose innermost frame is first; none for the empty one. At most [`MAX_FRAMES`] are kept.
    pub fn stack(&mut self, frames: &[SiteId]) -> StackId {
        let frames = &frames[..frames.len().min(MAX_FRAMES)];
        if frames.is_empty() {
            return StackId::NONE;
        }
        if let Some(id) = self.stack_ids.get(frames) {
            return *id;
        }
        let Some(id) = next(self.stacks.len()).map(StackId) else {
            self.over += 1;
            return StackId::MORE;
        };
        self.stacks.push(frames.into());
        self.stack_ids.insert(frames.into(), id);
        id
    }

    /// A stack by its number, innermost frame first.
    #[must_use]
    pub fn frames(&self, id: StackId) -> &[SiteId] {
        self.stacks.get(id.index()).map_or(&[], |stack| stack)
    }

    /// Number of stacks; all numbers are below.
    #[must_use]
    pub fn stacks(&self) -> usize {
        self.stacks.len()
    }

    /// The stack whose index is this; none if there is none.
    #[must_use]
    pub fn nth_stack(&self, index: usize) -> StackId {
        match u32::try_from(index) {
            Ok(n) if index < self.stacks.len() => StackId(n),
            _ => StackId::NONE,
        }
    }
}

/// The number that comes after `len` of them.
fn next(len: usize) -> Option<u32> {
    (len < LIMIT).then_some(len as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_name_same_number() {
        let mut names = Names::new();
        let a = names.word("filp");
        assert_eq!(names.word_bytes(b"filp"), a);
        assert_eq!(names.text(a), "filp");
        assert_eq!(names.word(""), WordId::NONE);
        let s = names.site("filp");
        assert_eq!(names.get_site(s), Site::Text(a));
        assert_ne!(names.address(16), s);
        assert_eq!(names.address(16), names.address(16));
        assert_eq!(names.address(0), SiteId::NONE);
        let t = names.stack(&[s, SiteId::MORE]);
        assert_eq!(names.stack(&[s, SiteId::MORE]), t);
        assert_eq!(names.frames(t), [s, SiteId::MORE]);
        assert_eq!(names.frames(StackId::NONE), []);
    }

    #[test]
    fn long_stacks_are_cut() {
        let mut names = Names::new();
        let site = names.address(1);
        let id = names.stack(&[site; MAX_FRAMES + 9]);
        assert_eq!(names.frames(id).len(), MAX_FRAMES);
    }
}
