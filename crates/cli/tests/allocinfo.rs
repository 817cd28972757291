//! `memledger allocinfo`, `ctl`, `generate` and the options that all share, as a user types them.

mod common;

use common::{memledger, output, shared, text};
use std::io::Write;
use std::process::Stdio;

const SMALL: &str = "allocinfo - version: 2.0
#     <size>  <calls> <tag info>
           0        0 init/main.c:1433 func:do_initcalls 
     2359296      576 mm/slub.c:3347 func:alloc_slab_page accurate:no 
        2048        8 drivers/lab/lableak.c:21 [lableak] func:lableak_init 
     1048576        1 mm/page_ext.c:270 func:alloc_page_ext 
      524288     4096 fs/inode.c:300 func:alloc_inode 
";

/// Runs `memledger allocinfo - ARGS` on a text.
fn on(input: &str, args: &[&str]) -> (i32, String, String) {
    let mut child = memledger()
        .args(["allocinfo", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Wrong usage ends it before it reads.
    let written = child.stdin.take().unwrap().write_all(input.as_bytes());
    assert!(written.is_ok() || child.wait().unwrap().code() == Some(2));
    text(&child.wait_with_output().unwrap())
}

/// Functions in the order in which a table shows them.
fn shown(table: &str) -> Vec<&str> {
    const KNOWN: [&str; 5] = [
        "do_initcalls",
        "alloc_slab_page",
        "lableak_init",
        "alloc_page_ext",
        "alloc_inode",
    ];
    table
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| KNOWN.contains(word)))
        .collect()
}

#[test]
fn default_is_largest_first_without_empty_rows() {
    let (code, out, err) = on(SMALL, &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(
        shown(&out),
        [
            "alloc_slab_page",
            "alloc_page_ext",
            "alloc_inode",
            "lableak_init"
        ]
    );
    assert!(
        out.contains("2.25 MiB") && out.contains("[lableak]") && out.contains("accurate:no"),
        "{out}"
    );
    assert!(!out.contains('\x1b'), "colour in a pipe");
}

#[test]
fn totals_do_not_count_slab_pages_twice() {
    let (_, out, _) = on(SMALL, &["--bytes"]);
    let line = |what: &str| {
        out.lines()
            .find(|line| line.contains(what))
            .unwrap_or_else(|| panic!("no {what}: {out}"))
    };
    let first = |line: &str| {
        line.split_whitespace()
            .next()
            .unwrap()
            .parse::<i64>()
            .unwrap()
    };
    assert_eq!(first(line("total of")), 2048 + 1_048_576 + 524_288);
    assert_eq!(first(line("charged twice")), 2_359_296);
    assert_eq!(
        first(line("  plain sum")),
        2_359_296 + 2048 + 1_048_576 + 524_288
    );
}

#[test]
fn zero_rows_on_demand() {
    let (_, out, _) = on(SMALL, &["--zero"]);
    assert_eq!(shown(&out).last(), Some(&"do_initcalls"));
}

#[test]
fn sorting() {
    assert_eq!(
        shown(&on(SMALL, &["--sort", "-calls"]).1),
        [
            "alloc_inode",
            "alloc_slab_page",
            "lableak_init",
            "alloc_page_ext"
        ]
    );
    assert_eq!(
        shown(&on(SMALL, &["--sort=func"]).1),
        [
            "alloc_inode",
            "alloc_page_ext",
            "alloc_slab_page",
            "lableak_init"
        ]
    );
    assert_eq!(
        shown(&on(SMALL, &["--sort", "-module,+bytes"]).1),
        [
            "lableak_init",
            "alloc_inode",
            "alloc_page_ext",
            "alloc_slab_page"
        ]
    );
    let (code, _, err) = on(SMALL, &["--sort", "nosuch"]);
    assert_eq!(code, 2);
    assert!(err.contains("nosuch"), "{err}");
}

#[test]
fn filters() {
    assert_eq!(
        shown(&on(SMALL, &["--filter", "module=lableak"]).1),
        ["lableak_init"]
    );
    assert_eq!(
        shown(&on(SMALL, &["--filter", "func=alloc_*", "--filter", "file=mm/"]).1),
        ["alloc_slab_page", "alloc_page_ext"]
    );
    assert_eq!(
        shown(&on(SMALL, &["--filter", "line=300"]).1),
        ["alloc_inode"]
    );
    assert_eq!(
        shown(
            &on(
                SMALL,
                &["--filter", "min-size=1M", "--filter", "max-size=1MiB"]
            )
            .1
        ),
        ["alloc_page_ext"]
    );
    assert_eq!(
        shown(&on(SMALL, &["--filter", "module=", "--top", "1"]).1),
        ["alloc_slab_page"]
    );
    assert_eq!(on(SMALL, &["--filter", "colour=red"]).0, 2);
    assert_eq!(on(SMALL, &["--filter", "min-size=x"]).0, 2);
}

#[test]
fn raw_is_the_input() {
    assert_eq!(on(SMALL, &["--raw"]), (0, SMALL.to_owned(), String::new()));
    // Also if it is odd, as long as it can be read.
    let crlf = SMALL.replace('\n', "\r\n");
    assert_eq!(on(&crlf, &["--raw"]).1, crlf);
}

#[test]
fn raw_rows_keep_their_form() {
    let (code, out, _) = on(SMALL, &["--raw", "--sort=-calls", "--top=2"]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines,
        [
            "allocinfo - version: 2.0",
            "#     <size>  <calls> <tag info>",
            "      524288     4096 fs/inode.c:300 func:alloc_inode ",
            "     2359296      576 mm/slub.c:3347 func:alloc_slab_page accurate:no ",
        ]
    );
}

#[test]
fn raw_works_in_the_pipeline_of_the_kernels_documentation() {
    let script = format!(
        "{} allocinfo - --raw | sort -g | tail -n 2 | numfmt --to=iec",
        env!("CARGO_BIN_EXE_memledger")
    );
    let mut child = std::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(SMALL.as_bytes())
        .unwrap();
    let (code, out, _) = text(&child.wait_with_output().unwrap());
    assert_eq!(code, 0);
    let words: Vec<&str> = out.split_whitespace().collect();
    assert_eq!(words[..2], ["1.0M", "1"], "{out}");
    assert!(out.contains("2.3M"), "{out}");
}

#[test]
fn bad_lines_are_told_and_the_rest_is_shown() {
    let input = SMALL.replace(
        "        2048        8 drivers",
        "        20x8        8 drivers",
    );
    for args in [&[][..], &["--json"], &["--raw"]] {
        let (code, out, err) = on(&input, args);
        assert_eq!(code, 1, "{args:?}");
        assert!(err.contains("line 5"), "{err}");
        assert!(out.contains("alloc_inode"), "{out}");
    }
    let (_, cut, err) = on(&SMALL[..SMALL.len() - 12], &[]);
    assert!(err.contains("line 7: truncated"), "{err}");
    assert!(!cut.contains("alloc_in "), "{cut}");
}

#[test]
fn json_has_all_rows_and_totals() {
    let (code, out, _) = on(SMALL, &["--json", "--zero"]);
    assert_eq!(code, 0);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["version"], "2.0");
    assert_eq!(value["rows"].as_array().unwrap().len(), 5);
    assert_eq!(value["rows"][0]["func"], "alloc_slab_page");
    assert_eq!(value["rows"][0]["accurate"], false);
    assert_eq!(value["rows"][3]["module"], "lableak");
    assert_eq!(value["kernel_total"]["backing"]["bytes"], 2_359_296);
    assert_eq!(value["total"]["calls"], 576 + 8 + 1 + 4096);
}

