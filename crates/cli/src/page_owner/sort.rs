//! `memledger page-owner sort`: pages of a dump, grouped and sorted as the kernel's `page_owner_sort` promises.
//!
//! Only groups are kept, each with the text of its first record. Groups come out of a map ordered by what makes them equal,
//! then a stable sort brings them into the order asked for.

use super::input::{named, open};
use crate::{Failure, Result};
use clap::Args as ClapArgs;
use memledger_formats::page_owner::tool::{self, Blocks, allocators};
use memledger_formats::page_owner::{Bad, Item, Reader, Record};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;

/// Losses that are shown in full.
const SHOWN: usize = 20;

const NOTES: &str = "\
Keys: pid (p), tgid (tg), name (n), stacktrace (st), allocator (ator); for --sort also txt (T), alloc_ts (at), \
free_ts (ft), times, pages; for --cull also free (f).

--kernel-compat prints what the tool of Linux 6.12 prints, byte for byte: it ignores --sort, sees no slab pages, keeps the \
time in the text with -a, wraps page counts at 31 bits, and drops a last record without an empty line.

Exit codes:
  0  done
  1  done, but some of the input could not be read; stderr says which lines
  2  wrong usage or failure";

/// `memledger page-owner sort`.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = NOTES)]
#[allow(clippy::struct_excessive_bools, reason = "the tool's options")]
pub(crate) struct Sort {
    /// Sort by time of allocation
    #[arg(short = 'a', group = "order")]
    alloc: bool,
    /// Sort by memory
    #[arg(short = 'm', group = "order")]
    memory: bool,
    /// Sort by pid
    #[arg(short = 'p', group = "order")]
    by_pid: bool,
    /// Sort by tgid
    #[arg(short = 'P', group = "order")]
    by_tgid: bool,
    /// Sort by name of the task
    #[arg(short = 'n', group = "order")]
    by_name: bool,
    /// Sort by time of the last free
    #[arg(short = 'r', group = "order")]
    release: bool,
    /// Sort by stack
    #[arg(short = 's', group = "order")]
    stack: bool,
    /// Sort by number of records (default)
    #[arg(short = 't', group = "order")]
    times: bool,
    /// Leave out pages that have been released
    #[arg(short = 'f')]
    unreleased: bool,
    /// Sort by these keys, as in n,+pid,-tgid
    #[arg(long, value_name = "[+|-]KEY,...", allow_hyphen_values = true)]
    sort: Option<String>,
    /// Group by these keys
    #[arg(long, value_name = "KEY,...")]
    cull: Option<String>,
    /// Only these threads
    #[arg(
        long,
        value_name = "PID,...",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pid: Vec<i32>,
    /// Only these processes
    #[arg(
        long,
        value_name = "TGID,...",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    tgid: Vec<i32>,
    /// Only tasks of these names
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    name: Vec<String>,
    /// Print exactly what the kernel's tool prints
    #[arg(long, conflicts_with_all = ["release", "unreleased"])]
    kernel_compat: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "kernel_compat")]
    json: bool,
    /// What /sys/kernel/debug/page_owner printed, also packed (xz, gzip, zstd); - = standard input
    input: PathBuf,
    /// Where to write; - = standard output
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Pid,
    Tgid,
    Name,
    Stack,
    Allocator,
    Text,
    Alloc,
    Freed,
    Released,
    Times,
    Pages,
}

fn key(word: &str) -> Option<Key> {
    Some(match word {
        "pid" | "p" => Key::Pid,
        "tgid" | "tg" => Key::Tgid,
        "name" | "n" => Key::Name,
        "stacktrace" | "st" => Key::Stack,
        "allocator" | "ator" => Key::Allocator,
        "txt" | "T" => Key::Text,
        "alloc_ts" | "at" => Key::Alloc,
        "free_ts" | "ft" => Key::Freed,
        "free" | "f" => Key::Released,
        "times" => Key::Times,
        "pages" => Key::Pages,
        _ => return None,
    })
}

