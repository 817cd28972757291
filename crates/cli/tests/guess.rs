//! What is said of guesses at the wrappers of stripped programs.

mod common;

use common::{library, memledger, temporary, text};
use std::path::Path;
use std::process::{Command, Stdio};

/// `memledger run` of a stripped program with wrappers; its report. `None` if it cannot be had here.
fn report(options: &[&str]) -> Option<String> {
    let library = library()?;
    let program = temporary(&format!("wrappers{}", options.concat()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../inspect/tests/fixture/wrappers.c");
    let built = Command::new("cc")
        .args(["-O2", "-s", "-fno-optimize-sibling-calls", "-o"])
        .args([&program, &source])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("skipped: cc does not work here");
        return None;
    }
    let out = memledger()
        .env("MEMLEDGER_LIB", library)
        .args(["run", "--at", "exit", "--top", "4"])
        .args(options)
        .arg("--")
        .arg(&program)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    std::fs::remove_file(&program).unwrap();
    let (code, _, report) = text(&out);
    assert_eq!(code, 0, "{report}");
    Some(report)
}

#[test]
fn guesses_are_said_and_can_be_forbidden() {
    let (Some(with), Some(without)) = (report(&[]), report(&["--no-guess"])) else {
        return;
    };
    let note = "4 rows charged past 2 functions without a name";
    assert_eq!(with.matches(note).count(), 1, "{with}");
    assert!(!without.contains("charged past"), "{without}");
    // Users instead of one wrapper; none of the calls is lost.
    assert!(!with.contains(" 231 "), "{with}");
    assert!(without.contains(" 231 "), "{without}");
}

#[test]
fn guesses_in_json() {
    let (Some(with), Some(without)) = (report(&["--json"]), report(&["--json", "--no-guess"]))
    else {
        return;
    };
    let guesses = |report: &str| {
        let value: serde_json::Value = serde_json::from_str(report).unwrap();
        let process = &value["processes"][0];
        let rows = process["rows"].as_array().unwrap();
        let guessed = rows.iter().filter(|row| row["guessed"] == true).count();
        (
            process["guessed_wrappers"].as_array().unwrap().len(),
            guessed,
        )
    };
    assert_eq!(guesses(&with), (2, 4));
    assert_eq!(guesses(&without), (0, 0));
}
