//! How rows look: tables for people, JSON for programs, and where they go.

use crate::args::{Colour, Symbols};
use crate::{Failure, Result};
use anstyle::{AnsiColor, Style};
use memledger_formats::allocinfo::{Row, Total};
use memledger_formats::size;
use memledger_inspect::{
    self as inspect, CoreInfo, Frame, Helpers, MergeBy, Residency, Snapshot, SymbolOptions,
    Symbolizer, Wrapper,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::rc::Rc;

/// A row with its stack.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    /// What is printed of it.
    pub(crate) row: Row,
    /// Call stack, innermost first; empty if there is none.
    pub(crate) frames: Vec<Rc<Frame>>,
    /// The frame that is charged.
    pub(crate) charged: usize,
    /// Its module was unloaded.
    pub(crate) unloaded: bool,
    /// Build-id of the object, where function or line are unknown.
    pub(crate) build_id: Option<String>,
    /// Charged past a function that was guessed to be an allocator wrapper.
    pub(crate) guessed: bool,
}

/// The word at the end of the row of a module that was unloaded, as `memledger_inspect::to_allocinfo` sets it.
fn is_unloaded(extra: &(String, String)) -> bool {
    extra.0 == "unloaded" && extra.1 == "yes"
}

impl From<Row> for Entry {
    fn from(row: Row) -> Self {
        Entry {
            unloaded: row.extra.iter().any(is_unloaded),
            row,
            ..Entry::default()
        }
    }
}

impl From<inspect::Row> for Entry {
    fn from(row: inspect::Row) -> Self {
        Entry {
            row: inspect::to_allocinfo(&row),
            frames: row.frames,
            charged: row.charged,
            unloaded: !row.loaded,
            build_id: row.build_id,
            guessed: row.guessed,
        }
    }
}

/// Turns snapshots into rows; keeps the symbols that it has read.
#[derive(Debug)]
pub(crate) struct Resolver {
    symbols: Symbolizer,
    helpers: Helpers,
}

impl Resolver {
    /// As the options say. Fails if the file of helpers cannot be read.
    pub(crate) fn new(options: &Symbols) -> Result<Self> {
        let mut helpers = Helpers::default();
        for pattern in &options.helper {
            helpers.add(pattern);
        }
        if let Some(path) = &options.helpers_file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
            helpers.add_lines(&text);
        }
        helpers.set_guess(!options.no_guess);
        let options = SymbolOptions {
            debug_dirs: options.debug_dir.clone(),
            sysroot: options.sysroot.clone(),
            ..SymbolOptions::default()
        };
        Ok(Resolver {
            symbols: Symbolizer::new(options),
            helpers,
        })
    }

    /// Resident memory of a process.
    pub(crate) fn residency(&mut self, pid: u32) -> Result<Residency> {
        Ok(Residency::read(pid, &mut self.symbols, &self.helpers)?)
    }

    /// What each of `indexes` stands for.
    pub(crate) fn sites(&mut self, snapshot: &Snapshot, indexes: &[u32]) -> Vec<inspect::Row> {
        inspect::sites(snapshot, &mut self.symbols, &self.helpers, indexes)
    }

    /// Rows of a snapshot, largest first; one for each stack if `stacks`. With them the wrappers that were guessed.
    pub(crate) fn entries(
        &mut self,
        snapshot: &Snapshot,
        stacks: bool,
    ) -> (Vec<Entry>, Vec<Wrapper>) {
        let merge = if stacks {
            MergeBy::Stack
        } else {
            MergeBy::Line
        };
        let report = inspect::report(snapshot, &mut self.symbols, &self.helpers, merge);
        let entries = report.rows.into_iter().map(Entry::from).collect();
        (entries, report.wrappers)
    }
}

/// A line on what was guessed, if any of the rows depends on it.
pub(crate) fn guess_note(entries: &[Entry], wrappers: &[Wrapper]) -> Option<String> {
    let guessed = entries.iter().filter(|entry| entry.guessed).count();
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    (guessed > 0).then(|| {
        format!(
            "{} charged past {} without a name, by who calls them taken for allocator wrappers (--no-guess: not)",
            counted(number(guessed), "row"),
            counted(number(wrappers.len()), "function"),
        )
    })
}

/// Styles, or none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Palette {
    /// Headings and totals.
    pub(crate) strong: Style,
    /// Functions.
    pub(crate) name: Style,
    /// Modules and stacks.
    pub(crate) faint: Style,
    /// What was lost.
    pub(crate) warn: Style,
}

