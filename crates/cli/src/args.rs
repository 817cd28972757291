//! What can be typed. Help, man pages and completions are all generated from these definitions.

use crate::source;
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use memledger_formats::allocinfo::{Filter, SortSpec, SpecError};
use std::ffi::OsString;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  done (a reader that goes away, as in `memledger allocinfo FILE | head`, is no error)
  1  done, but something was lost or could not be parsed; stderr says what
  2  wrong usage, or failure
  memledger run ends with the exit code or by the signal of its command; 127 = not found, 126 = not executable";

const EXAMPLES: &str = "\
Examples:
  memledger run -- python3 script.py          which lines held the memory at its peak
  memledger run --children -- make            the same for each process
  memledger allocinfo -p 1234                 live memory of a running process
  sudo memledger allocinfo --kernel --top 10  live memory of the kernel
  memledger ctl -p 1234 mem_profiling=0       stop accounting in a process
";

/// Accounts live memory to the lines that allocated it.
#[derive(Debug, Parser)]
#[command(name = "memledger", version, disable_help_subcommand = true, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// When to use colour (auto: on a terminal, unless NO_COLOR is set)
    #[arg(long, value_enum, default_value_t = Colour::Auto, global = true, value_name = "WHEN")]
    pub(crate) color: Colour,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command and report which lines held its memory
    Run(Run),
    /// Show live memory by the lines that allocated it
    Allocinfo(Allocinfo),
    /// Explain resident memory: live, pinned, cached, tables, other mappings
    Rss(crate::page_owner::Rss),
    /// Show slabs by cache: named caches, and size classes of malloc
    Slabinfo(crate::slabinfo::Slabinfo),
    /// Show who holds pages
    PageOwner(crate::page_owner::PageOwner),
    /// Read or set the switches of a process
    Ctl(Ctl),
    /// Report on traces of allocations
    Trace(crate::trace::args::Trace),
    /// Watch allocations of the running kernel
    Kernel(crate::kernel::args::Kernel),
    /// Show the ledgers of all processes as files (FUSE)
    Mount(Mount),
    /// Print man pages or shell completions
    Generate(Generate),
}

const RUN_EXAMPLES: &str = "\
Examples:
  memledger run -- python3 -c 'x = [str(i) for i in range(10**6)]'
  memledger run --top 20 --depth 8 --frames -- sqlite3 test.db < queries.sql
  memledger run -o report.txt -- git gc
  memledger run --json -o - -- true | jq .processes[0].total
  memledger run --children -- bash -c 'sort big | uniq -c'
  memledger run --at exit -- ./server             what it still held when it ended
";

const RUN_NOTES: &str = "\
The command runs with its standard streams, signals and exit status as they are without memledger. The report comes \
when it ends, also by a signal: it is taken while the process still has its memory. Snapshots are taken all along, \
and the one with the most bytes is shown, unless --at exit.

The command is traced with ptrace to be seen at its end, but not its threads; nor its children, unless --children is \
given. Programs that trace others themselves (gdb, strace) run as usual without --children. A traced program cannot \
gain privileges by executing a setuid program. Where ptrace is not permitted, there are only the snapshots.

Programs that cannot be measured (statically linked, setuid, with a malloc of their own inside, of another \
architecture) are run all the same, and one line says so.

Exit codes:
  that of the command; if a signal ended it, memledger ends by the same signal
  127  command not found
  126  command not executable
  2    wrong usage or failure";

/// `memledger run`.
#[derive(Debug, ClapArgs)]
#[command(after_help = RUN_EXAMPLES, after_long_help = format!("{RUN_EXAMPLES}\n{RUN_NOTES}"))]
pub(crate) struct Run {
    /// Rows to show for each process; 0 = all
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// Frames kept of each call stack (1 to 16)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) depth: Option<u32>,
    /// Write the report to FILE instead of stderr; - = stdout
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Report each process of the tree
    #[arg(long)]
    pub(crate) children: bool,
    /// Which moment to show
    #[arg(long, value_enum, default_value_t = Moment::Peak, value_name = "WHEN")]
    pub(crate) at: Moment,
    /// Report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// One row for each call stack, and show it
    #[arg(long)]
    pub(crate) frames: bool,
    /// Exact numbers instead of KiB, MiB, ...
    #[arg(long)]
    pub(crate) bytes: bool,
    /// The library to preload (default: searched beside this program)
    #[arg(
        long,
        value_name = "FILE",
        env = "MEMLEDGER_LIB",
        hide_env_values = true
    )]
    pub(crate) lib: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) symbols: Symbols,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Moment {
    /// The snapshot with the most bytes
    Peak,
    /// The end of the process
    Exit,
}

