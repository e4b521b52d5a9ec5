//! Exit codes: 0 done, 1 a gate failed, 2 wrong usage or unreadable input. A closed pipe is no failure.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::base::units::escape_text;

/// What a command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Everything was read.
    Well,
    /// Some input could not be read; it has been said which.
    Partly,
    /// A gate failed, or a replay diverged.
    Failed,
    /// A command that was run ended with this exit code.
    As(u8),
}

const GATE_FAILED: u8 = 1;
const FAILED: u8 = 2;

/// Tells clap's message: help on standard output, errors on standard error.
pub(super) fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() {
        return ExitCode::from(FAILED);
    }
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(FAILED),
        _ => ExitCode::SUCCESS,
    }
}

/// The exit code, with the error told on standard error.
pub(super) fn code(done: anyhow::Result<Done>) -> ExitCode {
    match done {
        Ok(Done::Well) => ExitCode::SUCCESS,
        Ok(Done::Partly) => ExitCode::from(FAILED),
        Ok(Done::Failed) => ExitCode::from(GATE_FAILED),
        Ok(Done::As(code)) => ExitCode::from(code),
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(FAILED)
        }
    }
}

/// One line on standard error.
pub(super) fn complain(message: &str) {
    // Nobody is left to tell when standard error itself is closed.
    let _ = writeln!(io::stderr().lock(), "oomscope: {}", escape_text(message));
}
