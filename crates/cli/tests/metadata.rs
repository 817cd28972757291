//! `memledger allocinfo --metadata`: memledger's own memory beside the rows, live and in saved text.

mod common;

use common::{library, memledger, output, temporary};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn of_a_process_and_of_saved_text() {
    let Some(lib) = library() else { return };
    let code = "import sys; x = [object() for _ in range(100000)]; print('ready', flush=True); sys.stdin.read()";
    let Ok(mut child) = Command::new("python3")
        .args(["-c", code])
        .env("LD_PRELOAD", lib)
        .env("PYTHONMALLOC", "malloc")
        .env("MEMLEDGER", "1,page_owner=on,trace=on")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    else {
        eprintln!("skipped: no python3");
        return;
    };
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = child.id().to_string();
    let (code, out, err) = output(&["allocinfo", "-p", &pid, "--json"]);
    assert_eq!(code, 0, "{err}");
    let json: Value = serde_json::from_str(&out).unwrap();
    let number = |v: &Value, name: &str| v[name].as_u64().unwrap();
    let own = |purpose: &str| {
        let rows = json["metadata"].as_array().unwrap();
        let row = rows.iter().find(|r| r["func"] == purpose);
        let row = row.unwrap_or_else(|| panic!("no {purpose}: {out}"));
        (number(row, "bytes"), number(row, "calls"))
    };
    let (bytes, units) = own("unit_table");
    assert_eq!(bytes, units * 128);
    assert_eq!(own("page_owner"), (units * 64, units));
    assert!(own("tracer").0 >= 4096);
    let live: u64 = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| number(r, "bytes"))
        .sum();
    assert_eq!(number(&json["total"], "bytes"), live);
    assert!(own("slab_cells").0 >= 4 * 100_000);

    let raw = output(&["allocinfo", "-p", &pid, "--raw", "--metadata"]).1;
    let plain = output(&["allocinfo", "-p", &pid, "--raw"]).1;
    let table = output(&["allocinfo", "-p", &pid, "--metadata"]).1;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        raw.contains(" memledger:0 func:unit_table metadata:yes \n"),
        "{raw}"
    );
    assert!(!plain.contains("metadata:yes"));
    assert!(
        table.contains("memledger itself, in no total above:"),
        "{table}"
    );

    // Saved, it adds up as before.
    let file = temporary("own.txt");
    std::fs::write(&file, &raw).unwrap();
    let path = file.to_str().unwrap();
    let total = |args: &[&str]| -> u64 {
        let out = output(&[&["allocinfo", path, "--json"], args].concat()).1;
        let json: Value = serde_json::from_str(&out).unwrap();
        assert!(json["metadata"].as_array().unwrap().len() > 8);
        number(&json["total"], "bytes")
    };
    assert_eq!(total(&[]), live);
    assert_eq!(total(&["--metadata"]), live);
    let (_, text, _) = output(&["allocinfo", path]);
    assert!(
        text.contains("rows of memledger's own memory left out (--metadata)"),
        "{text}"
    );
    let copied = memledger()
        .args(["allocinfo", path, "--raw"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&copied.stdout), raw);
    std::fs::remove_file(file).unwrap();
}
