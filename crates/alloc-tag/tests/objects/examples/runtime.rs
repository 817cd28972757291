//! A runtime to preload. It has no tags of its own: the library with the tags is not linked in.

#[path = "../src/fake.rs"]
pub mod fake;

fake_note!(fake);

#[unsafe(no_mangle)]
pub extern "C" fn fake_seen() -> fake::Seen {
    fake::seen()
}
