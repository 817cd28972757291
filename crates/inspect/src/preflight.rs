//! Tells before a run whether a command can be measured.
//!
//! Measuring means preloading: the loader of a dynamic executable puts our library in front. That fails silently for static
//! executables, in secure mode, and where the executable itself defines `malloc`, which then wins.

use crate::files::open_regular;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a command cannot be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Not in `PATH`, or no such file.
    NotFound,
    /// A file, but not executable.
    NotExecutable,
    /// Statically linked.
    Static,
    /// Setuid, setgid or with file capabilities (which of them): the loader ignores `LD_PRELOAD`.
    Secure(&'static str),
    /// The executable defines this allocation function itself, which wins over the preloaded one.
    OwnAllocator(String),
    /// Neither ELF nor a script.
    NotElf,
    /// ELF of another class or machine.
    WrongArchitecture(String),
    /// The file may not be read, so nothing is known.
    Unreadable(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::NotFound => f.write_str("command not found"),
            Problem::NotExecutable => f.write_str("not executable"),
            Problem::Static => f.write_str("statically linked: nothing can be preloaded into it"),
            Problem::Secure(what) => write!(f, "{what}: the loader ignores LD_PRELOAD"),
            Problem::OwnAllocator(name) => {
                write!(
                    f,
                    "has its own allocator: the executable defines {name}, which wins over the preloaded one"
                )
            }
            Problem::NotElf => f.write_str("neither an ELF executable nor a script"),
            Problem::WrongArchitecture(what) => write!(f, "built for another machine ({what})"),
            Problem::Unreadable(e) => write!(f, "the file cannot be read ({e})"),
        }
    }
}

/// What is known of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The file that runs; empty if not found.
    pub path: PathBuf,
    /// The ELF file that is measured: `path`, or the interpreter of a script.
    pub elf: PathBuf,
    /// Interpreters on the way, outermost first.
    pub interpreters: Vec<PathBuf>,
    /// Why it cannot be measured; empty if it can.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Nothing stands against it.
    pub fn measurable(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Looks at `command` as `execvp` would find it with `PATH` in `env`. For `#!/usr/bin/env NAME` it looks at `NAME`.
pub fn preflight(command: &OsStr, env: &[(OsString, OsString)]) -> Report {
    let mut report = Report::default();
    let path = match find_in_path(command, env) {
        Ok(path) => path,
        Err(problem) => {
            report.problems.push(problem);
            return report;
        }
    };
    report.path = path.clone();
    let mut at = path;
    // The kernel follows four interpreters.
    for _ in 0..5 {
        report.elf = at.clone();
        match look(&at, &mut report.problems) {
            None => return report,
            Some(script) => match next_interpreter(&script, env) {
                Ok(path) => {
                    report.interpreters.push(path.clone());
                    at = path;
                }
                Err(problem) => {
                    report.problems.push(problem);
                    return report;
                }
            },
        }
    }
    report.problems.push(Problem::NotElf);
    report
}

/// `PATH` search as execvp does it: a name with a slash is a path; a file that may not be run is kept in mind.
fn find_in_path(command: &OsStr, env: &[(OsString, OsString)]) -> Result<PathBuf, Problem> {
    if command.as_bytes().contains(&b'/') {
        return runnable(Path::new(command)).map(|()| PathBuf::from(command));
    }
    let path = env
        .iter()
        .find(|(k, _)| k == "PATH")
        .map_or(OsStr::new("/bin:/usr/bin"), |(_, v)| v);
    let mut worst = Problem::NotFound;
    if command.is_empty() {
        return Err(worst);
    }
    for dir in std::env::split_paths(path) {
        let dir = if dir.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            dir
        };
        let file = dir.join(command);
        match runnable(&file) {
            Ok(()) => return Ok(file),
            Err(Problem::NotFound) => {}
            Err(problem) => worst = problem,
        }
    }
    Err(worst)
}

fn runnable(path: &Path) -> Result<(), Problem> {
    match fs::metadata(path) {
        Ok(m) if m.is_file() && m.permissions().mode() & 0o111 != 0 => Ok(()),
        Ok(_) => Err(Problem::NotExecutable),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(Problem::NotExecutable),
        Err(_) => Err(Problem::NotFound),
    }
}

/// The words after `#!`: interpreter and its argument.
struct Script {
    interpreter: PathBuf,
    argument: Option<OsString>,
}

