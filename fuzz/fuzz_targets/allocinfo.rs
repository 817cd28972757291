//! Any bytes are read without a panic; the rows found are printed and read back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memledger_formats::allocinfo::{self, Row, Version, kernel_total, merge_by_key, total};

fuzz_target!(|bytes: &[u8]| {
    let parsed = allocinfo::read(bytes).expect("memory does not fail");
    let mut printed = Vec::new();
    allocinfo::write(&mut printed, Version::V2_0, &parsed.rows)
        .expect("rows that were read can be printed");
    let again = allocinfo::read(printed.as_slice()).expect("memory does not fail");
    assert_eq!(again.bad, []);
    assert_eq!(again.rows, parsed.rows);

    // What was printed once is printed the same again.
    let mut twice = Vec::new();
    allocinfo::write(&mut twice, Version::V2_0, &again.rows).expect("as above");
    assert_eq!(printed, twice);

    let sums = kernel_total(&parsed.rows);
    assert_eq!(sums.gross, total(&parsed.rows));
    let calls = wrapping_calls(&parsed.rows);
    assert_eq!(calls, wrapping_calls(&merge_by_key(parsed.rows)));
});

fn wrapping_calls(rows: &[Row]) -> u64 {
    rows.iter()
        .fold(0_u64, |sum, row| sum.wrapping_add(row.calls))
}
