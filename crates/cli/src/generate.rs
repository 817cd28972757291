//! `memledger generate`: man pages and completions, from the same definitions as the help.

use crate::args::{Args, Generate, What};
use crate::{Failure, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::{self, Write};

/// Prints what was asked for.
pub(crate) fn run(generate: &Generate) -> Result<u8> {
    let mut command = Args::command();
    if let Some(dir) = &generate.dir {
        if generate.what != What::Man {
            return Err(Failure::Message("--dir is for man pages".to_owned()));
        }
        clap_mangen::generate_to(command, dir)
            .map_err(|error| Failure::Message(format!("{}: {error}", dir.display())))?;
        return Ok(0);
    }
    let mut text = Vec::new();
    match generate.what {
        What::Man => man(&mut command, &mut text)?,
        What::Bash => clap_complete::generate(Shell::Bash, &mut command, "memledger", &mut text),
        What::Zsh => clap_complete::generate(Shell::Zsh, &mut command, "memledger", &mut text),
        What::Fish => clap_complete::generate(Shell::Fish, &mut command, "memledger", &mut text),
    }
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    out.flush()?;
    Ok(0)
}

/// One page: that of the program, then those of the subcommands.
fn man(command: &mut clap::Command, text: &mut Vec<u8>) -> io::Result<()> {
    command.build();
    clap_mangen::Man::new(command.clone()).render(text)?;
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        let page = clap_mangen::Man::new(sub.clone());
        writeln!(text, ".SH \"MEMLEDGER {}\"", sub.get_name().to_uppercase())?;
        let mut section = Vec::new();
        page.render_synopsis_section(&mut section)?;
        page.render_description_section(&mut section)?;
        page.render_options_section(&mut section)?;
        page.render_extra_section(&mut section)?;
        let section = String::from_utf8_lossy(&section);
        text.extend_from_slice(section.replace(".SH ", ".SS ").as_bytes());
    }
    Ok(())
}
