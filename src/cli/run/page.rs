//! Prints the result of a run on standard error.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::child::{CommandEnd, Recorded};
use super::directory::RunStatus;
use crate::analysis::{Options, ProgramEnd, analyze};
use crate::base::units::counted;
use crate::cli::exit::{Exit, print_stderr};
use crate::cli::inputs;
use crate::cli::output::print_page;
use crate::output::report;

/// The process that writes the page adds this to the exit code of a dry run's verdict.
const VERDICT: u8 = 100;

/// Prints a page on the snapshots, or else a line that says why there are none. Returns the verdict's exit code if they
/// are of a dry run.
pub(in crate::cli) fn print_result(command: &[OsString], recorded: &Recorded) -> Option<u8> {
    if matches!(recorded.end, CommandEnd::NotRun(_)) {
        return None;
    }
    if recorded.snapshots.is_empty() {
        print_stderr(&describe_no_snapshot(command, recorded));
        return None;
    }
    let code = write_in_child(recorded);
    if code.is_none_or(|code| code != 0 && code < VERDICT) {
        print_stderr("the page on these snapshots could not be written");
    }
    code.and_then(|code| code.checked_sub(VERDICT))
}

/// Writes the page in another process, so that even if it is killed, for example for lack of host memory, the exit code
/// is that of the command. Returns its exit code.
fn write_in_child(recorded: &Recorded) -> Option<u8> {
    let program = std::env::current_exe().ok()?; // the caller reports it
    let mut child = Command::new(program);
    child.arg("run").arg("--page-on").args(&recorded.snapshots).stdin(Stdio::null());
    child.args(["--lost", &recorded.status.lost().to_string()]);
    match recorded.end {
        CommandEnd::Code(code) => child.args(["--ended-with", &code.to_string()]),
        CommandEnd::Signal(signal) => child.args(["--ended-by", &signal.to_string()]),
        CommandEnd::NotRun(_) => &mut child,
    };
    u8::try_from(child.status().ok()?.code()?).ok()
}

pub(super) fn write(snapshots: &[PathBuf], end: Option<ProgramEnd>, lost: usize) -> anyhow::Result<Exit> {
    let inputs = inputs::expand_paths(snapshots)?;
    let options = Options { top: 3, ..Options::default() };
    let (read, unreadable) = inputs::read_all(&inputs, |snapshot, path, bytes| analyze(snapshot, path, bytes, options));
    // Unreadable files have been reported.
    let Some((mut report, _)) = inputs::combine_snapshots(read, unreadable, options)? else { return Ok(Exit::Success) };
    if let Some(end) = end {
        report.set_end(end, lost);
    }
    let directory = snapshots.first().and_then(|path| path.parent()).unwrap_or(Path::new("."));
    print_page(report::after_run(&report, &directory.display().to_string()));
    Ok(report.dry_run.as_ref().map_or(Exit::Success, |job| Exit::Code(VERDICT + job.verdict.exit_code())))
}

/// The likely reason of signal 9.
const KILLED: &str = "the system may have killed it for lack of host memory";

/// Why a run left no snapshot.
pub(in crate::cli) fn describe_no_snapshot(command: &[OsString], recorded: &Recorded) -> String {
    let Recorded { end, status, .. } = recorded;
    let how = match *end {
        CommandEnd::Signal(signal) => format!("ended by signal {signal}; "),
        CommandEnd::Code(0) | CommandEnd::NotRun(_) => String::new(),
        CommandEnd::Code(code) => format!("exit code {code}; "),
    };
    if status.is_dry_run {
        let why = describe_no_verdict(command, *end, status);
        return format!("no verdict: {how}{why}");
    }
    if status.failed > 0 {
        let processes = counted(status.failed as u64, "process");
        return format!("{how}a request for GPU memory failed in {processes}, but no snapshot could be written");
    }
    if status.recorded > 0 {
        let processes = counted(status.recorded as u64, "process");
        let killed = if *end == CommandEnd::Signal(9) { format!(": {KILLED}") } else { String::new() };
        return format!("{how}{processes} recorded, and no request for GPU memory failed{killed}");
    }
    format!("{how}no process was recorded: {}", describe_not_recorded(command, status))
}

/// Why a dry run has no snapshot.
fn describe_no_verdict(command: &[OsString], end: CommandEnd, status: &RunStatus) -> String {
    if status.recorded == 0 {
        return describe_not_recorded(command, status).to_owned();
    }
    let killed = if end == CommandEnd::Signal(9) { format!("; {KILLED}") } else { String::new() };
    if status.unfinished > 0 {
        let processes = counted(status.unfinished as u64, "process");
        return format!("{processes} ended without a snapshot{killed}");
    }
    "the program used CUDA, but none of its memory".to_owned()
}

/// Why no process was recorded.
fn describe_not_recorded(command: &[OsString], status: &RunStatus) -> &'static str {
    let isolated = command.iter().filter_map(|arg| arg.to_str()).any(is_isolating);
    if status.torch_without_cuda {
        "this PyTorch was built without CUDA"
    } else if status.torch {
        if status.is_dry_run {
            "PyTorch was imported, but nothing used CUDA"
        } else {
            "PyTorch was imported, but nothing used CUDA; without a GPU, `oomscope dry-run` tells whether it would fit"
        }
    } else if isolated {
        "Python's options -I and -E ignore PYTHONPATH, which loads the recorder; remove them, or `pip install oomscope` in its \
         environment, which PyTorch 2.5 and later loads by itself"
    } else if status.python {
        "no Python process imported torch, unless it was started with another PYTHONPATH (as by env -i or sudo)"
    } else if status.old_python {
        "the recorder needs Python 3.8 or later"
    } else {
        "no Python process that reads PYTHONPATH was started"
    }
}

/// True if `arg` looks like Python's option `-I`, `-E` or `-Es`; another program may have the same.
fn is_isolating(arg: &str) -> bool {
    let letters = arg.strip_prefix('-').filter(|letters| letters.chars().all(char::is_alphabetic));
    letters.is_some_and(|letters| letters.len() <= 4 && letters.contains(['I', 'E']))
}
