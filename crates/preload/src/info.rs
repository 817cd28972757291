//! mallopt(3), malloc_trim(3), mallinfo(3), malloc_stats(3).

use core::ffi::c_int;
use core::fmt::Write;
use mm::linux;

/// mallopt(3): the knobs of another allocator; accepted, without effect.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(_parameter: c_int, _value: c_int) -> c_int {
    1
}

/// malloc_trim(3): 1 if memory was returned to the system. The pad is not kept.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_pad: usize) -> c_int {
    c_int::from(linux::trim())
}

/// `struct mallinfo2`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Mallinfo2 {
    /// Bytes in runs that are in use or kept for reuse.
    pub arena: usize,
    /// 1.
    pub ordblks: usize,
    /// 0.
    pub smblks: usize,
    /// Large objects.
    pub hblks: usize,
    /// Bytes in large objects.
    pub hblkhd: usize,
    /// 0.
    pub usmblks: usize,
    /// 0.
    pub fsmblks: usize,
    /// Live bytes of small objects, in slot sizes (as in glibc, large ones are in `hblkhd`).
    pub uordblks: usize,
    /// Bytes of `arena` that are not live.
    pub fordblks: usize,
    /// Bytes that malloc_trim(3) could give back at once.
    pub keepcost: usize,
}

/// mallinfo2(3).
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    let mut live = 0;
    let (mut large, mut large_bytes) = (0, 0);
    linux::scan(|_, bytes| {
        if bytes as usize > mm::class::MAX_SMALL {
            large += 1;
            large_bytes += bytes as usize;
        } else {
            live += bytes as usize;
        }
    });
    let totals = linux::totals();
    let arena = totals.used_runs + totals.dirty;
    Mallinfo2 {
        arena,
        ordblks: 1,
        hblks: large,
        hblkhd: large_bytes,
        uordblks: live,
        fordblks: arena.saturating_sub(live + large_bytes),
        keepcost: totals.dirty,
        ..Mallinfo2::default()
    }
}

/// `struct mallinfo`: the same in ints.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Mallinfo {
    /// See [`Mallinfo2`]; wraps as glibc's does.
    pub fields: [c_int; 10],
}

/// mallinfo(3).
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo {
    let m = mallinfo2();
    let all = [
        m.arena, m.ordblks, m.smblks, m.hblks, m.hblkhd, m.usmblks, m.fsmblks, m.uordblks,
        m.fordblks, m.keepcost,
    ];
    Mallinfo {
        fields: all.map(|v| v as c_int),
    }
}

/// malloc_stats(3): a few lines on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    let m = mallinfo2();
    let t = linux::totals();
    let mut text = Text {
        bytes: [0; 512],
        len: 0,
    };
    // The buffer is large enough; if it were not, the text would only be cut.
    let _ = writeln!(text, "memledger:");
    let _ = writeln!(text, "system bytes     = {:>12}", m.arena);
    let _ = writeln!(text, "in use bytes     = {:>12}", m.uordblks + m.hblkhd);
    let _ = writeln!(text, "kept for reuse   = {:>12}", t.dirty);
    let _ = writeln!(text, "own metadata     = {:>12}", t.meta);
    let _ = writeln!(text, "large objects    = {:>12}", m.hblks);
    let _ = writeln!(text, "large bytes      = {:>12}", m.hblkhd);
    // SAFETY: `len` bytes of the text are written; standard error is the program's.
    unsafe { libc::write(2, text.bytes.as_ptr().cast(), text.len) };
}

struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let n = s.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        if n == s.len() {
            Ok(())
        } else {
            Err(core::fmt::Error)
        }
    }
}
