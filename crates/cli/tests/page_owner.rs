//! `memledger rss` and `memledger page-owner` on live programs.

mod common;

use common::{library, output, temporary};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program under the library; killed at the end.
struct Live(Child);

impl Live {
    fn start(lib: &Path, command: &[&str]) -> Option<Self> {
        let child = Command::new(command[0])
            .args(&command[1..])
            .env("LD_PRELOAD", lib)
            .env("PYTHONMALLOC", "malloc")
            .env_remove("MEMLEDGER")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        child.ok().map(Live)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Waits for a line of output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        let out = self.0.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn json(args: &[&str]) -> Value {
    let (code, out, err) = output(args);
    assert_eq!(code, 0, "{args:?}: {err}");
    serde_json::from_str(&out).unwrap()
}

fn rss(pid: &str) -> Value {
    json(&["rss", "-p", pid, "--json", "--top", "0"])
}

fn pinned(pid: &str) -> Value {
    json(&["page-owner", "pinned", "-p", pid, "--json", "--top", "0"])
}

fn number(v: &Value) -> i64 {
    v.as_i64().unwrap_or_else(|| panic!("no number: {v}"))
}

/// Sum of all lines is `rss`, which is within 1 % of what the kernel says; next to nothing changed meanwhile.
fn adds_up(v: &Value, what: &str) {
    let lines = v["lines"].as_object().unwrap();
    let sum: i64 = lines.values().map(number).sum();
    let (rss, vm_rss) = (number(&v["rss"]), number(&v["vm_rss"]));
    assert_eq!(sum, rss, "{what}: {v}");
    let near = |a: i64, b: i64| (a - b).abs() * 100 <= b;
    assert!(near(rss, vm_rss), "{what}: {rss} but VmRSS {vm_rss}");
    let drift = number(&lines["drift"]);
    assert!(near(rss - drift, rss), "{what}: drift {drift} of {rss}");
    let held: i64 = v["pinned_by"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| number(&p["held"]))
        .sum();
    assert_eq!(held, number(&lines["pinned"]), "{what}: shares");
}

#[test]
fn lines_add_up_for_ten_programs() {
    let Some(lib) = library() else { return };
    let threads = "import threading,time\n\
        def f():\n x=[bytes(i%5000) for i in range(20000)]; time.sleep(1000)\n\
        for i in range(4): threading.Thread(target=f).start()\n";
    let programs: [&[&str]; 14] = [
        &["cat"],
        &["sort"],
        &["sed", "s/a/b/"],
        &["awk", "{ print }"],
        &["grep", "x"],
        &["bash", "-c", "x=$(seq 20000); read y"],
        &["sh", "-c", "read x"],
        &["perl", "-e", "@a = map { \"x$_\" } 1..100000; <STDIN>"],
        &[
            "python3",
            "-c",
            "x = [str(i) for i in range(200000)]; input()",
        ],
        &["python3", "-c", threads],
        &["tail", "-f", "/dev/null"],
        &["sleep", "1000"],
        &["tr", "a", "b"],
        &["wc"],
    ];
    let mut live: Vec<(&[&str], Live)> = Vec::new();
    for command in programs {
        match Live::start(&lib, command) {
            Some(program) => live.push((command, program)),
            None => eprintln!("not installed: {}", command[0]),
        }
    }
    // They have nothing to do once they wait for input.
    std::thread::sleep(Duration::from_secs(6));
    assert!(live.len() >= 10, "only {} programs", live.len());
    for (command, program) in &live {
        adds_up(&rss(&program.pid()), &command.join(" "));
    }
    // Reading again, after the readers themselves brought in pages of zeros.
    for (command, program) in &live {
        adds_up(&rss(&program.pid()), &command.join(" "));
    }
}

const HOLES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define N (1 << 18)
__attribute__((noinline)) static void *passing(void) { char *p = malloc(64); memset(p, 1, 64); __asm__ volatile(""); return p; }
__attribute__((noinline)) static void *lasting(void) { char *p = malloc(64); memset(p, 2, 64); __asm__ volatile(""); return p; }
int main(void) {
    void **all = mmap(0, N * sizeof *all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < N; i++) all[i] = i % 64 ? passing() : lasting();
    for (int i = 0; i < N; i++) if (i % 64) free(all[i]);
    printf("ready\n");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn the_site_that_pins_is_named() {
    const N: i64 = 1 << 18;
    let Some(lib) = library() else { return };
    let (source, program) = (temporary("holes.c"), temporary("holes"));
    std::fs::write(&source, HOLES).unwrap();
    let cc = Command::new("cc")
        .args(["-g", "-O1", "-fno-omit-frame-pointer", "-o"])
        .args([&program, &source])
        .status();
    if !cc.is_ok_and(|s| s.success()) {
        eprintln!("skipped: no C compiler");
        return;
    }
    let mut live = Live::start(&lib, &[program.to_str().unwrap()]).unwrap();
    assert_eq!(live.line(), "ready\n");
    let pid = live.pid();
    let v = rss(&pid);
    adds_up(&v, "holes");
    let first = &pinned(&pid)["sites"][0];
    assert_eq!(first["func"], "lasting", "{first}");
    assert_eq!(v["pinned_by"][0]["func"], "lasting");
    assert_eq!(number(&first["objects"]), N / 64);
    assert_eq!(number(&first["live"]), N);
    // What was freed is held, all of it, but for the two slabs at the ends, of 64 KiB each.
    let held = number(&first["held"]);
    let freed = (N - N / 64) * 64;
    assert!((held - freed).abs() <= 2 << 16, "{held} of {freed}");
    assert!(number(&first["alone"]) >= freed - (2 << 16), "{first}");
    let slabs = number(&first["slabs"]);
    assert_eq!(number(&first["slab_bytes"]) % slabs, 0);
    let full = number(&first["slab_live"]) * 64;
    assert!((full - number(&first["slab_bytes"])).abs() < 64 * (2 << 16));
    let (code, out, _) = output(&["page-owner", "pinned", "-p", &pid, "--objects"]);
    assert_eq!(code, 0);
    assert!(
        out.contains("lasting") && out.contains("objects at 0x"),
        "{out}"
    );
    fragmentation(&pid, slabs);
    let _ = std::fs::remove_file(source);
    let _ = std::fs::remove_file(program);
}

/// The kernel's two files about free memory.
fn fragmentation(pid: &str, slabs: i64) {
    let (_, buddy, _) = output(&["page-owner", "buddyinfo", "-p", pid]);
    let words: Vec<&str> = buddy.split_whitespace().collect();
    assert_eq!(words[..4], ["Node", "0,", "zone", "Normal"]);
    assert_eq!(words.len(), 4 + 11);
    let (_, text, _) = output(&["page-owner", "pagetypeinfo", "-p", pid]);
    let row = |name: &str| -> Vec<u64> {
        let line = text
            .lines()
            .find(|l| l.contains(&format!("type {name:>12} ")));
        let numbers = line.unwrap().rsplit(name).next().unwrap();
        numbers
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect()
    };
    let (fixed, movable) = (row("Unmovable"), row("Movable"));
    let sums: Vec<u64> = fixed.iter().zip(&movable).map(|(a, b)| a + b).collect();
    let buddy: Vec<u64> = words[4..].iter().map(|n| n.parse().unwrap()).collect();
    assert_eq!(sums, buddy);
    // 64 KiB is the smallest run: order 4.
    assert_eq!(buddy[..4], [0; 4]);
    let blocks = text
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .nth(4)
        .unwrap();
    assert!(blocks.parse::<i64>().unwrap() >= slabs / 32, "{text}");
}

const PAGES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *kept[8];
__attribute__((noinline)) static void *buffer(void) { char *p = malloc(1 << 20); memset(p, 1, 1 << 20); __asm__ volatile(""); return p; }
__attribute__((noinline)) static void *zeroed(void) { char *p = calloc(1, 200000); __asm__ volatile(""); return p; }
__attribute__((noinline)) static void dropped(void) { char *volatile p = malloc(3 << 20); p[0] = 1; free(p); __asm__ volatile(""); }
static void *work(void *x) { dropped(); for (int i = 0; i < 7; i++) kept[i] = buffer(); kept[7] = zeroed(); dropped(); return x; }
int main(void) {
    pthread_t t;
    pthread_create(&t, 0, work, 0);
    pthread_setname_np(t, "pages,) ts 1");
    pthread_join(t, 0);
    printf("%d\n", getpid());
    fflush(stdout);
    pause();
}
"#;

/// Records of a dump: (order, head line, second line, the rest).
fn records(dump: &str) -> Vec<(u32, &str, &str, Vec<&str>)> {
    let record = |r| {
        let mut lines = str::lines(r);
        let (head, pfn) = (lines.next().unwrap(), lines.next().unwrap());
        let order = head.strip_prefix("Page allocated via order ").unwrap();
        let order = order.split(',').next().unwrap().parse().unwrap();
        (order, head, pfn, lines.collect())
    };
    dump.split_terminator("\n\n").map(record).collect()
}

#[test]
fn who_took_the_pages() {
    let Some(lib) = library() else { return };
    let (source, program) = (temporary("pages.c"), temporary("pages"));
    std::fs::write(&source, PAGES).unwrap();
    let cc = Command::new("cc")
        .args(["-g", "-O1", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    if !cc.is_ok_and(|s| s.success()) {
        eprintln!("skipped: no C compiler");
        return;
    }
    let start = |setting: &str| {
        let child = Command::new(&program)
            .env("LD_PRELOAD", &lib)
            .env("MEMLEDGER", setting)
            .stdout(Stdio::piped())
            .spawn();
        let mut live = Live(child.unwrap());
        live.line();
        live
    };
    let off = start("1");
    let (code, _, err) = output(&["page-owner", "dump", "-p", &off.pid()]);
    assert_eq!(code, 2);
    assert!(err.contains("MEMLEDGER=page_owner=on"), "{err}");
    let live = start("page_owner=on");
    let pid = live.pid();
    let (code, dump, err) = output(&["page-owner", "dump", "-p", &pid]);
    assert_eq!(code, 0, "{err}");
    let all = records(&dump);
    let of = |func: &str| -> Vec<_> {
        let first = format!(" {func}+0x");
        all.iter()
            .filter(|r| r.3.iter().any(|l| l.starts_with(&first)))
            .collect()
    };
    let pages = |rs: &[&(u32, &str, &str, Vec<&str>)]| rs.iter().map(|r| 1u64 << r.0).sum::<u64>();
    let buffers = of("buffer");
    assert_eq!(pages(&buffers), 7 * 256, "{dump}");
    // 200,000 bytes are 49 pages, in four units of 16.
    let zeroed = of("zeroed");
    assert_eq!(pages(&zeroed), 64);
    assert!(zeroed[0].1.contains("mask 0xdc0(GFP_KERNEL|__GFP_ZERO)"));
    assert!(of("dropped").is_empty());
    let (head, pfn, stack) = (buffers[0].1, buffers[0].2, &buffers[0].3);
    assert!(head.contains(&format!("tgid {pid} (")), "{head}");
    assert!(!head.contains(&format!("pid {pid}, tgid")), "{head}");
    assert!(pfn.contains(" type Movable Block ") && pfn.ends_with("Flags 0x0(node=0|zone=0)"));
    assert!(stack[0].starts_with(" buffer+0x") && stack[1].starts_with(" work+0x"));
    assert!(stack.len() <= 16);
    // In order of page, aligned, each once.
    let number = |r: &(u32, &str, &str, Vec<&str>)| {
        let hex =
            r.2.strip_prefix("PFN 0x")
                .unwrap()
                .split(' ')
                .next()
                .unwrap();
        u64::from_str_radix(hex, 16).unwrap()
    };
    for pair in all.windows(2) {
        let (a, b) = (number(&pair[0]), number(&pair[1]));
        assert!(a + (1 << pair[0].0) <= b && a % (1 << pair[0].0) == 0);
    }
    assert!(all[0].3[0].starts_with(" register_early_stack") && all[0].1.ends_with("ts 0 ns"));
    assert!(err.contains("256 early pages"), "{err}");
    let middle = number(&all[all.len() / 2]);
    let (_, tail, _) = output(&[
        "page-owner",
        "dump",
        "-p",
        &pid,
        "--seek",
        &format!("{middle:#x}"),
    ]);
    assert_eq!(records(&tail).len(), all.len() - all.len() / 2);
    counts(&pid, &all.iter().collect::<Vec<_>>());
    let (_, free, _) = output(&["page-owner", "dump", "-p", &pid, "--last-free"]);
    // The first buffer stands where the first dropped object was.
    let (_, last) = free.split_once("page last free ts ").unwrap();
    assert!(last.contains(" dropped+0x"), "{last}");
    let _ = std::fs::remove_file(source);
    let _ = std::fs::remove_file(program);
}

/// The three files about stacks agree with the dump.
fn counts(pid: &str, all: &[&(u32, &str, &str, Vec<&str>)]) {
    let early = |r: &&&(u32, &str, &str, Vec<&str>)| r.3[0].starts_with(" register_early");
    let pages = |r: &&(u32, &str, &str, Vec<&str>)| 1u64 << r.0;
    let owned: u64 = all.iter().filter(|r| !early(r)).map(pages).sum();
    let numbers = |text: &str| -> Vec<u64> {
        let n = |l: &str| l.strip_prefix("nr_base_pages: ")?.parse().ok();
        text.lines().filter_map(n).collect()
    };
    let (_, stacks, _) = output(&["page-owner", "stacks", "-p", pid]);
    let (_, handles, _) = output(&["page-owner", "handles", "-p", pid]);
    assert_eq!(numbers(&stacks).iter().sum::<u64>(), owned);
    assert_eq!(numbers(&stacks), numbers(&handles));
    let (_, many, _) = output(&[
        "page-owner",
        "stacks",
        "-p",
        pid,
        "--count-threshold",
        "0x100",
    ]);
    let want: Vec<u64> = numbers(&stacks).into_iter().filter(|&n| n >= 256).collect();
    assert_eq!(numbers(&many), want);
    let (_, both, _) = output(&["page-owner", "stacks-handles", "-p", pid]);
    // Also stacks that have nothing any more.
    assert!(both.contains(" dropped+0x") && !both.contains("nr_base_pages"));
    let handle = |text: &str| text.lines().filter(|l| l.starts_with("handle: ")).count();
    assert!(handle(&both) > handle(&handles));
    let args = ["page-owner", "dump", "-p", pid, "--filter", "mode=handle"];
    let (_, dump, _) = output(&args);
    assert_eq!(handle(&dump), all.len());
    assert!(!dump.contains("+0x"));
    let args = ["page-owner", "dump", "-p", pid, "--filter", "nid=1"];
    assert_eq!(output(&args).1, "");
}

#[test]
fn python_program_with_holes() {
    let Some(lib) = library() else { return };
    let code = "import sys\nkeep=[];x=[]\n\
        def last(): keep.append(bytearray(200))\n\
        for i in range(64000):\n (last if i % 64 == 0 else lambda: x.append(bytearray(200)))()\n\
        del x\nprint('ready', flush=True)\nsys.stdin.read()\n";
    let Some(mut live) = Live::start(&lib, &["python3", "-c", code]) else {
        eprintln!("skipped: no python3");
        return;
    };
    assert_eq!(live.line(), "ready\n");
    let pid = live.pid();
    adds_up(&rss(&pid), "python");
    let first = &pinned(&pid)["sites"][0];
    // 1000 survivors hold the memory of 63,000.
    let held = number(&first["held"]);
    assert!(number(&first["objects"]) >= 1000, "{first}");
    assert!((63_000 * 200..63_000 * 260).contains(&held), "{first}");
}

#[test]
fn redis_after_half_of_its_keys() {
    let Some(lib) = library() else { return };
    let port = "27391";
    let args = [
        "redis-server",
        "--port",
        port,
        "--save",
        "",
        "--appendonly",
        "no",
    ];
    let Some(live) = Live::start(&lib, &args) else {
        eprintln!("skipped: no redis-server");
        return;
    };
    std::thread::sleep(Duration::from_secs(2));
    let cli = |input: &str| {
        let mut c = Command::new("redis-cli")
            .args(["-p", port, "--pipe"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        c.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert!(c.wait().unwrap().success());
    };
    let value = "v".repeat(100);
    let set: String = (0..50_000)
        .map(|i| format!("SET k{i} {value}\r\n"))
        .collect();
    cli(&set);
    let before = number(&rss(&live.pid())["lines"]["pinned"]);
    let del: String = (0..50_000)
        .step_by(2)
        .map(|i| format!("DEL k{i}\r\n"))
        .collect();
    cli(&del);
    let v = rss(&live.pid());
    adds_up(&v, "redis");
    let pinned = number(&v["lines"]["pinned"]);
    // Each value takes at least 100 bytes, and each second is free now.
    assert!(pinned - before >= 25_000 * 100, "{before} -> {pinned}");
    let first = &v["pinned_by"][0];
    assert!(number(&first["held"]) >= 25_000 * 100, "{first}");
    assert!(number(&first["objects"]) >= 20_000, "{first}");
}

#[test]
fn errors_are_told() {
    let (code, _, err) = output(&["rss", "-p", "1073741823"]);
    assert_eq!(code, 2);
    assert!(err.contains("1073741823"), "{err}");
    let me = std::process::id().to_string();
    let (code, _, err) = output(&["page-owner", "pinned", "-p", &me]);
    assert_eq!(code, 2);
    assert!(err.starts_with("memledger: "), "{err}");
}
