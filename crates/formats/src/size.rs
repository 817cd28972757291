//! Sizes in bytes as text: as the kernel prints them, as `numfmt` prints them, and as people write them.

use crate::allocinfo::SpecError;

const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// A size as the kernel's `string_get_size()` prints it in binary units, as in the report at an out-of-memory kill:
/// three digits, rounded half up, `125 MiB`, `58.2 MiB`, `8.17 MiB`, `0 B`. Negative sizes get a sign.
#[must_use]
pub fn kernel(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    let size = bytes.unsigned_abs();
    if size == 0 {
        return "0 B".to_owned();
    }
    let power = exponent(size);
    let unit = if power == 0 {
        "B".to_owned()
    } else {
        format!("{}iB", UNITS[power])
    };
    let mut whole = size >> (10 * power);
    // Thousandths, from the ten bits below the point only, as the kernel does.
    let fraction = if power == 0 {
        0
    } else {
        (((size >> (10 * (power - 1))) & 1023) * 1000) >> 10
    };
    let digits = match whole {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let mut thousandths = fraction + [500, 50, 5][digits];
    if thousandths >= 1000 {
        thousandths -= 1000;
        whole += 1;
    }
    match digits {
        2 => format!("{sign}{whole}.{:02} {unit}", thousandths / 10),
        1 => format!("{sign}{whole}.{} {unit}", thousandths / 100),
        _ => format!("{sign}{whole} {unit}"),
    }
}

/// A size as `numfmt --to=iec` prints it: below 1024 as it is; else one decimal below ten units, none above; rounded away
/// from zero: `1.0K`, `22M`, `1023`.
#[must_use]
pub fn iec(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    let size = bytes.unsigned_abs();
    let mut power = exponent(size);
    if power == 0 {
        return bytes.to_string();
    }
    let unit = 1_u64 << (10 * power);
    let tenths = (u128::from(size) * 10).div_ceil(u128::from(unit));
    if tenths <= 99 {
        return format!("{sign}{}.{}{}", tenths / 10, tenths % 10, UNITS[power]);
    }
    let whole = size.div_ceil(unit);
    if whole < 1024 {
        return format!("{sign}{whole}{}", UNITS[power]);
    }
    power += 1;
    format!("{sign}1.0{}", UNITS[power])
}

/// The power of 1024 that leaves 1 to 1023 before the point.
fn exponent(size: u64) -> usize {
    (size.max(1).ilog2() / 10) as usize
}

/// Reads a size: a decimal number, then `B`, or one of `K M G T P E` in either case, alone or with `iB` (both 1024), or with `B`
/// (1000, as in coreutils), a blank before it or not: `4096`, `10K`, `1.5MiB`, `64 KiB`, `2GB`. A fraction of a byte is dropped.
///
/// # Errors
/// If it is not a size, or does not fit in 64 bits.
pub fn parse_size(text: &str) -> Result<u64, SpecError> {
    let bad = || {
        SpecError(format!(
            "not a size: {text:?}; write 4096, 10K, 1.5MiB or 2GB"
        ))
    };
    let text_trimmed = text.trim();
    let end = text_trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text_trimmed.len());
    let (number, unit) = text_trimmed.split_at(end);
    let factor = unit_factor(unit.trim_start()).ok_or_else(bad)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || number.len() > 40 || fraction.contains('.') {
        return Err(bad());
    }
    // More decimals than these are below a byte in every unit that fits.
    let fraction = &fraction[..fraction.len().min(18)];
    let digits = |s: &str| {
        if s.is_empty() {
            Some(0)
        } else {
            s.parse::<u128>().ok()
        }
    };
    let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| bad())?);
    let whole = digits(whole)
        .and_then(|w| w.checked_mul(factor))
        .ok_or_else(bad)?;
    let part = digits(fraction).ok_or_else(bad)? * factor / scale;
    whole
        .checked_add(part)
        .and_then(|sum| u64::try_from(sum).ok())
        .ok_or_else(bad)
}

fn unit_factor(unit: &str) -> Option<u128> {
    let mut chars = unit.chars();
    let Some(first) = chars.next() else {
        return Some(1);
    };
    let first = first.to_ascii_uppercase();
    if first == 'B' {
        return chars.as_str().is_empty().then_some(1);
    }
    let power = u32::try_from(UNITS.iter().position(|u| u.chars().eq([first]))?).ok()?;
    match chars.as_str() {
        "" | "iB" | "ib" | "i" => Some(1024_u128.pow(power)),
        "B" | "b" => Some(1000_u128.pow(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn as_the_kernel_prints() {
        // 125, 35.0 and 8.17 MiB were seen in show_mem reports, beside the same rows of allocinfo.
        let seen = [
            (0, "0 B"),
            (131_067_904, "125 MiB"),
            (36_700_160, "35.0 MiB"),
            (8_565_136, "8.17 MiB"),
            (512, "512 B"),
            (1, "1.00 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1_048_575, "1024 KiB"),
            (10_235, "10.00 KiB"),
            (i64::MAX, "8.00 EiB"),
            (i64::MIN, "-8.00 EiB"),
        ];
        for (bytes, text) in seen {
            assert_eq!(kernel(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn as_numfmt_prints() {
        let mut sizes: Vec<i64> = vec![
            0,
            1,
            999,
            1000,
            1023,
            1024,
            1025,
            i64::MAX / 2,
            -1,
            -1023,
            -1024,
            -5000,
        ];
        for power in (0..60).step_by(10) {
            for units in [1_i64, 2, 9, 10, 11, 99, 100, 999, 1000, 1023] {
                let Some(at) = units.checked_mul(1 << power) else {
                    continue;
                };
                sizes.extend((-2..3).map(|d| at.saturating_add(d * ((1 << power) / 20 + 1))));
                sizes.extend((-2..3).map(|d| at.saturating_add(d)));
            }
        }
        let Ok(mut child) = Command::new("numfmt")
            .arg("--to=iec")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            println!("skipped: no numfmt here");
            return;
        };
        let input: String = sizes.iter().map(|s| format!("{s}\n")).collect();
        let mut stdin = child.stdin.take().expect("piped");
        // Small enough for the pipe.
        stdin.write_all(input.as_bytes()).expect("numfmt reads");
        drop(stdin);
        let output = child.wait_with_output().expect("numfmt ends");
        let output = String::from_utf8(output.stdout).expect("ASCII");
        assert_eq!(output.lines().count(), sizes.len());
        for (size, line) in sizes.iter().zip(output.lines()) {
            assert_eq!(iec(*size), line, "{size}");
        }
    }

    #[test]
    fn sizes_are_read() {
        let good = [
            ("0", 0),
            ("4096", 4096),
            ("10K", 10_240),
            ("10k", 10_240),
            ("1.5MiB", 1_572_864),
            ("64 KiB", 65_536),
            ("2GB", 2_000_000_000),
            ("7B", 7),
            (".5K", 512),
            ("1.K", 1024),
            ("0.0009765625K", 1),
            (" 15E ", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in [
            "",
            ".",
            "K",
            "-1",
            "1.2.3",
            "1X",
            "1KiX",
            "16E",
            "18446744073709551616",
            "1e3",
            "٣",
            "1 2",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