/// Pages that are alike.
#[derive(Debug, Default)]
struct Group {
    times: u64,
    pages: u64,
    pid: i32,
    tgid: i32,
    comm: Vec<u8>,
    text: Vec<u8>,
    stack: Vec<u8>,
    allocator: u8,
    ts: u64,
    free_ts: u64,
    released: bool,
}

impl Group {
    fn compare(&self, other: &Group, key: Key) -> Ordering {
        match key {
            Key::Pid => self.pid.cmp(&other.pid),
            Key::Tgid => self.tgid.cmp(&other.tgid),
            Key::Name => self.comm.cmp(&other.comm),
            Key::Stack => self.stack.cmp(&other.stack),
            Key::Allocator => self.allocator.cmp(&other.allocator),
            Key::Text => self.text.cmp(&other.text),
            Key::Alloc => self.ts.cmp(&other.ts),
            Key::Freed => self.free_ts.cmp(&other.free_ts),
            Key::Released => self.released.cmp(&other.released),
            Key::Times => self.times.cmp(&other.times),
            Key::Pages => self.pages.cmp(&other.pages),
        }
    }

    /// What makes records one group, as bytes.
    fn identity(&self, cull: &[Key], out: &mut Vec<u8>) {
        out.clear();
        for key in cull {
            match key {
                Key::Pid => out.extend(self.pid.to_le_bytes()),
                Key::Tgid => out.extend(self.tgid.to_le_bytes()),
                Key::Name => {
                    out.extend(self.comm.len().to_le_bytes());
                    out.extend(&self.comm);
                }
                Key::Allocator => out.push(self.allocator),
                Key::Released => out.push(u8::from(self.released)),
                Key::Stack => {
                    out.extend(self.stack.len().to_le_bytes());
                    out.extend(&self.stack);
                }
                _ => {
                    out.extend(self.text.len().to_le_bytes());
                    out.extend(&self.text);
                }
            }
        }
    }
}

/// What was asked for.
#[derive(Debug)]
struct Plan {
    /// As given.
    cull: Vec<Key>,
    /// What makes records one group.
    group: Vec<Key>,
    order: Vec<(Key, bool)>,
    compat: bool,
}

impl Plan {
    fn new(args: &Sort) -> Result<Plan> {
        let bad =
            |option: &str, text: &str| Failure::Message(format!("wrong key in --{option}: {text}"));
        let mut cull = Vec::new();
        // The order in which the kernel's tool compares them.
        let known = [
            Key::Stack,
            Key::Pid,
            Key::Tgid,
            Key::Name,
            Key::Allocator,
            Key::Released,
        ];
        if let Some(text) = &args.cull {
            for word in text.split(',') {
                let key = key(word)
                    .filter(|k| known.contains(k))
                    .ok_or_else(|| bad("cull", text))?;
                cull.push(key);
            }
        }
        cull = known.into_iter().filter(|k| cull.contains(k)).collect();
        let mut order = Vec::new();
        if let Some(text) = &args.sort {
            for word in text.split(',') {
                let down = word.starts_with('-');
                let name = word.strip_prefix(['-', '+']).unwrap_or(word);
                let key = key(name)
                    .filter(|k| *k != Key::Released)
                    .ok_or_else(|| bad("sort", text))?;
                order.push((key, down));
            }
        }
        let single = [
            (args.alloc, Key::Alloc),
            (args.memory, Key::Pages),
            (args.by_pid, Key::Pid),
            (args.by_tgid, Key::Tgid),
            (args.by_name, Key::Name),
            (args.release, Key::Freed),
            (args.stack, Key::Stack),
        ];
        let letter = single
            .into_iter()
            .find_map(|(set, key)| set.then_some((key, key == Key::Pages)));
        if args.kernel_compat || order.is_empty() {
            order = vec![letter.unwrap_or((Key::Times, true))];
        } else {
            order.extend(letter);
        }
        let group = match (cull.is_empty(), args.kernel_compat) {
            (false, _) => cull.clone(),
            (true, true) => vec![Key::Text],
            // The allocator is printed, but is not all in the text.
            (true, false) => vec![Key::Text, Key::Allocator],
        };
        Ok(Plan {
            cull,
            group,
            order,
            compat: args.kernel_compat,
        })
    }
}