/// How stacks become rows.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct Symbols {
    /// Also take functions of this name (* = any text) for allocator helpers: their caller is charged
    #[arg(long, value_name = "PATTERN")]
    pub(crate) helper: Vec<String>,
    /// Read more such names from FILE, one a line
    #[arg(
        long,
        value_name = "FILE",
        env = "MEMLEDGER_HELPERS",
        hide_env_values = true
    )]
    pub(crate) helpers_file: Option<PathBuf>,
    /// Do not guess which functions of stripped programs are allocator helpers
    #[arg(long)]
    pub(crate) no_guess: bool,
    /// Look for the program's own files below DIR first, a copy of the root of its file system
    #[arg(long, value_name = "DIR")]
    pub(crate) sysroot: Option<PathBuf>,
    /// Look for separate debug files here too
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,
}

const ALLOCINFO_EXAMPLES: &str = "\
Examples:
  memledger allocinfo -p 1234 --top 10 --frames
  memledger allocinfo --core core.1234          what a process that died held
  memledger allocinfo -p 1234 --filter module=libsqlite3 --filter min-size=64K
  sudo memledger allocinfo --kernel --sort -calls
  memledger allocinfo saved.txt --sort module,-bytes --json
  ssh host cat /proc/allocinfo | memledger allocinfo -
  memledger allocinfo -p 1234 --raw | sort -g | tail | numfmt --to=iec
";

const ALLOCINFO_NOTES: &str = "\
Filters: module (of the kernel, or the shared object; empty = built in, or the executable), func, file: a part of the \
name; with * or ? a pattern for all of it; with = before it exactly it. line: N or N-M. min-size, max-size: bytes, as \
4096, 64K, 1.5MiB. accurate: yes or no. Of several filters on one key one must match, of different keys all.

Sort keys: bytes, calls, avg, file, line, module, func; - before one sorts downwards. The default is -bytes.

Kernel: slab pages (alloc_slab_page) and the objects on them are both in the file, so that a plain sum counts them \
twice. The total line leaves the pages out, and the lines below it say how much that is.

--raw prints the rows in the kernel's text, each as it was read; without --sort, --top and --filter it is the input, \
byte for byte.

Exit codes:
  0  done
  1  done, but some input could not be parsed, or some memory could not be read; stderr says what
  2  wrong usage or failure";

/// `memledger allocinfo`.
#[derive(Debug, ClapArgs)]
#[command(after_help = ALLOCINFO_EXAMPLES, after_long_help = format!("{ALLOCINFO_EXAMPLES}\n{ALLOCINFO_NOTES}"))]
pub(crate) struct Allocinfo {
    #[command(flatten)]
    pub(crate) source: Source,
    /// Rows to show; 0 = all (default: 20 in a table, else all)
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Order of the rows, as in -bytes,file
    #[arg(long, short, value_name = "[+|-]KEY,...", allow_hyphen_values = true)]
    pub(crate) sort: Option<SortSpec>,
    /// Show only rows that match, as in module=libc.so.6 (module, func, file, line, min-size, max-size)
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = filter)]
    pub(crate) filter: Vec<String>,
    /// Show rows without live memory too
    #[arg(long)]
    pub(crate) zero: bool,
    /// Show what memledger itself takes, by purpose, beside the rows (processes, cores, and text that was printed with it)
    #[arg(long)]
    pub(crate) metadata: bool,
    /// Exact numbers instead of KiB, MiB, ...
    #[arg(long)]
    pub(crate) bytes: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "raw")]
    pub(crate) json: bool,
    /// Print the kernel's text
    #[arg(long)]
    pub(crate) raw: bool,
    /// One row for each call stack, and show it (processes only)
    #[arg(long, conflicts_with = "raw")]
    pub(crate) frames: bool,
    /// Frames to show of each stack (default: all that were kept)
    #[arg(long, value_name = "N", requires = "frames")]
    pub(crate) depth: Option<usize>,
    #[command(flatten)]
    pub(crate) symbols: Symbols,
}

