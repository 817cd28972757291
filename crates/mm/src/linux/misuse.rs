//! The end of a process that misuses its heap: one clear message with the place, then `abort`, as glibc does.

use super::{MM, sys};
use crate::platform::Misuse;

/// One line of text, cut at 256 bytes.
pub(super) struct Line {
    text: [u8; 256],
    len: usize,
}

impl Line {
    pub(super) const NEW: Line = Line {
        text: [0; 256],
        len: 0,
    };

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let n = bytes.len().min(self.text.len() - self.len);
        self.text[self.len..self.len + n].copy_from_slice(&bytes[..n]);
        self.len += n;
    }

    pub(super) fn write(&mut self) {
        if self.len == self.text.len() {
            self.text[self.len - 1] = b'\n';
        }
        sys::write_error(&self.text[..self.len]);
    }

    pub(super) fn decimal(&mut self, mut v: u64) {
        let mut digits = [0u8; 20];
        let mut n = 0;
        while n == 0 || v != 0 {
            n += 1;
            digits[20 - n] = b'0' + (v % 10) as u8;
            v /= 10;
        }
        self.push(&digits[20 - n..]);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }

    pub(super) fn hex(&mut self, v: usize) {
        let mut digits = [0u8; 16];
        let mut n = 0;
        let mut v = v;
        while n == 0 || v != 0 {
            digits[15 - n] = b"0123456789abcdef"[v & 15];
            v >>= 4;
            n += 1;
        }
        self.push(b"0x");
        self.push(&digits[16 - n..]);
    }
}

pub(super) fn abort(what: Misuse, p: usize) -> ! {
    let mut line = Line {
        text: [0; 256],
        len: 0,
    };
    line.push(b"memledger: ");
    line.push(what.text().as_bytes());
    line.push(b": ");
    line.hex(p);
    if let Some(u) = MM.arena.unit_of(p) {
        line.push(b", unit ");
        line.hex(MM.arena.address(u));
    }
    line.push(b"\n");
    line.write();
    print_frames();
    // SAFETY: ends the process; nothing is expected of its state.
    unsafe { libc::abort() }
}

/// Prints module and offset of each return address found by frame pointers or, where there are none, by the words of the stack
/// that point into code: rough, but it needs nothing that could fail here.
fn print_frames() {
    let sp: usize;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags))
    };
    // Only this page of the stack is known to be readable.
    let end = (sp | 4095) + 1;
    let mut printed = 0;
    let mut at = sp;
    while at < end && printed < 12 {
        // SAFETY: an aligned word of the page that the stack pointer is in.
        let word = unsafe { *(at as *const usize) };
        at += 8;
        let mut info = core::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: `dladdr` accepts any address; `info` is read only if it says that it filled it.
        let known = unsafe { libc::dladdr(word as *const _, info.as_mut_ptr()) != 0 };
        if word < 4096 || !known {
            continue;
        }
        // SAFETY: zeroed or filled: both valid.
        let info = unsafe { info.assume_init() };
        if info.dli_fname.is_null() || info.dli_sname.is_null() && word & 15 == 0 {
            continue;
        }
        // SAFETY: `dladdr` gives NUL-terminated names.
        let name = unsafe { core::ffi::CStr::from_ptr(info.dli_fname) };
        let mut line = Line {
            text: [0; 256],
            len: 0,
        };
        line.push(b"  from ");
        line.push(name.to_bytes());
        line.push(b"+");
        line.hex(word - info.dli_fbase as usize);
        if !info.dli_sname.is_null() {
            // SAFETY: as above.
            let symbol = unsafe { core::ffi::CStr::from_ptr(info.dli_sname) };
            line.push(b" ");
            line.push(symbol.to_bytes());
        }
        line.push(b"\n");
        line.write();
        printed += 1;
    }
}