/// All groups.
#[derive(Debug, Default)]
struct Groups {
    map: HashMap<Vec<u8>, usize>,
    list: Vec<Group>,
    identity: Vec<u8>,
}

impl Groups {
    /// Adds a record, given as a group of its own; it is left to be used again.
    fn add(&mut self, plan: &Plan, new: &mut Group) {
        new.identity(&plan.group, &mut self.identity);
        match self.map.get(&self.identity) {
            Some(at) => {
                let group = &mut self.list[*at];
                group.times += new.times;
                group.pages = group.pages.saturating_add(new.pages);
                if !plan.compat {
                    group.ts = group.ts.min(new.ts);
                }
            }
            None => {
                self.map.insert(self.identity.clone(), self.list.len());
                self.list.push(std::mem::take(new));
            }
        }
    }

    /// In the order asked for; equal ones in the order of what makes them different.
    fn sorted(mut self, plan: &Plan) -> Vec<Group> {
        let by = |a: &Group, b: &Group, key| a.compare(b, key);
        self.list.sort_by(|a, b| {
            plan.group
                .iter()
                .fold(Ordering::Equal, |o, k| o.then_with(|| by(a, b, *k)))
        });
        self.list.sort_by(|a, b| {
            plan.order.iter().fold(Ordering::Equal, |o, (k, down)| {
                o.then_with(|| {
                    // The tool's page counts are signed.
                    let c = match (plan.compat, k) {
                        (true, Key::Pages) => wrapped(a.pages).cmp(&wrapped(b.pages)),
                        _ => by(a, b, *k),
                    };
                    if *down { c.reverse() } else { c }
                })
            })
        });
        self.list
    }
}

#[allow(clippy::cast_possible_truncation, reason = "as the kernel's tool does")]
fn wrapped(pages: u64) -> i32 {
    pages as u32 as i32
}

/// The kernel's own rules. Returns the groups and what was lost.
fn read_compat(from: Box<dyn Read>, args: &Sort, plan: &Plan) -> io::Result<(Groups, u64)> {
    let mut blocks = Blocks::new(from);
    let mut groups = Groups::default();
    let mut new = Group::default();
    while let Some(block) = blocks.next_block()? {
        new.pid = tool::pid(block.text);
        new.tgid = tool::tgid(block.text);
        new.comm.clear();
        new.comm.extend(tool::comm(block.text));
        if !wanted(args, new.pid, new.tgid, &new.comm) {
            continue;
        }
        new.times = 1;
        new.pages = u64::from(tool::pages(block.text).cast_unsigned());
        new.ts = tool::time(block.text);
        new.allocator = tool::allocator(&block);
        new.text.clear();
        if args.alloc {
            new.text.extend(block.text);
        } else {
            tool::without_time(block.text, &mut new.text);
        }
        let stack = tool::stack(&new.text).to_vec();
        new.stack = stack;
        groups.add(plan, &mut new);
    }
    let lost = blocks.lost();
    Ok((groups, lost))
}

fn wanted(args: &Sort, pid: i32, tgid: i32, comm: &[u8]) -> bool {
    (args.pid.is_empty() || args.pid.contains(&pid))
        && (args.tgid.is_empty() || args.tgid.contains(&tgid))
        && (args.name.is_empty() || args.name.iter().any(|n| n.as_bytes() == comm))
}

/// The allocators of a record: slab pages say so in a line of their own.
fn allocator(record: &Record<'_>, slab: bool) -> u8 {
    let place = record.place();
    let block = tool::Block {
        text: record.body_text(),
        place: b"",
    };
    let mut bits = tool::allocator(&block) & allocators::VMALLOC;
    if place.block_type == b"CMA" || place.migrate_type == b"CMA" {
        bits |= allocators::CMA;
    }
    if slab || place.slab_flag() {
        bits |= allocators::SLAB;
    }
    if bits == 0 { allocators::OTHERS } else { bits }
}

