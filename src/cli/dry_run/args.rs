//! The arguments of `oomscope dry-run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::options::DryRunOptions;
use crate::cli::args::Format;

/// Run a command without a GPU, to test whether it would fit on one
#[derive(Debug, Args)]
#[command(after_help = include_str!("../help/dry-run.txt"))]
pub(in crate::cli) struct DryRun {
    #[command(flatten)]
    pub(super) options: DryRunOptions,

    /// If it does not fit, run again with remedies that need no change to the program, and say which runs end
    ///
    /// At most five runs: the allocator settings that serve the request in a replay, foreach=False in optimizers and,
    /// with --size, smaller sizes. The program's output goes to DIR/try-1.txt and so on.
    #[arg(long = "try")]
    pub(super) tries: bool,

    /// Format of the answer on standard output: that of `analyze`, or the runs of --try
    ///
    /// The program's output then goes to DIR/output.txt.
    #[arg(long, default_value = "human")]
    pub(super) format: Format,

    /// Write the snapshots to DIR [default: oomscope-dry-run-1, or the next free number]
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: Option<PathBuf>,

    /// Exit code: that of the command, or the verdict: 0 would fit, 1 would not, 3 may fit, 2 did not finish or none
    #[arg(long, value_name = "WHICH", default_value = "command")]
    pub(super) exit_code: ExitCode,

    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// The exit code of `oomscope dry-run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ExitCode {
    Command,
    Verdict,
}
