//! What is printed reads back as the same row, whatever is in it; and no input makes the parser panic.

use memledger_formats::allocinfo::{self, Filter, Row, SortSpec, Version, parse_row, write_row};
use memledger_formats::size;
use proptest::prelude::*;

/// Names made of the pieces that the grammar gives a meaning to.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(" ".to_owned()),
        Just("\t".to_owned()),
        Just("\n".to_owned()),
        Just("func:".to_owned()),
        Just(" func".to_owned()),
        Just(" func:x".to_owned()),
        Just(":12".to_owned()),
        Just(":12 [m]".to_owned()),
        Just(" [".to_owned()),
        Just("]".to_owned()),
        Just("accurate:no".to_owned()),
        Just(" k:v".to_owned()),
        Just("\\".to_owned()),
        Just("040".to_owned()),
        Just("377".to_owned()),
        Just("\r".to_owned()),
        "[a-z:0-9\\\\ ]{0,4}",
        any::<char>().prop_map(String::from),
        Just("<T as core::ops::Fn<(u8, u8)>>::call".to_owned()),
        Just("operator new(unsigned long)".to_owned()),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|p| p.concat())
}

fn extra() -> impl Strategy<Value = (String, String)> {
    (
        "[a-z][a-z0-9_]{0,6}",
        nasty().prop_filter("empty", |v| !v.is_empty()),
    )
        .prop_filter("is Row::accurate", |(k, v)| k != "accurate" || v != "no")
}

prop_compose! {
    fn rows()(
        bytes: i64, calls: u64, file in nasty(), line: u32, module in prop::option::of(nasty()), func in nasty(),
        accurate: bool, extra in prop::collection::vec(extra(), 0..3),
    ) -> Row {
        Row { bytes, calls, file, line, module, func, accurate, extra }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_row_reads_back(row in rows()) {
        let line = write_row(&row, Version::V2_0);
        prop_assert_eq!(line.matches('\n').count(), 1);
        prop_assert_eq!(parse_row(line.trim_end_matches('\n')), Ok(row.clone()), "{:?}", line);
        // Blanks and a carriage return at the end change nothing.
        let crlf = line.replace(" \n", "   \r");
        prop_assert_eq!(parse_row(&crlf), Ok(row), "{:?}", crlf);
    }

    #[test]
    fn a_printed_file_reads_back(rows in prop::collection::vec(rows(), 0..5)) {
        let mut text = Vec::new();
        allocinfo::write(&mut text, Version::V2_0, &rows).expect("memory");
        let parsed = allocinfo::read(text.as_slice()).expect("memory");
        prop_assert_eq!(parsed.version, Some(Version::V2_0));
        prop_assert_eq!(parsed.bad, []);
        prop_assert_eq!(parsed.rows, rows);
    }

    #[test]
    fn version_1_keeps_all_but_the_tail(row in rows()) {
        let parsed = parse_row(write_row(&row, Version::V1_0).trim_end_matches('\n'));
        prop_assert_eq!(parsed, Ok(Row { accurate: true, extra: Vec::new(), ..row }));
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let parsed = allocinfo::read(bytes.as_slice()).expect("memory");
        let lines = bytes.split(|b| *b == b'\n').count();
        prop_assert!(parsed.rows.len() + parsed.bad.len() <= lines);
    }

    #[test]
    fn nearly_rows_are_rows_or_reported(tail in nasty(), cut in 0..200_usize) {
        let mut line = format!("1 1 a.c:1 [m] func:{tail}").replace('\n', " ");
        let cut = (0..=cut.min(line.len())).rev().find(|c| line.is_char_boundary(*c)).unwrap_or(0);
        line.truncate(cut);
        let parsed = allocinfo::read(line.as_bytes()).expect("memory");
        prop_assert_eq!(parsed.rows.len() + parsed.bad.len(), usize::from(!line.trim_matches(['\r', ' ', '\t']).is_empty()));
    }

    #[test]
    fn specs_never_panic(text in nasty()) {
        let _ = text.parse::<SortSpec>();
        let _ = text.parse::<Filter>().map(|f| f.matches(&Row::default()));
        let _ = size::parse_size(&text);
    }

    #[test]
    fn sizes_print_and_read_back(bytes: i64) {
        let (kernel, iec) = (size::kernel(bytes), size::iec(bytes));
        prop_assert!(kernel.len() <= 10 && iec.len() <= 6, "{} {}", kernel, iec);
        let magnitude = bytes.unsigned_abs();
        let read = size::parse_size(kernel.trim_start_matches('-')).expect("a size");
        prop_assert!(read.abs_diff(magnitude) <= magnitude / 100 + 1, "{} {}", bytes, kernel);
        let read = size::parse_size(iec.trim_start_matches('-')).expect("a size");
        prop_assert!(read >= magnitude.saturating_sub(1) && read - magnitude <= magnitude / 9 + 1, "{} {}", bytes, iec);
    }
}

#[test]
fn extra_words_that_could_not_be_read_back_are_refused() {
    for (key, value) in [
        ("K", "v"),
        ("", "v"),
        ("k", ""),
        ("k k", "v"),
        ("accurate", "no"),
    ] {
        let row = Row {
            extra: vec![(key.to_owned(), value.to_owned())],
            ..Row::default()
        };
        let e = allocinfo::write(Vec::new(), Version::V2_0, [&row]).expect_err(key);
        assert_eq!(e.kind(), std::io::ErrorKind::InvalidInput);
    }
}
