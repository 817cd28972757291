//! Which functions are allocator helpers: their caller is charged.

/// A list of patterns for functions that allocate on behalf of their caller.
#[derive(Debug, Clone, Default)]
pub struct Helpers {}

impl Helpers {
    /// A list without the built-in patterns.
    pub fn empty() -> Self {
        Helpers {}
    }

    /// Adds a pattern: a function's name without parameters; `*` stands for any text.
    pub fn add(&mut self, _pattern: &str) {
        todo!()
    }

    /// Adds the patterns of a file's text: one a line, `#` begins a comment.
    pub fn add_lines(&mut self, _text: &str) {
        todo!()
    }

    /// Is the demangled function a helper?
    pub fn is_helper(&self, _func: &str) -> bool {
        todo!()
    }
}
