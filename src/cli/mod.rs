//! The command line: what was typed, what it means, and who does it. No arithmetic here.

mod analyze;
mod args;
mod exit;
mod inputs;
mod output;
mod progress;
mod replay;
mod whatif;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

/// Runs the command line `args`, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match args::Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    let done = match cli.command {
        args::Command::Analyze(args) => analyze::run(&args),
        args::Command::Replay(args) => replay::run(&args),
        args::Command::Whatif(args) => whatif::run(&args),
    };
    exit::code(done)
}
