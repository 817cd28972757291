//! The report of a run: for each program its top rows, its sums, and what was lost.

use super::explain;
use super::snapshots::{End, Image, Seen};
use super::trace::Outcome;
use crate::Result;
use crate::args::{Moment, Run};
use crate::output::{
    Entry, Resolver, Table, Target, clean, counted, grouped, guess_note, row_json, total_json,
    wrappers_json,
};
use crate::source::{named_losses, notes};
use memledger_formats::allocinfo::Total;
use memledger_inspect::preflight::{self, Problem};
use memledger_inspect::{Snapshot, Sum};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Longest command line that a heading shows, in characters.
const LINE: usize = 100;

/// Prints the report of all programs.
pub(super) fn print(
    args: &Run,
    outcome: &Outcome,
    resolver: &mut Resolver,
    target: &mut Target,
) -> Result<()> {
    let (shown, others) = sorted(args, &outcome.images);
    if args.json {
        print_json(args, outcome, &shown, &others, resolver, target)?;
    } else {
        for (number, image) in shown.iter().enumerate() {
            if number > 0 {
                writeln!(target.out)?;
            }
            print_image(args, image, resolver, target)?;
        }
        print_others(args, &others, target)?;
        if let Some(why) = &outcome.untraced {
            let warn = target.palette.warn;
            writeln!(
                target.out,
                "{warn}the command could not be traced ({why}): its end was not seen, only what periodic snapshots show{warn:#}"
            )?;
        }
    }
    target.out.flush()?;
    Ok(())
}

/// Which programs get a report, largest first, and which a line.
fn sorted<'a>(args: &Run, images: &'a [Image]) -> (Vec<&'a Image>, Vec<&'a Image>) {
    let has_memory =
        |image: &&Image| chosen(args, image).is_some_and(|seen| seen.snapshot.total.bytes > 0);
    let (mut shown, mut others): (Vec<&Image>, Vec<&Image>) = images.iter().partition(has_memory);
    if args.children {
        shown.sort_by_key(|image| {
            std::cmp::Reverse(chosen(args, image).map_or(0, |seen| seen.snapshot.total.bytes))
        });
    } else if let Some(last) = shown.pop() {
        // What was executed before the program that was meant (env, a shell) is of little interest.
        others.splice(0..0, std::mem::replace(&mut shown, vec![last]));
    }
    (shown, others)
}

/// The snapshot to show.
fn chosen<'a>(args: &Run, image: &'a Image) -> Option<&'a Seen> {
    match args.at {
        Moment::Peak => image.largest(),
        Moment::Exit => image.exit.as_ref().or(image.peak.as_ref()),
    }
}

/// Whether a snapshot is that of the end.
fn is_end(image: &Image, seen: &Seen) -> bool {
    image.exit_is_end
        && image
            .exit
            .as_ref()
            .is_some_and(|exit| std::ptr::eq(exit, seen))
}

