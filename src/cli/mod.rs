//! The program `oomscope`: parses arguments, reads and writes files, and calls the library.
//!
//! The command line goes in; results on standard output, messages on standard error and an exit code come out. This
//! room does not know how results are computed.

mod analyze;
mod args;
mod atomic_directory;
mod atomic_file;
mod browser_module;
mod check;
mod combine;
mod config;
mod diff;
mod directory_lock;
mod dry_run;
mod dump;
mod exit;
mod explain;
#[cfg(feature = "explore")]
mod explore;
mod export;
mod fit;
mod generate;
mod in_order;
mod inputs;
mod lines;
mod live;
mod output;
mod plan;
mod progress;
mod rank_names;
mod replay;
mod report;
mod run;
mod schema;
mod signals;
mod sized_recordings;
mod source;
mod timeline;
mod viewer;
mod whatif;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::base::input::looks_like_log;

pub use config::{Config, ConfigError, EXAMPLE};

/// Enough bytes to distinguish a log from a snapshot.
const LOG_START_BYTES: u64 = 4096;

/// Analyze PyTorch CUDA memory snapshots: what holds GPU memory, and why a request failed
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "To record a snapshot, call torch.cuda.memory._record_memory_history(), then \
torch.cuda.memory._dump_snapshot(\"snapshot.pickle\"). oomscope reads it without a GPU or PyTorch, and executes nothing \
in it.\n\n\
Exit codes: 0 success; 1 a check failed or the model diverged from the recording; 2 wrong usage or an unreadable file."
)]
struct Cli {
    /// When to use colour
    ///
    /// `auto` uses colour if standard output is a terminal, and follows `NO_COLOR` and `CLICOLOR_FORCE`.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    color: ColorChoice,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    DryRun(dry_run::DryRun),
    Dump(dump::Dump),
    Analyze(analyze::Analyze),
    #[cfg(feature = "explore")]
    Explore(explore::Explore),
    Diff(diff::Diff),
    Replay(replay::Replay),
    Report(report::Report),
    Timeline(timeline::Timeline),
    Export(export::Export),
    Viewer(viewer::Viewer),
    Whatif(whatif::Whatif),
    Fit(fit::Fit),
    Plan(plan::Plan),
    Explain(explain::Explain),
    Check(check::Check),
    Live(live::Live),
    Schema(schema::Schema),
    Generate(generate::Generate),
}

/// The commands by what one wants; the rare ones come last.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Understand a snapshot, or a log", &["analyze", "explain", "explore", "report", "timeline", "diff"]),
    ("Record a job", &["run"]),
    ("Try it otherwise", &["whatif", "replay", "dry-run", "fit", "plan"]),
    ("Guard it in CI", &["check"]),
    ("Hand it on", &["export", "viewer"]),
    ("More", &["dump", "live", "schema", "generate"]),
];

/// The command line, whose help lists the commands in groups.
fn grouped_command() -> clap::Command {
    let command = Cli::command();
    let line = |name: &&str| {
        let command = command.find_subcommand(name)?; // not in every build
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        Some(format!("  {:<9} {about}\n", command.get_name()))
    };
    let group = |(heading, names): &(&str, &[&str])| {
        format!("\n{heading}:\n{}", names.iter().filter_map(line).collect::<String>())
    };
    let groups: String = GROUPS.iter().map(group).collect();
    let usage = "oomscope FILE..            the same as oomscope analyze FILE..\n       oomscope COMMAND [OPTIONS] ..";
    command.override_usage(usage).help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// Runs the command line `args`, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let is_bisecting = check::is_bisecting(&args);
    let parsed = grouped_command().try_get_matches_from(with_command(args));
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) if is_bisecting && error.use_stderr() => {
            exit::print_clap_error(&error);
            return ExitCode::from(check::ENDS_BISECTION);
        }
        Err(error) => {
            let Some(path) = missing_file(&error) else { return exit::print_clap_error(&error) };
            exit::print_stderr(&format!("{path}: no such file"));
            return exit::error_code();
        }
    };
    match cli.color {
        ColorChoice::Auto => {}
        ColorChoice::Always => anstream::ColorChoice::Always.write_global(),
        ColorChoice::Never => anstream::ColorChoice::Never.write_global(),
    }
    let exit = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::DryRun(args) => dry_run::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        #[cfg(feature = "explore")]
        Command::Explore(args) => explore::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Timeline(args) => timeline::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Viewer(args) => viewer::run(&args),
        Command::Whatif(args) => whatif::run(&args),
        Command::Fit(args) => fit::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Live(args) => live::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Generate(args) => generate::run(&args, Cli::command()),
    };
    exit::exit_code(exit)
}

/// The argument that is no command but looks like the path of a file.
fn missing_file(error: &clap::Error) -> Option<&str> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else { return None }; // no name
    name.contains(['.', '/', '\\']).then_some(name)
}

/// Whether the start of the file at `path` is that of a log.
fn starts_like_log(path: &Path) -> bool {
    let mut start = Vec::new();
    let file = File::open(path).ok().filter(|_| path.is_file());
    let is_read = file.is_some_and(|file| file.take(LOG_START_BYTES).read_to_end(&mut start).is_ok());
    is_read && looks_like_log(&start)
}

/// `oomscope FILE` means `oomscope analyze FILE`, or `oomscope explain FILE` for a log. Flags of the page may come first.
fn with_command(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let is_flag = |arg: &&OsString| ["--bytes", "--full", "--wide"].iter().any(|flag| *arg == flag);
    let first = 1 + args.iter().skip(1).take_while(is_flag).count();
    let Some(arg) = args.get(first) else { return args };
    let is_command = |name: &str| Cli::command().find_subcommand(name).is_some();
    if arg.to_str().is_some_and(is_command) {
        args[1..=first].rotate_right(1);
    } else if Path::new(arg).exists() {
        let command = if starts_like_log(Path::new(arg)) { "explain" } else { "analyze" };
        args.insert(1, command.into());
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        listed.retain(|name| cfg!(feature = "explore") || *name != "explore");
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }
}
