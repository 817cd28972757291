//! Memory of a process, read without its help and without stopping it.

use std::io;

/// One piece to read in a batch.
#[derive(Debug)]
pub struct Span<'a> {
    /// Address in the process.
    pub addr: u64,
    /// Where to; its length is the number of bytes.
    pub buf: &'a mut [u8],
    /// Set when all of `buf` was read.
    pub ok: bool,
}

/// Memory that can be read by address: a live process, or a core file.
pub trait Memory {
    /// Reads `buf.len()` bytes at `addr`, across borders of segments; an error if any byte of it cannot be read.
    fn read(&self, addr: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Reads many pieces; sets [`Span::ok`] of each that was read whole. Never fails as a whole.
    fn read_many(&self, spans: &mut [Span<'_>]) {
        for s in spans {
            s.ok = self.read(s.addr, s.buf).is_ok();
        }
    }
}

/// Memory of a live process.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
}

impl ProcessMemory {
    /// Opens the memory of process `pid`.
    pub fn open(pid: u32) -> crate::Result<Self> {
        Ok(ProcessMemory { pid })
    }

    /// Writes `data` at `addr`.
    pub fn write(&self, addr: u64, data: &[u8]) -> io::Result<()> {
        let _ = (addr, data, self.pid);
        todo!()
    }
}

impl Memory for ProcessMemory {
    fn read(&self, _addr: u64, _buf: &mut [u8]) -> io::Result<()> {
        todo!()
    }
}
