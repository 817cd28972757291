//! `memledger trace print`.

use super::{Print, Text};
use crate::{Failure, Result};
use memledger_formats::trace::own::{Block, Blocks, OwnTrace, Style, print};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};

/// Prints a file.
pub(crate) fn run(args: &Print) -> Result<u8> {
    let open = || {
        File::open(&args.file)
            .map(BufReader::new)
            .map_err(|e| Failure::Message(format!("{}: {e}", args.file.display())))
    };
    let mut names = OwnTrace::new(io::empty());
    names.learn(open()?)?;
    let mut blocks = Blocks::new(open()?);
    let style = match args.style {
        Text::Raw => Style::Raw,
        Text::Minimalistic => Style::Minimalistic,
    };
    let mut out = BufWriter::new(io::stdout().lock());
    out.write_all(style.header().as_bytes())?;
    let (mut lost, mut bad, mut ended) = (0u64, None, false);
    while let Some(block) = blocks.next_block()? {
        match block {
            Ok(Block::Events(events)) => {
                for e in &events {
                    print(&mut out, style, e, names.site(e.index))?;
                }
            }
            Ok(Block::Lost(_, _, n)) => lost = lost.saturating_add(n),
            Ok(Block::End(..)) => ended = true,
            Ok(_) => {}
            Err(b) => bad = Some(b),
        }
    }
    out.flush()?;
    if lost > 0 {
        eprintln!("memledger: {lost} events were lost while recording");
    }
    match &bad {
        Some(b) => eprintln!("memledger: from byte {} on: {}", b.at, b.what),
        None if !ended => eprintln!("memledger: the recorder did not end the file"),
        None => {}
    }
    Ok(u8::from(lost > 0 || bad.is_some() || !ended))
}
