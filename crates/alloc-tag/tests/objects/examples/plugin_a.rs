//! A plugin with tags of its own and the library's.

#[unsafe(no_mangle)]
pub extern "C" fn plugin_run(look: extern "C" fn() -> u32) -> u32 {
    alloc_tag::alloc_hooks!({
        let seen = look();
        assert_eq!(seen, alloc_tag::current());
        assert_ne!(common::generic(1_u8), seen);
        seen
    })
}
