//! `memledger slabinfo` of programs and of a kernel's file.

mod common;

use common::{library, output, shared, temporary};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn slabs_of_a_program_hold_its_small_objects() {
    let Some(lib) = library() else { return };
    let code = "import sys; x = [str(i) * 4 for i in range(50000)]; print('ready', flush=True); sys.stdin.read()";
    let Ok(mut child) = Command::new("python3")
        .args(["-c", code])
        .env("LD_PRELOAD", lib)
        .env("PYTHONMALLOC", "malloc")
        .env_remove("MEMLEDGER")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    else {
        eprintln!("skipped: no python3");
        return;
    };
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pid = child.id().to_string();
    let (code, text, err) = output(&["slabinfo", "-p", &pid]);
    let json = output(&["slabinfo", "-p", &pid, "--json"]).1;
    let total = output(&["allocinfo", "-p", &pid, "--json"]).1;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        text.starts_with("slabinfo - version: 2.1\n# name            <active_objs> "),
        "{text}"
    );
    let json: Value = serde_json::from_str(&json).unwrap();
    let caches = json["caches"].as_array().unwrap();
    assert_eq!(text.lines().count(), caches.len() + 2);
    let number = |c: &Value, name: &str| c[name].as_u64().unwrap();
    for c in caches {
        assert!(c["name"].as_str().unwrap().starts_with("malloc-"), "{c}");
        assert_eq!(
            number(c, "num_objs"),
            number(c, "num_slabs") * number(c, "objperslab")
        );
        assert!(number(c, "active_slabs") <= number(c, "num_slabs"), "{c}");
        assert!(number(c, "active_objs") <= number(c, "num_objs"), "{c}");
    }
    // All objects but the large ones.
    let total: Value = serde_json::from_str(&total).unwrap();
    let calls: u64 = caches.iter().map(|c| number(c, "active_objs")).sum();
    let all = number(&total["total"], "calls");
    assert!(
        calls > 50_000 && calls <= all && calls + 1000 > all,
        "{calls} of {all}"
    );
}

#[test]
fn a_kernels_file_comes_back() {
    let Some(dir) = shared("kernel-data/linux-7.3/state") else {
        return;
    };
    let path = dir.join("slabinfo.0-boot.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let (code, out, err) = output(&["slabinfo", path.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(out, text);
    let broken = temporary("slabinfo");
    std::fs::write(&broken, text.replacen("0 : slabdata", "0 : slab", 1)).unwrap();
    let (code, _, err) = output(&["slabinfo", broken.to_str().unwrap()]);
    assert_eq!((code, err.trim()), (1, "memledger: 1 lines are no rows: 3"));
    std::fs::remove_file(broken).unwrap();
    assert_eq!(output(&["slabinfo"]).0, 2);
    assert_eq!(output(&["slabinfo", "/nonexistent"]).0, 2);
}
