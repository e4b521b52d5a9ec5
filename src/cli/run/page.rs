//! Prints the result of a run on standard error.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::child::CommandEnd;
use super::directory::RunStatus;
use crate::analysis::{Options, analyze};
use crate::base::units::counted;
use crate::cli::combine::combine_snapshots;
use crate::cli::exit::print_stderr;
use crate::cli::inputs;
use crate::cli::output::stderr_style;
use crate::output::document::terminal;
use crate::output::report;

/// Prints a page on the snapshots, or else a line that says why there are none.
pub(in crate::cli) fn print_result(command: &[OsString], end: CommandEnd, status: &RunStatus, snapshots: &[PathBuf]) {
    if matches!(end, CommandEnd::NotRun(_)) {
        return;
    }
    if snapshots.is_empty() {
        print_stderr(&describe_no_snapshot(command, end, status));
    } else if !write_in_child(snapshots) {
        print_stderr("the page on these snapshots could not be written");
    }
}

/// Writes the page in another process, so that even if it is killed, for example for lack of host memory, the exit code
/// is that of the command.
fn write_in_child(snapshots: &[PathBuf]) -> bool {
    let Ok(program) = std::env::current_exe() else { return false }; // the caller reports it
    let mut child = Command::new(program);
    child.args(["run", "--page-on"]).args(snapshots).stdin(Stdio::null());
    child.status().is_ok_and(|status| status.success())
}

pub(super) fn write(snapshots: &[PathBuf]) -> anyhow::Result<()> {
    let inputs = inputs::expand_paths(snapshots)?;
    let options = Options { top: 3, ..Options::default() };
    let (read, unreadable) = inputs::read_all(&inputs, |snapshot, path, bytes| analyze(snapshot, path, bytes, options));
    // Unreadable files have been reported.
    let Some((report, _)) = combine_snapshots(read, unreadable, options)? else { return Ok(()) };
    let directory = snapshots.first().and_then(|path| path.parent()).unwrap_or(Path::new("."));
    let document = report::after_run(&report, &directory.display().to_string());
    let text = terminal(&document, stderr_style());
    // If standard error is closed, there is nowhere to report it.
    let _ = io::stderr().lock().write_all(text.as_bytes());
    Ok(())
}

fn describe_no_snapshot(command: &[OsString], end: CommandEnd, status: &RunStatus) -> String {
    let how = match end {
        CommandEnd::Signal(signal) => format!("ended by signal {signal}; "),
        CommandEnd::Code(0) | CommandEnd::NotRun(_) => String::new(),
        CommandEnd::Code(code) => format!("exit code {code}; "),
    };
    if status.recorded > 0 {
        let processes = counted(status.recorded as u64, "process");
        let killed = match end {
            CommandEnd::Signal(9) => ": the system may have killed it for lack of host memory",
            _ => "",
        };
        return format!("{how}{processes} recorded, and no request for GPU memory failed{killed}");
    }
    let isolated = command.iter().filter_map(|arg| arg.to_str()).any(is_isolating);
    let why = if status.torch_without_cuda {
        "this PyTorch was built without CUDA"
    } else if status.torch {
        "PyTorch was imported, but nothing used CUDA"
    } else if isolated {
        "Python's options -I and -E ignore PYTHONPATH, which loads the recorder; remove them, or `pip install oomscope` in its \
         environment, which PyTorch 2.5 and later loads by itself"
    } else if status.python {
        "no Python process imported torch"
    } else {
        "no Python process that reads PYTHONPATH was started"
    };
    format!("{how}no process was recorded: {why}")
}

/// True if `arg` looks like Python's option `-I`, `-E` or `-Es`; another program may have the same.
fn is_isolating(arg: &str) -> bool {
    let letters = arg.strip_prefix('-').filter(|letters| letters.chars().all(char::is_alphabetic));
    letters.is_some_and(|letters| letters.len() <= 4 && letters.contains(['I', 'E']))
}