fn print_image(
    args: &Run,
    image: &Image,
    resolver: &mut Resolver,
    target: &mut Target,
) -> Result<()> {
    let Some(seen) = chosen(args, image) else {
        return Ok(());
    };
    let (mut entries, wrappers) = resolver.entries(&seen.snapshot, args.frames);
    entries.retain(|entry| !entry.row.is_zero());
    let all = total(&entries);
    let top = if args.top == 0 {
        entries.len()
    } else {
        args.top.min(entries.len())
    };
    let table = Table {
        exact: args.bytes,
        frames: args.frames.then_some(usize::MAX),
        palette: target.palette,
    };
    let (strong, warn) = (target.palette.strong, target.palette.warn);
    writeln!(
        target.out,
        "{strong}memledger: {}{strong:#}",
        heading(image, seen)
    )?;
    table.print(&mut target.out, &entries[..top])?;
    let shown = total(&entries[..top]);
    let rest = if shown.rows == all.rows {
        counted(count(all.rows), "row")
    } else {
        format!(
            "{} of {} shown, {}",
            shown.rows,
            counted(count(all.rows), "row"),
            table.size(shown.bytes)
        )
    };
    writeln!(
        target.out,
        "{strong}{:>14} {:>12}  total ({rest}){strong:#}",
        table.size(all.bytes),
        grouped(all.calls)
    )?;
    writeln!(target.out, "{}", exit_line(image, &table))?;
    if let Some(note) = guess_note(&entries[..top], &wrappers) {
        writeln!(target.out, "{note}")?;
    }
    for note in notes(&seen.snapshot) {
        writeln!(target.out, "{warn}{note}{warn:#}")?;
    }
    Ok(())
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn total(entries: &[Entry]) -> Total {
    entries.iter().map(|entry| &entry.row).collect()
}

/// Who it was, and when the snapshot was taken.
fn heading(image: &Image, seen: &Seen) -> String {
    let when = if is_end(image, seen) {
        let peak = if image.peak.is_none() {
            ", its peak seen"
        } else {
            ""
        };
        format!("at its end{peak}, {}", seconds(seen.at))
    } else if image
        .peak
        .as_ref()
        .is_some_and(|peak| std::ptr::eq(peak, seen))
    {
        format!(
            "at its peak seen, {} of {}",
            seconds(seen.at),
            seconds(image.lived)
        )
    } else {
        format!(
            "when last seen, {} of {}",
            seconds(seen.at),
            seconds(image.lived)
        )
    };
    format!(
        "{}, pid {}, {when}: {}",
        clean(&image.comm),
        image.pid,
        clean(&line(&image.arguments))
    )
}

fn seconds(time: Duration) -> String {
    if time < Duration::from_millis(10) {
        format!("{:.4} s", time.as_secs_f64())
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}

/// A command line, cut if it is long.
fn line(arguments: &[String]) -> String {
    let quote = |argument: &String| {
        let plain = |c: char| c.is_alphanumeric() || "_-./=:,+@%^".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', "'\\''"))
        }
    };
    let text = arguments.iter().map(quote).collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LINE) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// One line on what was left at the end.
fn exit_line(image: &Image, table: &Table) -> String {
    let ended = match image.end {
        Some(End::Code(code)) => format!("ended with code {code}"),
        Some(End::Signal(signal)) => format!("killed by {}", signal_name(signal)),
        Some(End::Exec) => "executed another program".to_owned(),
        Some(End::Running) => "still running".to_owned(),
        None => "end not seen".to_owned(),
    };
    match &image.exit {
        Some(exit) => {
            let Sum { bytes, calls } = exit.snapshot.total;
            let size = table.size(i64::try_from(bytes).unwrap_or(i64::MAX));
            let when = if image.exit_is_end {
                "then"
            } else {
                "when last seen"
            };
            format!(
                "{ended}; {size} in {} live {when}",
                counted(i64::try_from(calls).unwrap_or(i64::MAX), "call")
            )
        }
        None if image.end == Some(End::Exec) => ended,
        None => format!("{ended}; its memory was not seen then"),
    }
}

fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |signal| signal.to_string())
}

/// One line for programs that have no report, those of one kind together.
fn print_others(args: &Run, others: &[&Image], target: &mut Target) -> Result<()> {
    let mut kinds: BTreeMap<(String, String), Vec<i32>> = BTreeMap::new();
    for image in others {
        kinds
            .entry((image.comm.clone(), why_not(args, image)))
            .or_default()
            .push(image.pid);
    }
    for ((comm, why), pids) in kinds {
        let first: Vec<String> = pids.iter().take(5).map(ToString::to_string).collect();
        let dots = if pids.len() > first.len() {
            ", ..."
        } else {
            ""
        };
        let times = if pids.len() > 1 {
            format!("{} times, ", pids.len())
        } else {
            String::new()
        };
        writeln!(
            target.out,
            "memledger: {}, {times}pid {}{dots}: {why}",
            clean(&comm),
            first.join(", ")
        )?;
    }
    Ok(())
}

