//! Size classes: multiples of 8 up to 128, then eight classes a doubling, so that a slot is less than 12.5 % larger than
//! what was asked for (beyond the rounding to 8, or to 16 for callers that need it).

/// Number of size classes.
pub const CLASSES: usize = 80;
/// Largest slot of a slab, in bytes; more is a large object.
pub const MAX_SMALL: usize = 32768;

/// Bytes of a slot of `class`.
pub const fn size_of_class(class: usize) -> usize {
    if class < 16 {
        (class + 1) * 8
    } else {
        let d = (class - 16) / 8;
        let k = (class - 16) % 8;
        (128 << d) + (k + 1) * (16 << d)
    }
}

const fn compute(size: usize) -> usize {
    if size <= 128 {
        if size == 0 { 0 } else { size.div_ceil(8) - 1 }
    } else {
        let n = size - 1;
        let b = n.ilog2() as usize;
        16 + 8 * (b - 7) + ((n >> (b - 3)) & 7)
    }
}

const TABLE_MAX: usize = 1024;
static TABLE: [u8; TABLE_MAX / 8 + 1] = {
    let mut t = [0u8; TABLE_MAX / 8 + 1];
    let mut i = 0;
    while i < t.len() {
        t[i] = compute(i * 8) as u8;
        i += 1;
    }
    t
};

/// The class for `size` bytes (0 counts as 1). `size` must not exceed [`MAX_SMALL`].
#[inline(always)]
pub fn class_of(size: usize) -> usize {
    if size <= TABLE_MAX {
        // The index is at most TABLE_MAX / 8, so the bounds check folds away.
        TABLE[(size + 7) >> 3] as usize
    } else {
        compute(size)
    }
}

static TABLE_16: [u8; TABLE_MAX / 16 + 1] = {
    let mut t = [0u8; TABLE_MAX / 16 + 1];
    let mut i = 0;
    while i < t.len() {
        t[i] = compute(if i == 0 { 16 } else { i * 16 }) as u8;
        i += 1;
    }
    t
};

/// The class for `size` bytes whose slots are 16-aligned, if `size` (which may be 0) is at most 1024.
#[inline(always)]
pub fn class_of_16(size: usize) -> Option<usize> {
    (size <= TABLE_MAX).then(|| TABLE_16[(size + 15) >> 4] as usize)
}

/// The smallest class whose slots hold `size` bytes and are all aligned to `align` (a power of two, at most 64 KiB: slabs
/// begin at unit borders); `None` if only a large object will do.
pub fn class_aligned(size: usize, align: usize) -> Option<usize> {
    if size > MAX_SMALL {
        return None;
    }
    let mut class = class_of(size.max(1));
    while class < CLASSES {
        if size_of_class(class).is_multiple_of(align) {
            return Some(class);
        }
        class += 1;
    }
    None
}

/// Units of a slab of `class`.
pub const fn units_of_class(class: usize) -> u32 {
    match size_of_class(class) {
        0..=1024 => 1,
        1025..=4096 => 4,
        _ => 16,
    }
}

/// Entries moved between a thread's stack and central at once.
pub const fn batch_of_class(class: usize) -> usize {
    let n = 16384 / size_of_class(class);
    if n > 64 {
        64
    } else if n < 2 {
        2
    } else {
        n
    }
}

/// Entries a thread's stack holds at the most.
pub const fn capacity_of_class(class: usize) -> usize {
    2 * batch_of_class(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_fits_its_class_and_wastes_under_an_eighth() {
        for size in 1..=MAX_SMALL {
            let c = class_of(size);
            let slot = size_of_class(c);
            assert!(slot >= size, "{size} in {slot}");
            assert!(
                c == 0 || size_of_class(c - 1) < size,
                "{size}: class {c} is not the smallest"
            );
            if size > 64 {
                assert!(
                    (slot - size) * 8 < slot,
                    "{size} wastes {} of {slot}",
                    slot - size
                );
            }
        }
        assert_eq!(size_of_class(CLASSES - 1), MAX_SMALL);
    }

    #[test]
    fn sixteen_aligned_classes() {
        for size in 0..=TABLE_MAX {
            let slot = size_of_class(class_of_16(size).unwrap());
            assert!(slot >= size && slot.is_multiple_of(16) && slot < size.max(1) + 16 + size / 8);
        }
        assert_eq!(class_of_16(TABLE_MAX + 1), None);
    }

    #[test]
    fn aligned_classes_are_multiples() {
        for shift in 0..=15 {
            let align = 1 << shift;
            for size in [1, 24, 100, 4000, 20000] {
                if let Some(c) = class_aligned(size, align) {
                    assert_eq!(size_of_class(c) % align, 0);
                    assert!(size_of_class(c) >= size);
                } else {
                    assert!(align > 8192 || size > 16384);
                }
            }
        }
    }
}
