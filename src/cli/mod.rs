//! The command line: what was typed, what it means, and who does it. No arithmetic here.

mod analyze;
mod args;
mod check;
mod diff;
mod exit;
mod explain;
mod inputs;
mod live;
mod output;
mod progress;
mod replay;
mod timeline;
mod whatif;
mod whole_file;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Analyzes PyTorch CUDA memory snapshots: what holds GPU memory, and why a request failed.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") writes a snapshot; call \
torch.cuda.memory._record_memory_history() first. Reading it needs no GPU and no PyTorch, and executes nothing in it.\n\n\
Exit codes: 0 done; 1 a check failed or the model diverges from the recording; 2 wrong usage or an unreadable file."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Analyze(analyze::Analyze),
    Diff(diff::Diff),
    Replay(replay::Replay),
    Timeline(timeline::Timeline),
    Whatif(whatif::Whatif),
    Explain(explain::Explain),
    Check(check::Check),
    Live(live::Live),
}

/// Runs the command line `args`, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    let done = match cli.command {
        Command::Analyze(args) => analyze::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Timeline(args) => timeline::run(&args),
        Command::Whatif(args) => whatif::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Live(args) => live::run(&args),
    };
    exit::code(done)
}
