//! The program `oomscope`: parses arguments, reads and writes files, and calls the library.
//!
//! The command line goes in; results on standard output, messages on standard error and an exit code come out. This
//! room does not know how results are computed.

#![expect(clippy::doc_markdown, reason = "the comments of options are shown as typed, in a terminal")]

mod analyze;
mod args;
mod atomic_file;
mod check;
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
mod guess;
mod in_order;
mod inputs;
mod lines;
#[cfg(feature = "cuda")]
mod live;
mod output;
mod plan;
mod progress;
mod replay;
mod report;
mod run;
mod schema;
mod signals;
mod source;
mod timeline;
mod viewer;
mod whatif;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead as _, Read as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::error::{ContextKind, ErrorKind};
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
    after_help = include_str!("help/oomscope.txt")
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
    #[cfg(feature = "cuda")]
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
    let groups = GROUPS.map(|(heading, names)| {
        // Not every build has all of them.
        let commands = names.iter().filter_map(|name| command.find_subcommand(name));
        let rows = commands.map(|command| {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            format!("  {:<9} {about}\n", command.get_name())
        });
        format!("\n{heading}:\n{}", rows.collect::<String>())
    });
    let groups = groups.concat();
    let usage = "oomscope FILE..            the same as oomscope analyze FILE..\n       oomscope COMMAND [OPTIONS] ..";
    command.override_usage(usage).help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// Runs the command line `args`, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match parse(args.into_iter().collect()) {
        Ok(cli) => cli,
        Err(error) => {
            let Some(path) = missing_file(&error) else { return exit::print_clap_error(&error) };
            return exit::exit_code(Err(anyhow!("{path}: no such file")));
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
        #[cfg(feature = "cuda")]
        Command::Live(args) => live::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Generate(args) => generate::run(&args, Cli::command()),
    };
    exit::exit_code(exit)
}

/// Words that are corrected in one command line, at most.
const MAX_CORRECTIONS: usize = 8;

/// Parses `args`. First guesses are corrected if their meaning is one, else the error has a hint.
fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let command = grouped_command();
    let mut args = with_command(args, &command);
    for _ in 0..MAX_CORRECTIONS {
        let parsed = command.clone().try_get_matches_from(&args).and_then(|matches| Cli::from_arg_matches(&matches));
        let Err(error) = parsed else { return parsed };
        match guess::correct(&command, &args, &error) {
            Some(Ok(corrected)) => args = corrected,
            hint => return Err(guess::with_hint(error, hint.and_then(Result::err))),
        }
    }
    Cli::try_parse_from(&args)
}

/// The argument that is no command but looks like the path of a file.
fn missing_file(error: &clap::Error) -> Option<&str> {
    if error.kind() != ErrorKind::InvalidSubcommand || error.get(ContextKind::Suggested).is_some() {
        return None;
    }
    let name = guess::context_text(error, ContextKind::InvalidSubcommand)?;
    name.contains(['.', '/', '\\']).then_some(name)
}

/// The command that reads `arg`: a snapshot, a log, directories of them, a page of `memory_viz`, standard input, or
/// the text of a message.
fn command_for(arg: &OsString) -> Option<&'static str> {
    let path = Path::new(arg);
    let mut start = Vec::new();
    if inputs::is_stdin(path) {
        start = io::stdin().lock().fill_buf().unwrap_or_default().to_vec();
    } else if path.is_file() {
        // An unreadable file is an error of the command.
        let _ = File::open(path).map(|file| file.take(LOG_START_BYTES).read_to_end(&mut start));
    } else if !path.is_dir() {
        return explain::is_message(arg).then_some("explain");
    }
    let is_page = start.trim_ascii_start().starts_with(b"<");
    match path.extension() {
        Some(extension) if extension == "py" => None,
        // `python train.py` where there is a directory `python`.
        _ if path.is_dir() && guess::is_on_path(arg) && inputs::expand_paths(&[path.to_owned()]).is_err() => None,
        _ if looks_like_log(&start) && !is_page || explain::has_only_logs(path) => Some("explain"),
        _ => Some("analyze"),
    }
}

/// `oomscope FILE` runs the command that reads the file. Options may come first.
fn with_command(mut args: Vec<OsString>, command: &clap::Command) -> Vec<OsString> {
    let found = args.iter().enumerate().skip(1).find_map(|(index, arg)| {
        let is_command = command.find_subcommand(arg).is_some();
        Some((index, if is_command { None } else { Some(command_for(arg)?) }))
    });
    let has_option_first = args.get(1).and_then(|arg| arg.to_str()).is_some_and(|arg| arg.starts_with("--"));
    match found {
        Some((index, _)) if index > 1 && !has_option_first => {}
        Some((_, Some(reader))) => args.insert(1, reader.into()),
        Some((index, None)) => args[1..=index].rotate_right(1),
        None => {}
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
        listed.retain(|name| command.find_subcommand(name).is_some() || !["explore", "live"].contains(name));
        let mut known: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }
}