impl Palette {
    /// Colours for an output that is a terminal or not, as option, `NO_COLOR`, `CLICOLOR_FORCE` and `TERM` say.
    pub(crate) fn new(choice: Colour, terminal: bool) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let forced = std::env::var_os("CLICOLOR_FORCE")
            .is_some_and(|value| !value.is_empty() && value != "0");
        let on = match choice {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto if set("NO_COLOR") => false,
            Colour::Auto => {
                forced || (terminal && std::env::var_os("TERM").is_none_or(|term| term != "dumb"))
            }
        };
        if !on {
            return Palette::default();
        }
        Palette {
            strong: Style::new().bold(),
            name: AnsiColor::Cyan.on_default(),
            faint: Style::new().dimmed(),
            warn: AnsiColor::Yellow.on_default(),
        }
    }
}

/// Where a report goes.
pub(crate) struct Target {
    /// The writer.
    pub(crate) out: BufWriter<Box<dyn Write>>,
    /// Its colours.
    pub(crate) palette: Palette,
}

impl Target {
    /// Standard output.
    pub(crate) fn stdout(colour: Colour) -> Self {
        let out = io::stdout();
        let palette = Palette::new(colour, out.is_terminal());
        Target {
            out: BufWriter::new(Box::new(out)),
            palette,
        }
    }

    /// `path`, where `-` is standard output and `None` standard error.
    pub(crate) fn open(path: Option<&Path>, colour: Colour) -> Result<Self> {
        let (out, terminal): (Box<dyn Write>, bool) = match path {
            None => (Box::new(io::stderr()), io::stderr().is_terminal()),
            Some(path) if path.as_os_str() == "-" => return Ok(Target::stdout(colour)),
            Some(path) => {
                let file = File::create(path)
                    .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
                let terminal = file.is_terminal();
                (Box::new(file), terminal)
            }
        };
        Ok(Target {
            out: BufWriter::new(out),
            palette: Palette::new(colour, terminal),
        })
    }
}

/// How a table shows rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    /// Exact numbers.
    pub(crate) exact: bool,
    /// Show stacks, of so many frames.
    pub(crate) frames: Option<usize>,
    /// Its colours.
    pub(crate) palette: Palette,
}

impl Table {
    /// Prints the heading and the rows.
    pub(crate) fn print(&self, out: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
        let strong = self.palette.strong;
        writeln!(
            out,
            "{strong}{:>14} {:>12}  where{strong:#}",
            "bytes", "calls"
        )?;
        self.rows(out, entries)
    }

    /// Prints the rows alone.
    pub(crate) fn rows(&self, out: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            writeln!(
                out,
                "{:>14} {:>12}  {}",
                self.size(entry.row.bytes),
                grouped(entry.row.calls_signed()),
                self.place(entry)
            )?;
            if let Some(depth) = self.frames {
                self.print_frames(out, entry, depth)?;
            }
        }
        Ok(())
    }

    /// A number of bytes.
    pub(crate) fn size(&self, bytes: i64) -> String {
        if self.exact {
            bytes.to_string()
        } else {
            size::kernel(bytes)
        }
    }

    fn place(&self, entry: &Entry) -> String {
        let Palette {
            name, faint, warn, ..
        } = self.palette;
        let row = &entry.row;
        let mut parts = Vec::new();
        if row.line > 0 {
            parts.push(format!("{}:{}", clean(&row.file), row.line));
        } else if row.module.as_ref() != Some(&row.file) && !row.func.starts_with(&row.file) {
            parts.push(clean(&row.file));
        }
        if let Some(module) = &row.module {
            parts.push(format!("{faint}[{}]{faint:#}", clean(module)));
        }
        parts.push(format!("{name}{}{name:#}", clean(&row.func)));
        if !row.accurate {
            parts.push(format!("{warn}accurate:no{warn:#}"));
        }
        parts.extend(
            row.extra
                .iter()
                .filter(|extra| !is_unloaded(extra) && extra.0 != "metadata")
                .map(|(key, value)| clean(&format!("{key}:{value}"))),
        );
        if entry.unloaded {
            parts.push(format!("{faint}(unloaded){faint:#}"));
        }
        // Where not even the function is known, it tells which file is needed.
        if let Some(id) = entry.build_id.as_ref().filter(|_| row.func.contains("+0x")) {
            parts.push(format!("{faint}build-id:{id}{faint:#}"));
        }
        parts.join(" ")
    }

    fn print_frames(&self, out: &mut impl Write, entry: &Entry, depth: usize) -> io::Result<()> {
        let faint = self.palette.faint;
        for (number, frame) in entry.frames.iter().enumerate().take(depth) {
            let mark = if number == entry.charged { '>' } else { ' ' };
            writeln!(
                out,
                "{:>27} {faint}{mark} {}{faint:#}",
                "",
                clean(&frame_text(frame))
            )?;
        }
        Ok(())
    }
}

