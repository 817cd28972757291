//! `dlclose`, seen on the way: after it, return addresses of unloaded code may mean something else.
//!
//! The definition here wins over libc's in the object that holds the runtime (the preloaded library: for the whole program).
//! `dlopen` is left alone: it looks at its caller, and nothing has to be known before new code runs.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Calls of `dlclose` under way.
static CLOSING: AtomicU32 = AtomicU32::new(0);

/// Whether what runs destructors now is `dlclose` (of some thread), not the end of the process.
pub(super) fn closing() -> bool {
    CLOSING.load(Ordering::Relaxed) != 0
}

/// As dlclose(3).
///
/// # Safety
/// As dlclose(3).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        // SAFETY: a NUL-terminated name.
        real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlclose".as_ptr()) };
        REAL.store(real, Ordering::Relaxed);
    }
    if real.is_null() {
        return -1;
    }
    CLOSING.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the next definition of `dlclose` has this type.
    let r = unsafe {
        core::mem::transmute::<*mut c_void, extern "C-unwind" fn(*mut c_void) -> c_int>(real)(
            handle,
        )
    };
    CLOSING.fetch_sub(1, Ordering::Relaxed);
    alloc_tag::sites::modules_changed();
    r
}
