//! A runtime to preload.

common::fake_note!();

#[unsafe(no_mangle)]
pub extern "C" fn fake_seen() -> common::fake::Seen {
    common::fake::seen()
}
