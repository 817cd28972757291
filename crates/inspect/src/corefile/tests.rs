use super::*;
use proptest::prelude::*;

/// A core file of two segments: 16 bytes at 0x1000, and at 0x2000 a page of which `have` bytes are there.
fn core(have: u64) -> Vec<u8> {
    let mut out = vec![0; 64];
    out[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(16, &4_u16.to_le_bytes());
    put(18, &62_u16.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    put(54, &56_u16.to_le_bytes());
    put(56, &2_u16.to_le_bytes());
    for (offset, addr, size) in [(176_u64, 0x1ff0_u64, 16_u64), (192, 0x2000, have)] {
        out.extend([1_u32.to_le_bytes(), 6_u32.to_le_bytes()].concat());
        for word in [offset, addr, 0, size, size.max(16), 4096] {
            out.extend(word.to_le_bytes());
        }
    }
    out.extend((0..16 + have).map(|n| n as u8));
    out
}

fn open(bytes: Vec<u8>) -> (CoreMemory, CoreInfo) {
    let (mem, _, info) = CoreMemory::from_bytes(Box::new(bytes), None).unwrap();
    (mem, info)
}

#[test]
fn reads_cross_segments_and_stop_where_bytes_are_missing() {
    let (mem, info) = open(core(16));
    let mut buf = [0; 20];
    mem.read(0x1ff4, &mut buf).unwrap();
    assert_eq!(buf, std::array::from_fn(|i| i as u8 + 4));
    assert!(mem.read(0x200d, &mut [0; 4]).is_err());
    assert!(mem.read(0x1fef, &mut [0; 1]).is_err());
    assert_eq!(info.truncated(), 0);
    let (left_out, _) = open(core(0));
    assert!(left_out.read(0x2000, &mut [0; 1]).is_err());
}

#[test]
fn a_truncated_file_gives_what_is_there_and_says_what_is_not() {
    let whole = core(16);
    for cut in 0..whole.len() {
        match CoreMemory::from_bytes(Box::new(whole[..cut].to_vec()), None) {
            Err(error) => assert!(cut < 176, "{cut}: {error}"),
            Ok((mem, _, info)) => {
                assert_eq!(info.truncated(), (whole.len() - cut) as u64);
                assert_eq!(mem.read(0x1ff0, &mut [0; 16]).is_ok(), cut >= 192);
            }
        }
    }
}

#[test]
fn what_is_no_core_file_is_named() {
    let says = |bytes: &[u8]| {
        let error = CoreMemory::from_bytes(Box::new(bytes.to_vec()), None).unwrap_err();
        error.to_string()
    };
    assert!(says(b"\x28\xb5\x2f\xfd and more").contains("zstd -d"));
    assert!(says(b"text").contains("not a core file"));
    let mut other = core(16);
    other[16] = 2;
    assert!(says(&other).contains("another kind of ELF"));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..600), at in any::<u64>()) {
        let head = core(16);
        for (to, from) in bytes.iter_mut().zip(&head[..60]) {
            *to = *from;
        }
        if let Ok((mem, process, _)) = CoreMemory::from_bytes(Box::new(bytes), None) {
            let _ = mem.read(at, &mut [0; 64]);
            let _ = Snapshot::read_from(&mem, process);
        }
    }
}
use crate::Snapshot;