#[test]
fn the_kernels_file_where_there_is_none() {
    let (code, out, err) = output(&["allocinfo", "--kernel-file", "/nonexistent/allocinfo"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert_eq!(err.lines().count(), 1);
    assert!(err.contains("CONFIG_MEM_ALLOC_PROFILING"), "{err}");
}

#[test]
fn usage() {
    assert_eq!(output(&["allocinfo"]).0, 2);
    assert_eq!(output(&["allocinfo", "--kernel", "-p", "1"]).0, 2);
    assert_eq!(output(&["allocinfo", "/nonexistent/file"]).0, 2);
    assert_eq!(output(&["allocinfo", "/"]).0, 2);
    assert_eq!(output(&["nosuch"]).0, 2);
    assert_eq!(output(&["ctl", "-p", "1", "nosuch=1"]).0, 2);
    let (code, out, _) = output(&["--version"]);
    assert_eq!(code, 0);
    assert!(out.starts_with("memledger "), "{out}");
}

#[test]
fn a_process_without_a_ledger_is_one_clear_line() {
    let own = std::process::id().to_string();
    for args in [
        &["allocinfo", "-p", &own][..],
        &["ctl", "-p", &own, "mem_profiling"],
        &["ctl", "-p", &own, "mem_profiling=0"],
    ] {
        let (code, out, err) = output(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(err.contains("no ledger"), "{err}");
    }
    let (code, _, err) = output(&["allocinfo", "-p", "4194999"]);
    assert_eq!(code, 2);
    assert!(err.contains("no such process"), "{err}");
}

#[test]
fn help_has_examples() {
    for sub in ["run", "allocinfo", "ctl", "generate"] {
        let (code, help, _) = output(&[sub, "--help"]);
        assert_eq!(code, 0);
        let examples = help
            .lines()
            .filter(|line| line.trim_start().starts_with("memledger ") && line.starts_with("  "));
        assert!(examples.count() >= 2, "{sub}: {help}");
    }
    let (_, help, _) = output(&["--help"]);
    assert!(help.contains("Exit codes"), "{help}");
}

#[test]
fn colour() {
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = memledger();
        command
            .args(["allocinfo", "-"])
            .args(args)
            .envs(variables.iter().copied());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(SMALL.as_bytes())
            .unwrap();
        text(&child.wait_with_output().unwrap()).1.contains('\x1b')
    };
    assert!(!run(&[], &[]));
    assert!(run(&["--color", "always"], &[]));
    assert!(
        run(&["--color=always"], &[("NO_COLOR", "1")]),
        "an option is stronger than the environment"
    );
    assert!(run(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!run(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!run(&["--color=never"], &[("CLICOLOR_FORCE", "1")]));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let many = SMALL.to_owned()
        + &"     1048576        1 mm/page_ext.c:270 func:alloc_page_ext \n".repeat(100_000);
    let path = common::temporary("many.txt");
    std::fs::write(&path, many).unwrap();
    for args in ["--raw", "--json", "--top 0"] {
        let script = format!(
            "{{ {} allocinfo {} {args}; echo $? >&2; }} | head -n 1",
            env!("CARGO_BIN_EXE_memledger"),
            path.display()
        );
        let out = std::process::Command::new("bash")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(text(&out).2.trim(), "0", "{args}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn generated_texts() {
    for (what, word) in [
        ("man", ".TH memledger"),
        ("bash", "_memledger"),
        ("zsh", "#compdef memledger"),
        ("fish", "complete -c memledger"),
    ] {
        let (code, out, err) = output(&["generate", what]);
        assert_eq!((code, err.as_str()), (0, ""), "{what}");
        assert!(out.contains(word), "{what}");
        assert!(out.contains("children"), "{what} lacks the options of run");
    }
    let dir = common::temporary("man");
    std::fs::create_dir_all(&dir).unwrap();
    assert_eq!(
        output(&["generate", "man", "--dir", dir.to_str().unwrap()]).0,
        0
    );
    for page in [
        "memledger.1",
        "memledger-run.1",
        "memledger-allocinfo.1",
        "memledger-ctl.1",
    ] {
        assert!(dir.join(page).is_file(), "{page}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn real_captures() {
    let Some(data) = shared("kernel-data") else {
        return;
    };
    let mut files = 0;
    for kernel in std::fs::read_dir(data).unwrap().flatten() {
        let Ok(entries) = std::fs::read_dir(kernel.path()) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().into_string().unwrap();
            if !name.starts_with("allocinfo.") || !name.ends_with(".txt") {
                continue;
            }
            files += 1;
            let path = entry.path();
            let original = std::fs::read(&path).unwrap();
            let raw = memledger()
                .args(["allocinfo", "--raw"])
                .arg(&path)
                .output()
                .unwrap();
            assert_eq!(raw.stdout, original, "{}", path.display());
            assert!(raw.status.success());
            let json = memledger()
                .args(["allocinfo", "--json", "--zero"])
                .arg(&path)
                .output()
                .unwrap();
            let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
            let plain: i64 = String::from_utf8_lossy(&original)
                .lines()
                .filter_map(|line| line.split_whitespace().next()?.parse::<i64>().ok())
                .sum();
            assert_eq!(value["total"]["bytes"], plain, "{}", path.display());
            // The rows of the largest ten are those that sort -g gives.
            let top = memledger()
                .args(["allocinfo", "--raw", "--top=10"])
                .arg(&path)
                .output()
                .unwrap();
            let top = String::from_utf8(top.stdout).unwrap();
            let mut bytes: Vec<i64> = String::from_utf8_lossy(&original)
                .lines()
                .filter_map(|line| line.split_whitespace().next()?.parse().ok())
                .collect();
            bytes.sort_unstable_by(|a, b| b.cmp(a));
            let shown: Vec<i64> = top
                .lines()
                .skip(2)
                .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
                .collect();
            bytes.truncate(shown.len());
            bytes.retain(|bytes| *bytes != 0);
            assert_eq!(shown, bytes, "{}", path.display());
        }
    }
    assert!(files > 0, "no captures found");
}

#[test]
fn the_last_block_of_a_kernel_log_is_shown() {
    let log = "[    1.0] Memory allocations (profiling is currently turned on):\n\
               [    1.1]     9.00 KiB        9 old.c:9 func:old\n\
               [    1.2] Memory allocations (profiling is currently turned on):\n\
               [    1.3]     1.53 GiB   402420 mm/memory.c:1289 func:folio_prealloc\n\
               [    1.4]      167 MiB    42861 mm/shmem.c:1938 [mod] func:shmem_alloc_folio\n\
               [    1.5] Memory cgroup min protection 0kB\n";
    let path = std::env::temp_dir().join(format!("memledger-oom-{}", std::process::id()));
    std::fs::write(&path, log).unwrap();
    let (code, out, err) = text(
        &memledger()
            .args(["allocinfo", "--bytes", "--oom"])
            .arg(&path)
            .output()
            .unwrap(),
    );
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(
        out.contains("1642824990") && out.contains("folio_prealloc"),
        "{out}"
    );
    assert!(out.contains("shmem_alloc_folio"), "{out}");
    assert!(!out.contains("old.c"), "{out}");
    assert!(out.contains("the last of 2 such blocks"), "{out}");
    std::fs::write(&path, "nothing\n").unwrap();
    let (code, _, err) = text(
        &memledger()
            .args(["allocinfo", "--oom"])
            .arg(&path)
            .output()
            .unwrap(),
    );
    assert_eq!(code, 2);
    assert!(err.contains("Memory allocations:"), "{err}");
    std::fs::remove_file(&path).unwrap();
}
