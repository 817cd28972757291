//! An assembler for the few BPF instructions that the programs need (`Documentation/bpf/standardization/instruction-set.rst`).
//!
//! Jumps name labels, which may be bound before or after; [`Asm::finish`] puts the distances in.

/// A register: `r0` is the result of calls, `r1` to `r5` their arguments, `r6` to `r9` survive calls, `r10` is the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg(u8);

/// Result of calls, and of the program.
pub const R0: Reg = Reg(0);
/// First argument of calls; the context at the start.
pub const R1: Reg = Reg(1);
/// Second argument.
pub const R2: Reg = Reg(2);
/// Third argument.
pub const R3: Reg = Reg(3);
/// Fourth argument.
pub const R4: Reg = Reg(4);
/// Survives calls.
pub const R6: Reg = Reg(6);
/// Survives calls.
pub const R7: Reg = Reg(7);
/// Survives calls.
pub const R8: Reg = Reg(8);
/// Survives calls.
pub const R9: Reg = Reg(9);
/// End of the stack frame of 512 bytes; read only.
pub const FRAME: Reg = Reg(10);

/// When to jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum If {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Below, without sign.
    Lt,
    /// At least, without sign.
    Ge,
}

impl If {
    fn code(self) -> u8 {
        match self {
            If::Eq => 0x10,
            If::Ne => 0x50,
            If::Lt => 0xa0,
            If::Ge => 0x30,
        }
    }
}

/// A place to jump to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A program that is being written.
#[derive(Debug, Default)]
pub struct Asm {
    code: Vec<u64>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Asm {
    /// An empty program.
    #[must_use]
    pub fn new() -> Self {
        Asm::default()
    }

    /// Appends an instruction.
    fn op(&mut self, code: u8, dst: Reg, src: Reg, offset: i16, value: i32) {
        let regs = u64::from(dst.0 | src.0 << 4) << 8;
        let offset = u64::from(offset.cast_unsigned()) << 16;
        let value = u64::from(value.cast_unsigned()) << 32;
        self.code.push(u64::from(code) | regs | offset | value);
    }

    /// `dst = src`.
    pub fn mov(&mut self, dst: Reg, src: Reg) {
        self.op(0xbf, dst, src, 0, 0);
    }

    /// `dst = value`.
    pub fn set(&mut self, dst: Reg, value: i32) {
        self.op(0xb7, dst, R0, 0, value);
    }

    /// `dst = value`, of 64 bits.
    pub fn set64(&mut self, dst: Reg, value: u64) {
        self.wide(dst, R0, value);
    }

    /// `dst =` the map with this file descriptor.
    pub fn map(&mut self, dst: Reg, fd: i32) {
        self.wide(dst, R1, u64::from(fd.cast_unsigned()));
    }

    fn wide(&mut self, dst: Reg, src: Reg, value: u64) {
        let low = (value as u32).cast_signed();
        let high = ((value >> 32) as u32).cast_signed();
        self.op(0x18, dst, src, 0, low);
        self.op(0, R0, R0, 0, high);
    }

    /// `dst += value`.
    pub fn add(&mut self, dst: Reg, value: i32) {
        self.op(0x07, dst, R0, 0, value);
    }

    /// `dst >>= bits`, without sign.
    pub fn shr(&mut self, dst: Reg, bits: i32) {
        self.op(0x77, dst, R0, 0, bits);
    }

    /// `dst = -dst`.
    pub fn neg(&mut self, dst: Reg) {
        self.op(0x87, dst, R0, 0, 0);
    }

    /// `dst = src[offset]`, 8 bytes, or 4 without sign.
    pub fn load(&mut self, dst: Reg, src: Reg, offset: i16, size: usize) {
        self.op(if size == 4 { 0x61 } else { 0x79 }, dst, src, offset, 0);
    }

    /// `dst[offset] = src`, 8 bytes.
    pub fn store(&mut self, dst: Reg, offset: i16, src: Reg) {
        self.op(0x7b, dst, src, offset, 0);
    }

    /// `dst[offset] = value`, 8 bytes.
    pub fn store_value(&mut self, dst: Reg, offset: i16, value: i32) {
        self.op(0x7a, dst, R0, offset, value);
    }

    /// `dst[offset] += src`, 8 bytes, atomically.
    pub fn atomic_add(&mut self, dst: Reg, offset: i16, src: Reg) {
        self.op(0xdb, dst, src, offset, 0);
    }

    /// Calls a helper of the kernel by its number (`enum bpf_func_id`).
    pub fn call(&mut self, helper: i32) {
        self.op(0x85, R0, R0, 0, helper);
    }

    /// A new label, to be bound once.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label stands for the next instruction.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.op(0x05, R0, R0, 0, 0);
    }

    /// Jumps if the comparison with a number holds.
    pub fn jump_if(&mut self, a: Reg, cond: If, value: i32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.op(0x05 | cond.code(), a, R0, 0, value);
    }

    /// Jumps if the comparison of two registers holds.
    pub fn jump_if_reg(&mut self, a: Reg, cond: If, b: Reg, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.op(0x0d | cond.code(), a, b, 0, 0);
    }

    /// Ends the program; `r0` is its result.
    pub fn exit(&mut self) {
        self.op(0x95, R0, R0, 0, 0);
    }

    /// The instructions, 8 bytes each. `None`: a label was not bound, or a jump is too far.
    #[must_use]
    pub fn finish(mut self) -> Option<Vec<u64>> {
        for (at, label) in &self.jumps {
            let to = i64::try_from(self.labels[label.0]?).ok()?;
            let distance = i16::try_from(to - i64::try_from(*at).ok()? - 1).ok()?;
            self.code[*at] |= u64::from(distance.cast_unsigned()) << 16;
        }
        Some(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings() {
        let mut asm = Asm::new();
        asm.mov(R6, R1);
        asm.load(R7, R6, 8, 8);
        asm.set64(R2, 0x1234_5678_9abc_def0);
        asm.atomic_add(R0, 16, R9);
        asm.store_value(FRAME, -8, -1);
        let code = asm.finish().unwrap();
        let want = [
            0x0000_0000_0000_16bf,
            0x0000_0000_0008_6779,
            0x9abc_def0_0000_0218,
            0x1234_5678_0000_0000,
            0x0000_0000_0010_90db,
            0xffff_ffff_fff8_0a7a,
        ];
        assert_eq!(code, want);
    }

    #[test]
    fn jumps_in_both_directions() {
        let mut asm = Asm::new();
        let (top, end) = (asm.label(), asm.label());
        asm.bind(top);
        asm.jump_if(R1, If::Eq, 0, end);
        asm.jump(top);
        asm.bind(end);
        asm.exit();
        let code = asm.finish().unwrap();
        assert_eq!(code[0] >> 16 & 0xffff, 1);
        assert_eq!(code[1] >> 16 & 0xffff, 0xfffe);
    }

    #[test]
    fn unbound_label() {
        let mut asm = Asm::new();
        let label = asm.label();
        asm.jump(label);
        assert_eq!(asm.finish(), None);
    }
}
