//! What is said when the command is over, on standard error.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::child::Ended;
use super::directory::Seen;
use crate::analysis::{Options, analyze};
use crate::base::units::counted;
use crate::cli::exit::complain;
use crate::cli::gathered::gathered;
use crate::cli::inputs;
use crate::cli::output::style_of_errors;
use crate::output::document::terminal;
use crate::output::report;

/// Says what was recorded: of failures a page, else a line.
pub(in crate::cli) fn show(command: &[OsString], ended: Ended, seen: &Seen, snapshots: &[PathBuf]) {
    if matches!(ended, Ended::NotRun(_)) {
        return;
    }
    if snapshots.is_empty() {
        complain(&without_snapshot(command, ended, seen));
    } else if !written_elsewhere(snapshots) {
        complain("the page on these snapshots could not be written");
    }
}

/// Has another process write the page: whatever happens to that, as for lack of host memory, the exit code of the
/// command is told.
fn written_elsewhere(snapshots: &[PathBuf]) -> bool {
    let Ok(program) = std::env::current_exe() else { return false };
    let mut writer = Command::new(program);
    writer.args(["run", "--page-on"]).args(snapshots).stdin(Stdio::null());
    writer.status().is_ok_and(|status| status.success())
}

/// Writes the page on `snapshots`.
pub(super) fn write(snapshots: &[PathBuf]) -> anyhow::Result<()> {
    let inputs = inputs::expand(snapshots)?;
    let options = Options { top: 3, ..Options::default() };
    let (read, unreadable) =
        inputs::read_all(&inputs, |snapshot, path, bytes| analyze(snapshot, path, bytes, options));
    let Some((report, _)) = gathered(read, unreadable, options)? else { return Ok(()) };
    let directory = snapshots.first().and_then(|path| path.parent()).unwrap_or(Path::new("."));
    let document = report::after_run(&report, &directory.display().to_string());
    let text = terminal(&document, style_of_errors());
    // Nobody is left to tell when standard error itself is closed.
    let _ = io::stderr().lock().write_all(text.as_bytes());
    Ok(())
}

fn without_snapshot(command: &[OsString], ended: Ended, seen: &Seen) -> String {
    let how = match ended {
        Ended::By(signal) => format!("ended by signal {signal}; "),
        Ended::With(0) | Ended::NotRun(_) => String::new(),
        Ended::With(code) => format!("exit code {code}; "),
    };
    if seen.recorded > 0 {
        let processes = counted(seen.recorded as u64, "process");
        let killed = match ended {
            Ended::By(9) => ": a process that the system kills for lack of host memory ends so",
            _ => "",
        };
        return format!("{how}{processes} recorded, and no request for GPU memory failed{killed}");
    }
    let isolated = command.iter().filter_map(|arg| arg.to_str()).any(is_isolating);
    let why = if seen.torch_without_cuda {
        "this PyTorch was built without CUDA"
    } else if seen.torch {
        "PyTorch was imported, but nothing used CUDA"
    } else if isolated {
        "Python's options -I and -E ignore PYTHONPATH, by which the recorder comes in; leave them out, or \
         `pip install oomscope` there, which PyTorch 2.5 and later finds by itself"
    } else if seen.python {
        "no Python process imported torch"
    } else {
        "no Python process was started that reads PYTHONPATH"
    };
    format!("{how}no process was recorded: {why}")
}

/// Whether `arg` is an option of Python's such as `-I`, `-E` or `-Es`. Another program's may look the same.
fn is_isolating(arg: &str) -> bool {
    let letters = arg.strip_prefix('-').filter(|letters| letters.chars().all(char::is_alphabetic));
    letters.is_some_and(|letters| letters.len() <= 4 && letters.contains(['I', 'E']))
}
