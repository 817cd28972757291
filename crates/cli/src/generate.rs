//! `memledger generate`: man pages and completions, from the same definitions as the help.

use crate::args::{Args, Generate, What};
use crate::{Failure, Result};
use clap::builder::Resettable;
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate as complete};
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::Path;

/// Prints what was asked for.
pub(crate) fn run(generate: &Generate) -> Result<u8> {
    let mut command = Args::command();
    let mut text = Vec::new();
    match (generate.what, &generate.dir) {
        (What::Man, None) => man(command, &mut text)?,
        (What::Man, Some(dir)) => return pages(command, dir),
        (_, Some(_)) => return Err(Failure::Message("--dir is for man pages".to_owned())),
        (What::Bash, _) => complete(Shell::Bash, &mut command, "memledger", &mut text),
        (What::Zsh, _) => complete(Shell::Zsh, &mut command, "memledger", &mut text),
        (What::Fish, _) => complete(Shell::Fish, &mut command, "memledger", &mut text),
    }
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    out.flush()?;
    Ok(0)
}

/// Writes one page for the program and for each subcommand.
fn pages(mut command: Command, dir: &Path) -> Result<u8> {
    command.build();
    for page in std::iter::once(&command).chain(command.get_subcommands()) {
        let name = page
            .get_display_name()
            .unwrap_or_else(|| page.get_name())
            .to_owned();
        let path = dir.join(format!("{name}.1"));
        let mut text = Vec::new();
        let (page, notes) = without_notes(page.clone().name(name));
        let man = Man::new(page);
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        sections(&man, &notes, ".SH", &mut text)?;
        std::fs::write(&path, text)
            .map_err(|error| Failure::Message(format!("{}: {error}", path.display())))?;
    }
    Ok(0)
}

/// One page for all: that of the program, then what is to be said of the subcommands.
fn man(mut command: Command, text: &mut Vec<u8>) -> io::Result<()> {
    command.build();
    let (page, notes) = without_notes(command.clone());
    let page = Man::new(page);
    page.render_title(text)?;
    page.render_name_section(text)?;
    sections(&page, &notes, ".SH", text)?;
    for sub in command.get_subcommands() {
        writeln!(text, ".SH \"MEMLEDGER {}\"", sub.get_name().to_uppercase())?;
        let (page, notes) = without_notes(sub.clone());
        sections(&Man::new(page), &notes, ".SS", text)?;
    }
    Ok(())
}

/// Takes out what follows the options in the help: a page sets it in its own way.
fn without_notes(command: Command) -> (Command, String) {
    let notes = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string);
    (
        command
            .after_help(Resettable::Reset)
            .after_long_help(Resettable::Reset),
        notes.unwrap_or_default(),
    )
}

/// The sections that the program and each subcommand have, under headings by the macro `heading`.
fn sections(page: &Man, notes: &str, heading: &str, text: &mut Vec<u8>) -> io::Result<()> {
    let mut options = Vec::new();
    page.render_synopsis_section(&mut options)?;
    page.render_description_section(&mut options)?;
    page.render_options_section(&mut options)?;
    page.render_subcommands_section(&mut options)?;
    let options = String::from_utf8_lossy(&options).replace(".SH ", &format!("{heading} "));
    text.extend_from_slice(options.as_bytes());
    render_notes(notes, heading, text)
}

/// Sets the notes: `Examples:` and `Exit codes:` are headings, indented lines stay as they are, others are paragraphs.
fn render_notes(notes: &str, heading: &str, text: &mut Vec<u8>) -> io::Result<()> {
    let mut verbatim = false;
    for line in notes.lines() {
        let indented = line.starts_with("  ");
        if verbatim && !indented {
            writeln!(text, ".fi\n.RE")?;
        }
        if !verbatim && indented {
            writeln!(text, ".RS 0\n.nf")?;
        }
        verbatim = indented;
        match line {
            "" => writeln!(text, ".PP")?,
            "Examples:" => writeln!(text, "{heading} EXAMPLES")?,
            "Exit codes:" => writeln!(text, "{heading} \"EXIT STATUS\"")?,
            _ => writeln!(text, "{}", escape(line.strip_prefix("  ").unwrap_or(line)))?,
        }
    }
    if verbatim {
        writeln!(text, ".fi\n.RE")?;
    }
    Ok(())
}

/// Text that no macro and no escape is taken for.
fn escape(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(escape(".x"), "\\&.x");
        assert_eq!(escape("a\\b -n"), "a\\eb \\-n");
    }
}
