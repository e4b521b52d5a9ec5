//! The command line: what was typed, what it means, and who does it. No arithmetic here.

mod analyze;
mod args;
mod check;
mod config;
mod diff;
mod dry_run;
mod dump;
mod exit;
mod explain;
mod fit;
mod gathered;
mod generate;
mod inputs;
mod live;
mod output;
mod progress;
mod replay;
mod report;
mod run;
mod timeline;
mod whatif;
mod whole_file;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{ColorChoice, CommandFactory as _, Parser, Subcommand};

pub use config::{Config, ConfigError, EXAMPLE};

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
    /// Colour the page: where standard output is a terminal, always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true
    )]
    color: ColorChoice,

    /// Do not cut or wrap anything to the width of the terminal, as for less -S
    #[arg(long, global = true)]
    wide: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    DryRun(dry_run::DryRun),
    Dump(dump::Dump),
    Analyze(analyze::Analyze),
    Diff(diff::Diff),
    Replay(replay::Replay),
    Report(report::Report),
    Timeline(timeline::Timeline),
    Whatif(whatif::Whatif),
    Fit(fit::Fit),
    Explain(explain::Explain),
    Check(check::Check),
    Live(live::Live),
    Generate(generate::Generate),
}

/// Runs the command line `args`, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(with_command(args)) {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    match cli.color {
        ColorChoice::Auto => {}
        ColorChoice::Always => anstream::ColorChoice::Always.write_global(),
        ColorChoice::Never => anstream::ColorChoice::Never.write_global(),
    }
    if cli.wide {
        output::widen();
    }
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::DryRun(args) => dry_run::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Timeline(args) => timeline::run(&args),
        Command::Whatif(args) => whatif::run(&args),
        Command::Fit(args) => fit::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Live(args) => live::run(&args),
        Command::Generate(args) => generate::run(&args, Cli::command()),
    };
    exit::code(done)
}

/// `oomscope FILE` means `oomscope analyze FILE`.
fn with_command(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let is_file = |arg: &OsString| {
        let is_command = |name: &str| Cli::command().find_subcommand(name).is_some();
        !arg.to_str().is_some_and(is_command) && Path::new(arg).exists()
    };
    if args.get(1).is_some_and(is_file) {
        args.insert(1, "analyze".into());
    }
    args
}
