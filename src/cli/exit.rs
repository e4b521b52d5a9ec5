//! Exit codes: 0 success, 1 a failed check, 2 wrong usage or unreadable input. A closed pipe is success.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::bail;

use crate::analysis::Unreadable;
use crate::base::units::{escape_command_lines, escape_text};

/// The result of a command, for the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Success,
    /// Some input could not be read; a message named it.
    Unreadable,
    /// A check failed, or a replay diverged.
    Failed,
    /// The exit code of the command that was run.
    Code(u8),
}

const CHECK_FAILED: u8 = 1;
const ERROR: u8 = 2;

/// Prints clap's message: help on standard output, errors on standard error.
pub(super) fn print_clap_error(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        print_usage_error(error);
        return ExitCode::from(ERROR);
    }
    match error.print() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(ERROR),
        _ => ExitCode::SUCCESS,
    }
}

/// Prints clap's message in its style, or without style if an argument in it has characters that a terminal or a CI
/// runner could act on.
fn print_usage_error(error: &clap::Error) {
    let plain = error.render().to_string();
    let escaped: Vec<String> = plain.lines().map(escape_text).collect();
    let escaped = escape_command_lines(&escaped.join("\n"));
    // If standard error is closed, there is nowhere to report it.
    let _ = if escaped == plain.trim_end_matches('\n') {
        error.print()
    } else {
        writeln!(io::stderr().lock(), "{escaped}")
    };
}

/// Prints the error, if any, and returns the exit code.
pub(super) fn exit_code(result: anyhow::Result<Exit>) -> ExitCode {
    match result {
        Ok(Exit::Success) => ExitCode::SUCCESS,
        Ok(Exit::Unreadable) => ExitCode::from(ERROR),
        Ok(Exit::Failed) => ExitCode::from(CHECK_FAILED),
        Ok(Exit::Code(code)) => ExitCode::from(code),
        Err(error) => {
            print_stderr(&format!("{error:#}"));
            ExitCode::from(ERROR)
        }
    }
}

/// Prints one line on standard error.
pub(super) fn print_stderr(message: &str) {
    // If standard error is closed, there is nowhere to report it.
    let _ = writeln!(io::stderr().lock(), "oomscope: {}", escape_text(message));
}

/// Reports the unreadable files beside a number of files that were `read`. `None` if no file was read; fails if there is
/// no file at all.
pub(super) fn report_unreadable(unreadable: &[Unreadable], read: usize) -> anyhow::Result<Option<Exit>> {
    for file in unreadable {
        print_stderr(&format!("{}: {}", file.path, file.message));
    }
    match (read, unreadable.len()) {
        (0, 0) => bail!("no snapshot among the files given"),
        (0, _) => Ok(None),
        (_, 0) => Ok(Some(Exit::Success)),
        _ => Ok(Some(Exit::Unreadable)),
    }
}
