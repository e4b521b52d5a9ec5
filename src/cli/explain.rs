//! `oomscope explain`

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use super::args::OutputArgs;
use super::exit::{Exit, print_stderr};
use super::inputs;
use crate::analysis::rank_in_path;
use crate::base::input::{Source, decompress_reader, with_size_limit};
use crate::explain::explain;
use crate::explain::message::{Log, read};
use crate::output::report;
use crate::snapshot::pickle::looks_like_pickle;

/// Number of messages that `--full` explains; others get one row each.
const EXPLAINED: usize = 3;

/// Explain out-of-memory messages in a log, and what to do
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/explain.txt"))]
pub(super) struct Explain {
    /// Log file (plain, .gz or .zst), directory with the logs of a job, - for standard input, or a quoted message
    /// [default: -]
    #[arg(value_name = "FILE", default_value = "-", hide_default_value = true)]
    file: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(args: &Explain) -> anyhow::Result<Exit> {
    let path = args.file.display().to_string();
    inputs::refuse_output_over_input(&args.file, args.output.output.as_deref())?;
    let output = args.output.open()?;
    let log = if args.file.is_dir() { read_directory(&args.file) } else { read_log(&args.file) };
    let log = log.with_context(|| path.clone())?;
    let Some(report) = explain(&log, &path) else {
        let name = if path == "-" { "standard input" } else { &path };
        if is_pickle(&args.file) {
            bail!("{name}: is a pickle, not a log; `oomscope analyze` reads snapshots");
        }
        if let Some((line, error)) = log.other_error {
            let why = error.why.first().map_or("", String::as_str);
            bail!("{name}: no out-of-memory message found; line {line} reports another failure: {why}");
        }
        if let Some((line, text)) = log.unknown {
            bail!(
                "{name}: line {line} has words about a lack of memory, in no form of a failure that oomscope knows: {text}"
            );
        }
        bail!(
            "{name}: no out-of-memory message found; oomscope looks for messages such as \
             'CUDA out of memory. Tried to allocate 2.00 GiB'"
        );
    };
    output.write_answer(args.output.format(), &report, |report| report::explain(report, EXPLAINED))
}

/// Reads all logs in `directory` as those of one job.
fn read_directory(directory: &Path) -> anyhow::Result<Log> {
    let paths = inputs::find_files(directory, is_named_like_a_log)?;
    if paths.is_empty() {
        bail!("no log in this directory: oomscope reads names that end in {}", LOG_ENDS.join(", "));
    }
    let mut job = Log::default();
    for path in paths {
        let name = inputs::with_slashes(path.strip_prefix(directory).unwrap_or(&path));
        match read_log(&path) {
            Ok(log) => job.add_file(&name, rank_of_log(&name), log),
            Err(error) => print_stderr(&format!("{name}: skipped: {error:#}")),
        }
    }
    Ok(job)
}

/// Whether `arg` is the text of a message and no path.
pub(super) fn is_message(arg: &OsStr) -> bool {
    let is_text = arg.to_str().is_some_and(|arg| arg.trim().contains([' ', '\n']));
    is_text && !Path::new(arg).exists() && read(arg.as_encoded_bytes()).is_ok_and(|log| explain(&log, "-").is_some())
}

/// Whether `directory` has logs, and no snapshot.
pub(super) fn has_only_logs(directory: &Path) -> bool {
    directory.is_dir()
        && inputs::expand_paths(&[directory.to_owned()]).is_err()
        && inputs::find_files(directory, is_named_like_a_log).is_ok_and(|logs| !logs.is_empty())
}

/// Names of logs end so, before `.gz` or `.zst`.
const LOG_ENDS: [&str; 6] = [".log", ".out", ".err", ".txt", "stdout", "stderr"];

fn is_named_like_a_log(path: &Path) -> bool {
    let name = path.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
    LOG_ENDS.iter().any(|end| name.ends_with(end))
}

/// The rank in the name of a log, or its directory below torchrun's `attempt_0`.
fn rank_of_log(name: &str) -> Option<u32> {
    let (directories, _) = name.rsplit_once('/').unwrap_or(("", name));
    let of_torchrun = directories.rsplit_once('/').filter(|(above, _)| above.contains("attempt_"));
    rank_in_path(name).or_else(|| of_torchrun?.1.parse().ok())
}

/// True if the user probably meant `oomscope analyze`.
fn is_pickle(path: &Path) -> bool {
    !inputs::is_stdin(path) && Source::open(path).is_ok_and(|bytes| looks_like_pickle(&bytes))
}

fn read_log(path: &Path) -> anyhow::Result<Log> {
    if is_message(path.as_os_str()) {
        return Ok(read(path.as_os_str().as_encoded_bytes())?);
    }
    if path.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            print_stderr("reading standard input: paste the message, then press Ctrl-D");
        }
        return Ok(read(decompress_reader(with_size_limit(io::stdin().lock()))?)?);
    }
    let file = File::open(path).context("cannot be read")?;
    if !file.metadata()?.is_file() {
        return Ok(read(decompress_reader(with_size_limit(file))?)?);
    }
    Ok(read(decompress_reader(BufReader::new(file))?)?)
}
