//! A plugin that uses the crate and has no tags.

#[unsafe(no_mangle)]
pub extern "C" fn plugin_run(_: extern "C" fn() -> u32) -> u32 {
    alloc_tag::current()
}