/// Where rows come from.
#[derive(Debug, Clone, ClapArgs)]
#[group(required = true, multiple = false, id = "source")]
pub(crate) struct Source {
    /// Read the ledger of a running process
    #[arg(long, short, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Read the ledger of a process that is gone from its core file
    #[arg(long, value_name = "FILE")]
    pub(crate) core: Option<PathBuf>,
    /// Read the kernel's /proc/allocinfo
    #[arg(long)]
    pub(crate) kernel: bool,
    /// Read it from FILE, which holds what the kernel printed
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel_file: Option<PathBuf>,
    /// The largest rows that a kernel logged when memory ran out; the last such block of FILE; - = standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) oom: Option<PathBuf>,
    /// Saved text in the kernel's form; - = standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

impl Source {
    /// The one that was named.
    pub(crate) fn source(&self) -> source::Source {
        match self {
            Source { pid: Some(pid), .. } => source::Source::Process(*pid),
            Source {
                core: Some(path), ..
            } => source::Source::Core(path.clone()),
            Source {
                kernel_file: Some(path),
                ..
            } => source::Source::KernelFile(path.clone()),
            Source {
                oom: Some(path), ..
            } => source::Source::Oom(path.clone()),
            Source {
                file: Some(path), ..
            } => source::Source::Text(path.clone()),
            // One of them is required.
            _ => source::Source::Kernel,
        }
    }
}

/// Reads one `--filter`; the kernel's words for sizes may be written with a dash.
fn filter(text: &str) -> Result<String, SpecError> {
    let text = text
        .replace("min-size=", "min_size=")
        .replace("max-size=", "max_size=");
    Filter::default().add(&text)?;
    Ok(text)
}

impl Allocinfo {
    /// All `--filter` together.
    pub(crate) fn filter(&self) -> Result<Filter, SpecError> {
        let mut all = Filter::default();
        for text in &self.filter {
            all.add(text)?;
        }
        Ok(all)
    }
}

const CTL_EXAMPLES: &str = "\
Examples:
  memledger ctl -p 1234 mem_profiling      prints mem_profiling=1 or 0
  memledger ctl -p 1234 mem_profiling=0    allocations from now on are not accounted; those that are, go on being
";

/// `memledger ctl`.
#[derive(Debug, ClapArgs)]
#[command(after_help = CTL_EXAMPLES)]
pub(crate) struct Ctl {
    /// The process
    #[arg(long, short, value_name = "PID")]
    pub(crate) pid: u32,
    /// mem_profiling to read, mem_profiling=0 or =1 to set
    #[arg(required = true, value_name = "NAME[=VALUE]")]
    pub(crate) settings: Vec<Setting>,
}

/// A switch, and what to set it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) value: Option<bool>,
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .map_or((text, None), |(n, v)| (n, Some(v)));
        if name != "mem_profiling" {
            return Err(format!("no such switch: {name:?} (mem_profiling)"));
        }
        let value = match value {
            None => None,
            Some("1" | "on" | "y" | "yes") => Some(true),
            Some("0" | "off" | "n" | "no") => Some(false),
            Some(other) => return Err(format!("expected 0 or 1, not {other:?}")),
        };
        Ok(Setting { value })
    }
}

const MOUNT_EXAMPLES: &str = "\
Examples:
  memledger mount /mnt/ledgers &
  sort -g /mnt/ledgers/1234/allocinfo | tail | numfmt --to=iec
  echo 0 > /mnt/ledgers/1234/mem_profiling
";

/// `memledger mount`.
#[derive(Debug, ClapArgs)]
#[command(after_help = MOUNT_EXAMPLES)]
pub(crate) struct Mount {
    #[command(flatten)]
    pub(crate) symbols: Symbols,
    /// An empty folder; it is unmounted when memledger ends (Ctrl-C, SIGTERM)
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

const GENERATE_EXAMPLES: &str = "\
Examples:
  memledger generate man | man -l -
  memledger generate man --dir /usr/local/share/man/man1
  memledger generate bash > /etc/bash_completion.d/memledger
";

/// `memledger generate`.
#[derive(Debug, ClapArgs)]
#[command(after_help = GENERATE_EXAMPLES)]
pub(crate) struct Generate {
    /// What to print
    #[arg(value_enum)]
    pub(crate) what: What,
    /// Write one man page for each subcommand to DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Man page
    Man,
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn filters_with_a_dash() {
        assert_eq!(filter("min-size=64K").unwrap(), "min_size=64K");
        assert!(filter("min-size=x").is_err());
        assert!(filter("nosuch=1").is_err());
    }

    #[test]
    fn options_after_the_command_are_its_own() {
        let args =
            Args::try_parse_from(["memledger", "run", "--top", "3", "ls", "--top", "-l"]).unwrap();
        let Command::Run(run) = args.command else {
            panic!()
        };
        assert_eq!(run.top, 3);
        assert_eq!(run.command, ["ls", "--top", "-l"]);
    }

    /// Splits as a shell does, as far as the examples need it; stops at a comment (two blanks), a pipe or a redirection.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        let line = line.split("  ").next().unwrap();
        for c in line.chars() {
            match c {
                '\'' => quoted = !quoted,
                '|' | '>' | '<' if !quoted => break,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn examples_are_right() {
        let mut count = 0;
        for line in [
            EXAMPLES,
            RUN_EXAMPLES,
            ALLOCINFO_EXAMPLES,
            CTL_EXAMPLES,
            GENERATE_EXAMPLES,
            crate::slabinfo::EXAMPLES,
            crate::kernel::args::EXAMPLES,
        ]
        .iter()
        .flat_map(|text| text.lines())
        {
            let Some(at) = line.find("memledger ") else {
                assert_eq!(line, "Examples:");
                continue;
            };
            let words = words(&line[at..]);
            if let Err(error) = Args::try_parse_from(&words) {
                panic!("{line}: {words:?}: {error}");
            }
            count += 1;
        }
        assert!(count > 15);
    }
}