/// Right. Returns the groups and what was lost.
fn read_right(
    from: Box<dyn Read>,
    args: &Sort,
    plan: &Plan,
) -> io::Result<(Groups, Vec<Bad>, u64)> {
    let mut reader = Reader::new(from);
    let mut groups = Groups::default();
    let mut new = Group::default();
    let (mut bad, mut lost) = (Vec::new(), 0_u64);
    while let Some(item) = reader.next_item()? {
        let record = match item {
            Item::Record(record) => record,
            Item::Bad(loss) => {
                lost += 1;
                if bad.len() < SHOWN {
                    bad.push(loss);
                }
                continue;
            }
        };
        let head = &record.head;
        (new.pid, new.tgid) = (head.pid.unwrap_or(-1), head.tgid.unwrap_or(-1));
        new.ts = head.ts.unwrap_or(0);
        new.free_ts = head.free_ts.unwrap_or(0);
        new.released = new.free_ts > new.ts;
        if (args.unreleased && new.released) || !wanted(args, new.pid, new.tgid, record.comm()) {
            continue;
        }
        new.comm.clear();
        new.comm.extend(record.comm());
        (new.times, new.pages) = (1, head.pages());
        new.allocator = allocator(&record, record.body().slab);
        fill_text(&mut new, &record);
        groups.add(plan, &mut new);
    }
    Ok((groups, bad, lost))
}

/// Texts of a record: without times, and without empty lines, which damaged dumps have in stacks.
fn fill_text(new: &mut Group, record: &Record<'_>) {
    let body = record.body();
    new.stack.clear();
    new.stack.extend_from_slice(&without_blank(body.stack));
    if let (true, Some(handle)) = (body.stack.is_empty(), body.handle) {
        new.stack.extend(format!("handle: {handle}\n").bytes());
    }
    let (line, (ts, free)) = (record.head_text(), record.times_at());
    new.text.clear();
    new.text.extend_from_slice(&line[..ts.start]);
    if free.is_empty() {
        new.text.extend_from_slice(&line[ts.end..]);
    } else {
        new.text.extend_from_slice(&line[ts.end..free.start]);
        new.text.extend_from_slice(&line[free.end..]);
    }
    new.text.push(b'\n');
    new.text
        .extend_from_slice(&without_blank(record.body_text()));
}

fn without_blank(lines: &[u8]) -> Cow<'_, [u8]> {
    if !lines.starts_with(b"\n") && !lines.windows(2).any(|two| two == b"\n\n") {
        return Cow::Borrowed(lines);
    }
    let lines = lines.split_inclusive(|b| *b == b'\n');
    Cow::Owned(lines.filter(|l| *l != b"\n").flatten().copied().collect())
}

fn print(out: &mut impl Write, args: &Sort, plan: &Plan, groups: &[Group]) -> io::Result<()> {
    for group in groups {
        if args.kernel_compat {
            let times = wrapped(group.times);
            write!(out, "{times} times, {} pages", wrapped(group.pages))?;
        } else {
            write!(out, "{} times, {} pages", group.times, group.pages)?;
        }
        if plan.cull.is_empty() {
            writeln!(out, ", {}:", allocator_text(group.allocator))?;
            out.write_all(&group.text)?;
            out.write_all(b"\n")?;
            continue;
        }
        let has = |key| plan.cull.contains(&key);
        if has(Key::Pid) || !args.pid.is_empty() {
            write!(out, ", PID {}", group.pid)?;
        }
        if has(Key::Tgid) || !args.tgid.is_empty() {
            write!(out, ", TGID {}", group.tgid)?;
        }
        if has(Key::Name) || !args.name.is_empty() {
            write!(out, ", task_comm_name: ")?;
            out.write_all(&group.comm)?;
        }
        if has(Key::Allocator) {
            write!(out, ", {}", allocator_text(group.allocator))?;
        }
        if has(Key::Released) {
            let text = if group.released {
                "RELEASED"
            } else {
                "UNRELEASED"
            };
            write!(out, ", {text}")?;
        }
        if has(Key::Stack) {
            out.write_all(b":\n")?;
            out.write_all(&group.stack)?;
        }
        out.write_all(b"\n")?;
    }
    out.flush()
}

