//! `memledger run`: starts a command under the ledger, follows it to its end, reports, and ends as it did.

pub(crate) mod launch;
mod report;
mod snapshots;
mod trace;

use crate::args::{Colour, Run};
use crate::output::{Resolver, Target};
use crate::{Failure, Result};
use launch::Environment;
use memledger_inspect::preflight::{self, Problem};
use memledger_ptrace as ptrace;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use snapshots::End;
use std::ffi::OsString;
use std::process::exit;
use trace::{Options, Outcome, Tracer};

/// What is known before the start.
struct Plan {
    environment: Environment,
    options: Options,
    /// Why the command cannot be measured; the line that says so has been printed.
    unmeasurable: bool,
}

/// Runs the command. Returns its exit code; if a signal ended it, this process ends by the same.
pub(crate) fn run(args: &Run, colour: Colour) -> Result<u8> {
    let plan = plan(args)?;
    let mut resolver = Resolver::new(&args.symbols)?;
    let mut target = Target::open(args.output.as_deref(), colour)?;
    let ignored = ptrace::is_ignored(launch::SIGCHLD);
    if ignored {
        // Else the kernel would not keep the status of the command for us.
        ptrace::set_ignored(launch::SIGCHLD, false)?;
    }
    let (signals, blocked) = trace::block_signals()?;
    let child = launch::spawn(&args.command, &plan.environment, ignored, &blocked)?;
    let outcome = Tracer::new(&child, signals, plan.options).follow()?;
    // Whoever reads JSON gets some in any case: how the command ended, and no processes.
    if (!plan.unmeasurable || args.json) && !outcome.not_started {
        match report::print(args, &outcome, &mut resolver, &mut target) {
            Ok(()) | Err(Failure::BrokenPipe) => {}
            Err(Failure::Message(message)) => eprintln!("memledger: {message}"),
        }
    }
    end_as(&outcome)
}

/// Looks at the command before it runs, and says so if it cannot be measured.
fn plan(args: &Run) -> Result<Plan> {
    let blind = Plan {
        environment: Environment::default(),
        options: Options {
            children: args.children,
            blind: true,
        },
        unmeasurable: true,
    };
    let Some(name) = args.command.first() else {
        return Ok(blind);
    };
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let problems = preflight::preflight(name, &environment).problems;
    if problems
        .iter()
        .any(|problem| matches!(problem, Problem::NotFound | Problem::NotExecutable))
    {
        // The start will fail, and say why.
        return Ok(blind);
    }
    if let Some(problem) = problems.first() {
        eprintln!(
            "memledger: {} cannot be measured: {}",
            name.display(),
            explain(problem)
        );
        // A traced program would not become setuid; of others, the children may be measurable.
        if !args.children
            || problems
                .iter()
                .any(|problem| matches!(problem, Problem::Secure(_)))
        {
            return Ok(blind);
        }
    }
    if memledger_inspect::proc_is_foreign() {
        eprintln!(
            "memledger: {} is not measured: /proc is not that of this pid namespace (mount it, as unshare --mount-proc does)",
            name.display()
        );
        return Ok(blind);
    }
    let library = match launch::find_library(args.lib.as_deref()) {
        Ok(library) => library,
        Err(message) if args.lib.is_some() => return Err(Failure::Message(message)),
        Err(message) => {
            eprintln!("memledger: {} is not measured: {message}", name.display());
            return Ok(blind);
        }
    };
    Ok(Plan {
        environment: Environment {
            preload: Some(launch::preload_value(
                &library,
                std::env::var_os("LD_PRELOAD").as_deref(),
            )),
            memledger: Some(launch::memledger_value(
                std::env::var_os("MEMLEDGER").as_deref(),
                args.depth,
            )),
        },
        options: Options {
            children: args.children,
            blind: false,
        },
        unmeasurable: false,
    })
}

/// Why a command cannot be measured, and what one can do.
fn explain(problem: &Problem) -> String {
    match problem {
        Problem::NotFound => "command not found".to_owned(),
        Problem::NotExecutable => "not executable".to_owned(),
        Problem::Static => {
            "it is statically linked, so nothing can be preloaded (link it with libmemledger.a or the memledger crate)".to_owned()
        }
        Problem::Secure(why) => format!("it is {why}, so the loader ignores LD_PRELOAD"),
        Problem::OwnAllocator(name) => format!("it has an allocator of its own inside ({name})"),
        Problem::NotElf => "it is neither an ELF file nor a script".to_owned(),
        Problem::WrongArchitecture(what) => format!("it is built for {what}, the library is not"),
        Problem::Unreadable(why) => format!("its file may not be read ({why})"),
        other => format!("{other:?}"),
    }
}

/// Ends this process as the command ended.
fn end_as(outcome: &Outcome) -> Result<u8> {
    let signal = match outcome.end {
        End::Code(code) => return Ok(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        End::Signal(signal) => signal,
        End::Exec | End::Running => return Ok(2),
    };
    // The command has left its core file, if it was to leave one; ours would be of no use.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = ptrace::set_ignored(signal, false);
    if let Ok(signal) = Signal::try_from(signal) {
        let mut set = SigSet::empty();
        set.add(signal);
        let _ = set.thread_unblock();
    }
    let _ = ptrace::kill(std::process::id().cast_signed(), signal);
    // Delivered to the only thread before kill returns, unless it is one that does not kill.
    exit(128 + signal)
}