fn why_not(args: &Run, image: &Image) -> String {
    match (chosen(args, image), &image.problem) {
        (Some(seen), _) if seen.snapshot.total.bytes > 0 => {
            let size = memledger_formats::size::kernel(
                i64::try_from(seen.snapshot.total.bytes).unwrap_or(i64::MAX),
            );
            format!("{size} before it executed another program")
        }
        (Some(seen), _) => match problem_of(&seen.snapshot) {
            Some(problem) => format!("not measured: {problem}"),
            None => "held no memory when seen".to_owned(),
        },
        (None, Some(problem)) => format!("not measured: {problem}"),
        (None, None) => "not measured: it was gone before it could be read".to_owned(),
    }
}

/// Why a program that seems to hold nothing could not be measured.
fn problem_of(snapshot: &Snapshot) -> Option<String> {
    let exe = snapshot.process.exe.as_os_str();
    let problems = preflight::preflight(exe, &[]).problems;
    let problem = problems
        .iter()
        .find(|problem| matches!(problem, Problem::OwnAllocator(_)));
    problem.map(explain)
}

fn print_json(
    args: &Run,
    outcome: &Outcome,
    shown: &[&Image],
    others: &[&Image],
    resolver: &mut Resolver,
    target: &mut Target,
) -> Result<()> {
    let processes: Vec<Value> = shown
        .iter()
        .filter_map(|image| image_json(args, image, resolver))
        .collect();
    let others: Vec<Value> = others
        .iter()
        .map(|image| {
            json!({"pid": image.pid, "comm": image.comm, "arguments": image.arguments, "end": end_json(image.end),
                "why": why_not(args, image)})
        })
        .collect();
    let value = json!({
        "end": end_json(Some(outcome.end)),
        "processes": processes,
        "others": others,
        "untraced": outcome.untraced,
    });
    serde_json::to_writer_pretty(&mut target.out, &value)?;
    writeln!(target.out)?;
    Ok(())
}

fn end_json(end: Option<End>) -> Value {
    match end {
        Some(End::Code(code)) => json!({"code": code}),
        Some(End::Signal(signal)) => json!({"signal": signal}),
        Some(End::Exec) => json!("exec"),
        Some(End::Running) => json!("running"),
        None => Value::Null,
    }
}

fn image_json(args: &Run, image: &Image, resolver: &mut Resolver) -> Option<Value> {
    let seen = chosen(args, image)?;
    let (mut entries, wrappers) = resolver.entries(&seen.snapshot, args.frames);
    entries.retain(|entry| !entry.row.is_zero());
    let all = total(&entries);
    let top = if args.top == 0 {
        entries.len()
    } else {
        args.top.min(entries.len())
    };
    let depth = args.frames.then_some(usize::MAX);
    let losses: BTreeMap<&str, u64> = named_losses(&seen.snapshot).collect();
    let moment = if is_end(image, seen) {
        "end"
    } else {
        "running"
    };
    Some(json!({
        "pid": image.pid,
        "comm": image.comm,
        "arguments": image.arguments,
        "end": end_json(image.end),
        "moment": moment,
        "at_seconds": seen.at.as_secs_f64(),
        "lived_seconds": image.lived.as_secs_f64(),
        "snapshots": image.readings,
        "read_seconds": seen.snapshot.read_time.as_secs_f64(),
        "total": total_json(&all),
        "peak": image.largest().map(|seen| sum_json(&seen.snapshot)),
        "exit": image.exit.as_ref().filter(|_| image.exit_is_end).map(|seen| sum_json(&seen.snapshot)),
        "profiling": seen.snapshot.enabled(),
        "losses": losses,
        "torn_units": seen.snapshot.torn_units(),
        "meta_bytes": seen.snapshot.meta_bytes(),
        "guessed_wrappers": wrappers_json(&wrappers),
        "rows": entries[..top].iter().map(|entry| row_json(entry, depth)).collect::<Vec<_>>(),
    }))
}

fn sum_json(snapshot: &Snapshot) -> Value {
    json!({"bytes": snapshot.total.bytes, "calls": snapshot.total.calls})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let words =
            |words: &[&str]| line(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["ls", "-l", "a b"]), "ls -l 'a b'");
        assert_eq!(words(&["echo", "", "it's"]), "echo '' 'it'\\''s'");
        assert_eq!(words(&["é".repeat(200).as_str()]).chars().count(), LINE + 3);
    }

    #[test]
    fn signals() {
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(40), "signal 40");
    }
}