fn allocator_names(bits: u8) -> Vec<&'static str> {
    let names = [
        (allocators::CMA, "CMA"),
        (allocators::SLAB, "SLAB"),
        (allocators::VMALLOC, "VMALLOC"),
        (allocators::OTHERS, "OTHERS"),
    ];
    let found = names.into_iter().filter(|(bit, _)| bits & bit != 0);
    found.map(|(_, name)| name).collect()
}

/// With the blank at the end that the tool prints.
fn allocator_text(bits: u8) -> String {
    format!("allocated by {} ", allocator_names(bits).join(" "))
}

/// What all pages of a group have in common.
fn group_json(group: &Group, plan: &Plan) -> Value {
    let mut row = json!({ "times": group.times, "pages": group.pages });
    let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes));
    let all = plan.cull.is_empty();
    let fields = [
        (Key::Pid, "pid", json!(group.pid)),
        (Key::Tgid, "tgid", json!(group.tgid)),
        (Key::Name, "name", text(&group.comm)),
        (
            Key::Allocator,
            "allocator",
            json!(allocator_names(group.allocator)),
        ),
        (Key::Released, "released", json!(group.released)),
        (Key::Stack, "stack", text(&group.stack)),
        (Key::Text, "text", text(&group.text)),
    ];
    for (key, name, value) in fields {
        if plan.cull.contains(&key) || all && key != Key::Released {
            row[name] = value;
        }
    }
    row
}

fn print_json(
    out: &mut impl Write,
    plan: &Plan,
    groups: &[Group],
    bad: &[Bad],
    lost: u64,
) -> Result<()> {
    let groups: Vec<Value> = groups.iter().map(|g| group_json(g, plan)).collect();
    let bad = bad
        .iter()
        .map(|b| json!({ "line": b.line, "why": b.kind.to_string(), "text": b.text }));
    let all = json!({ "groups": groups, "lost": lost, "bad": bad.collect::<Vec<_>>() });
    serde_json::to_writer(&mut *out, &all)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Reads, groups, sorts, prints.
pub(crate) fn run(args: &Sort) -> Result<u8> {
    let plan = Plan::new(args)?;
    let from = open(&args.input)?;
    let failed = |error: io::Error| named(&args.input, &error);
    let (groups, bad, lost) = if args.kernel_compat {
        let (groups, lost) = read_compat(from, args, &plan).map_err(failed)?;
        if lost > 0 {
            eprintln!(
                "memledger: dropped as the kernel's tool does: {lost} bytes or more at the end of the input"
            );
        }
        (groups, Vec::new(), lost)
    } else {
        read_right(from, args, &plan).map_err(failed)?
    };
    for loss in &bad {
        let text = crate::output::clean(&loss.text);
        eprintln!("memledger: line {}: {}: {text}", loss.line, loss.kind);
    }
    if lost > bad.len() as u64 && !args.kernel_compat {
        eprintln!("memledger: {lost} places of the input could not be read");
    }
    let sorted = groups.sorted(&plan);
    let out: Box<dyn Write> = if args.output.as_os_str() == "-" {
        Box::new(io::stdout())
    } else {
        Box::new(File::create(&args.output).map_err(|error| named(&args.output, &error))?)
    };
    let mut out = BufWriter::with_capacity(1 << 16, out);
    if args.json {
        print_json(&mut out, &plan, &sorted, &bad, lost)?;
    } else {
        print(&mut out, args, &plan, &sorted)?;
    }
    Ok(u8::from(lost > 0))
}