/// Examines a file; returns the `#!` line of a script, else adds what stands against it.
fn look(path: &Path, problems: &mut Vec<Problem>) -> Option<Script> {
    let mut head = Vec::new();
    let read = open_regular(path).and_then(|f| f.take(256).read_to_end(&mut head));
    if let Err(e) = read {
        problems.push(Problem::Unreadable(e.kind().to_string()));
        return None;
    }
    if let Some(line) = head.strip_prefix(b"#!") {
        let script = script(line);
        if script.is_none() {
            problems.push(Problem::NotElf);
        }
        return script;
    }
    if let Some(what) = secure(path) {
        problems.push(Problem::Secure(what));
    }
    match check_elf(path, &head) {
        Ok(()) => {}
        Err(problem) => problems.push(problem),
    }
    None
}

fn script(line: &[u8]) -> Option<Script> {
    let line = line.split(|&b| b == b'\n').next()?.trim_ascii();
    let end = line
        .iter()
        .position(|b| matches!(b, b' ' | b'\t'))
        .unwrap_or(line.len());
    let (interpreter, argument) = (&line[..end], line[end..].trim_ascii());
    let argument = (!argument.is_empty()).then(|| OsStr::from_bytes(argument).to_owned());
    (!interpreter.is_empty()).then(|| Script {
        interpreter: OsStr::from_bytes(interpreter).into(),
        argument,
    })
}

/// The file that runs next for a script; through `env` to what that starts.
fn next_interpreter(script: &Script, env: &[(OsString, OsString)]) -> Result<PathBuf, Problem> {
    runnable(&script.interpreter)?;
    let is_env = script.interpreter.file_name() == Some(OsStr::new("env"));
    let Some(argument) = script.argument.as_ref().filter(|_| is_env) else {
        return Ok(script.interpreter.clone());
    };
    let words = argument
        .as_bytes()
        .split(|b| matches!(b, b' ' | b'\t'))
        .filter(|w| !w.is_empty());
    let mut words = words.filter(|w| !w.starts_with(b"-") && !w.contains(&b'='));
    match words.next() {
        Some(name) => find_in_path(OsStr::from_bytes(name), env),
        None => Ok(script.interpreter.clone()),
    }
}

/// Which right the file gives that puts the loader into secure mode for this user.
fn secure(path: &Path) -> Option<&'static str> {
    let meta = fs::metadata(path).ok()?;
    let own = |name: &str| -> Option<u32> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        status
            .lines()
            .find_map(|l| l.strip_prefix(name))?
            .split_ascii_whitespace()
            .nth(1)?
            .parse()
            .ok()
    };
    let mode = meta.mode();
    // Setuid to oneself changes nothing.
    if mode & 0o4000 != 0 && own("Uid:") != Some(meta.uid()) {
        return Some("setuid");
    }
    if mode & 0o2010 == 0o2010 && own("Gid:") != Some(meta.gid()) {
        return Some("setgid");
    }
    // Capabilities give root nothing new.
    (own("Uid:") != Some(0) && crate::mem::has_xattr(path, c"security.capability"))
        .then_some("file capabilities")
}

fn check_elf(path: &Path, head: &[u8]) -> Result<(), Problem> {
    // The class is 2 for 64 bits.
    let Some(class) = head.strip_prefix(b"\x7fELF").and_then(|h| h.first()) else {
        return Err(Problem::NotElf);
    };
    if *class != 2 {
        return Err(Problem::WrongArchitecture("32-bit".into()));
    }
    let unreadable = |e: String| Problem::Unreadable(e);
    let cache = ReadCache::new(File::open(path).map_err(|e| unreadable(e.to_string()))?);
    let file = ElfFile64::<Endianness, _>::parse(&cache).map_err(|e| unreadable(e.to_string()))?;
    let (endian, header) = (file.endian(), file.elf_header());
    if header.e_machine(endian) != elf::EM_X86_64 {
        return Err(Problem::WrongArchitecture(format!(
            "ELF machine {}",
            header.e_machine(endian).0
        )));
    }
    let interpreted = file
        .elf_program_headers()
        .iter()
        .any(|p| p.p_type(endian) == elf::PT_INTERP);
    if !interpreted {
        return Err(Problem::Static);
    }
    // Not operator new: a static C++ library's is exported by some programs (gcc's cc1), and calls malloc.
    let own = |s: &str| ["malloc", "free", "calloc", "realloc", "__libc_malloc"].contains(&s);
    // A sanitizer's runtime is an allocator, and insists on coming first.
    let sanitizer =
        |s: &str| ["__asan_init", "__hwasan_init", "__tsan_init", "__msan_init"].contains(&s);
    let found = file.dynamic_symbols().find_map(|symbol| {
        let name = symbol.name().ok()?;
        let defined = symbol.is_definition() && symbol.address() != 0;
        (sanitizer(name) || own(name) && defined).then(|| name.to_owned())
    });
    match found {
        Some(name) => Err(Problem::OwnAllocator(name)),
        None => Ok(()),
    }
}