/// A frame in one line: function, place, module.
pub(crate) fn frame_text(frame: &Frame) -> String {
    let mut text = match &frame.func {
        Some(func) => func.clone(),
        None => frame.place(),
    };
    if let Some(file) = &frame.file {
        text.push_str(&format!(" {file}"));
        if frame.line > 0 {
            text.push_str(&format!(":{}", frame.line));
        }
    }
    if let Some(module) = &frame.module {
        text.push_str(&format!(" [{module}]"));
    }
    if frame.inlined {
        text.push_str(" (inlined)");
    }
    text
}

/// Text without control characters, which could command a terminal.
pub(crate) fn clean(text: &str) -> String {
    if text.chars().any(char::is_control) {
        text.chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect()
    } else {
        text.to_owned()
    }
}

/// A number with commas.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 call`, `2 calls`.
pub(crate) fn counted(number: i64, noun: &str) -> String {
    format!(
        "{} {noun}{}",
        grouped(number),
        if number == 1 { "" } else { "s" }
    )
}

/// A row as JSON; with frames if `depth` is given.
pub(crate) fn row_json(entry: &Entry, depth: Option<usize>) -> Value {
    let row = &entry.row;
    let mut value = json!({
        "bytes": row.bytes,
        "calls": row.calls_signed(),
        "file": row.file,
        "line": row.line,
        "module": row.module,
        "func": row.func,
        "accurate": row.accurate,
    });
    let Value::Object(map) = &mut value else {
        return value;
    };
    let extra: serde_json::Map<String, Value> = row
        .extra
        .iter()
        .filter(|extra| !is_unloaded(extra))
        .map(|(key, text)| (key.clone(), Value::from(text.clone())))
        .collect();
    if !extra.is_empty() {
        map.insert("extra".to_owned(), extra.into());
    }
    if let Some(id) = &entry.build_id {
        map.insert("build_id".to_owned(), id.clone().into());
    }
    if entry.guessed {
        map.insert("guessed".to_owned(), true.into());
    }
    if entry.unloaded {
        map.insert("unloaded".to_owned(), true.into());
    }
    if let Some(depth) = depth {
        let frames: Vec<Value> = entry
            .frames
            .iter()
            .take(depth)
            .map(|frame| frame_json(frame))
            .collect();
        map.insert("frames".to_owned(), frames.into());
        map.insert("charged".to_owned(), entry.charged.into());
    }
    value
}

fn frame_json(frame: &Frame) -> Value {
    json!({
        "func": frame.func,
        "file": frame.file,
        "line": frame.line,
        "module": frame.module,
        "object": frame.object,
        "build_id": frame.build_id,
        "addr": frame.addr,
        "start": frame.start,
        "inlined": frame.inlined,
    })
}

/// The functions that were guessed to be allocator wrappers, as JSON.
pub(crate) fn wrappers_json(wrappers: &[Wrapper]) -> Value {
    let one = |w: &Wrapper| {
        json!({
            "object": w.object,
            "build_id": w.build_id,
            "start": w.start,
            "size": w.size,
            "callers": w.callers,
            "places": w.places,
        })
    };
    wrappers.iter().map(one).collect()
}

/// What a core file tells of itself, as JSON.
pub(crate) fn core_json(core: &CoreInfo) -> Value {
    json!({
        "pid": core.pid,
        "comm": core.comm,
        "args": core.args,
        "signal": core.signal,
        "size": core.size,
        "missing": core.truncated(),
        "unverified": core.unverified,
    })
}

/// A sum as JSON.
pub(crate) fn total_json(total: &Total) -> Value {
    json!({
        "bytes": total.bytes,
        "calls": total.calls,
        "rows": total.rows,
        "live_rows": total.live_rows,
        "inaccurate_rows": total.inaccurate_rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(-1234), "-1,234");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(counted(1, "call"), "1 call");
        assert_eq!(counted(1000, "row"), "1,000 rows");
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(clean("a\x1b[31mb"), "a\u{fffd}[31mb");
    }

    #[test]
    fn places() {
        let table = Table {
            exact: false,
            frames: None,
            palette: Palette::default(),
        };
        let mut entry = Entry::from(Row {
            file: "a.c".into(),
            line: 3,
            func: "f".into(),
            ..Row::default()
        });
        assert_eq!(table.place(&entry), "a.c:3 f");
        entry.row.module = Some("lib.so".into());
        entry.row.accurate = false;
        assert_eq!(table.place(&entry), "a.c:3 [lib.so] f accurate:no");
        entry = Entry::from(Row {
            file: "lib.so".into(),
            module: Some("lib.so".into()),
            func: "g".into(),
            ..Row::default()
        });
        assert_eq!(table.place(&entry), "[lib.so] g");
    }
}
