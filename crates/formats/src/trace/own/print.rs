//! The two texts that kmemtrace printed on a kernel (kernel/trace/kmemtrace.c, until 2.6.35).

use super::read::flag_text;
use super::{Raw, SiteInfo};
use std::io::{self, Write};

/// Which of the texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `type_id … call_site … ptr … bytes_req … bytes_alloc … gfp_flags … node …`: the original lines; a free has the first three.
    Raw,
    /// The table of the option `kmem_minimalistic`.
    Minimalistic,
}

impl Style {
    /// What stands above the first line.
    #[must_use]
    pub fn header(self) -> &'static str {
        match self {
            Style::Raw => "",
            Style::Minimalistic => {
                "#\n\
                 # ALLOC  TYPE  REQ   GIVEN  FLAGS     POINTER         NODE    CALLER\n\
                 # FREE   |      |     |       |              |          |        |\n\
                 # |\n\n"
            }
        }
    }
}

/// Prints an event as a line. What is no allocation and no free is not printed.
///
/// The call site of a raw line is the address of the charged frame (its index for tags, which have none); gfp flags are 0x8000 (zeroed
/// memory, as `__GFP_ZERO` was) or 0; the node is -1 (any): programs do not ask for one.
///
/// # Errors
/// Those of writing.
pub fn print(
    out: &mut dyn Write,
    style: Style,
    e: &Raw,
    site: Option<&SiteInfo>,
) -> io::Result<()> {
    let charged = site.and_then(|s| s.frames.get(s.charged as usize));
    let address = charged.map_or(0, |f| f.addr);
    let address = if address == 0 {
        u64::from(e.index)
    } else {
        address
    };
    let gfp = if e.flags & 1 != 0 { 0x8000 } else { 0 };
    match (style, e.op) {
        (Style::Raw, 1) => writeln!(
            out,
            "type_id {} call_site {address} ptr {} bytes_req {} bytes_alloc {} gfp_flags {gfp} node -1",
            e.kind, e.ptr, e.requested, e.given
        ),
        (Style::Raw, 2) => writeln!(out, "type_id {} call_site {address} ptr {}", e.kind, e.ptr),
        (Style::Minimalistic, 1 | 2) => {
            let letter = match e.kind {
                1 => 'C',
                2 => 'P',
                _ => 'K',
            };
            let caller = site.map_or_else(|| format!("#{}", e.index), SiteInfo::text);
            let words = flag_text(e.flags);
            let caller = match words.as_str() {
                "" => caller,
                words => format!("{caller} [{words}]"),
            };
            if e.op == 1 {
                writeln!(
                    out,
                    "+      {letter}   {:>6} {:>6}   {gfp:08x}   0x{:<14x}   -1   {caller}",
                    e.requested, e.given, e.ptr
                )
            } else {
                writeln!(
                    out,
                    "-      {letter}                            0x{:<14x}        {caller}",
                    e.ptr
                )
            }
        }
        _ => Ok(()),
    }
}
