//! `oomscope run`

mod child;
mod directory;
mod page;

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

pub(super) use self::child::Ended;
pub(super) use self::directory::{
    At, Directory, Frames, Options, Purpose, Recorded, Seen, next_free, snapshots_in,
};
pub(super) use self::page::show;
use super::exit::Done;

/// Run a command and record its CUDA memory history; a failed request writes a snapshot
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope run -- python train.py
  oomscope run -o ooms -- torchrun --nproc-per-node 8 train.py    a snapshot of each rank
  oomscope run --at exit -- python train.py                       one at the end, too, if nothing failed

Every Python process below the command that uses CUDA is recorded, from its first use of CUDA on. Nothing has to
be installed there: PYTHONPATH names a directory with one file of Python, which waits until the program itself
imports torch. Python's own options -I and -E ignore PYTHONPATH.

Exit code: the command's; 128 and the signal's number where a signal ended it, as a shell says it.
2 wrong usage; 126 and 127 where the command cannot be run or found.")]
pub(super) struct Run {
    /// Write the snapshots to DIR; default: oomscope-run-1, or the next number that is free
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Trace entries kept for each device; the oldest are lost beyond that
    #[arg(long, value_name = "N", default_value = "1M", value_parser = parse_count)]
    max_entries: u64,

    /// Record stacks of Python alone, or of C++ too
    #[arg(long, default_value = "python")]
    stacks: Frames,

    /// Write snapshots when a request fails, or also at the end of each process in which none failed
    #[arg(long, value_name = "WHEN", default_value = "oom")]
    at: At,

    /// Failures of one process that are kept: the first ones, then at most one in 30 seconds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    keep: u64,

    /// How long a process whose request failed waits for the other processes to begin with theirs; who has begun is
    /// waited for ten times as long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_seconds)]
    wait: Duration,

    /// Write the page on these snapshots: the run itself asks for it, in a process of its own
    #[arg(long, hide = true, value_name = "FILE", num_args = 1..)]
    page_on: Vec<PathBuf>,

    /// The command and its arguments
    #[arg(
        required_unless_present = "page_on",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// `1000000`, `200K` or `1M`.
pub(super) fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (text.get(..text.len() - 1), 1_000),
        Some(b'm' | b'M') => (text.get(..text.len() - 1), 1_000_000),
        _ => (Some(text), 1),
    };
    let count = digits.and_then(|digits| digits.parse::<u64>().ok());
    match count.and_then(|count| count.checked_mul(factor)) {
        Some(0) | None => Err("give a number of entries, such as 200K or 1M".to_owned()),
        Some(count) => Ok(count),
    }
}

/// `10`, `10s`, `0.5s` or `2m`.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * factor);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give a time, such as 10s or 2m".to_owned())
}

/// Runs the command to its end, then says what was recorded.
pub(super) fn run(args: &Run) -> anyhow::Result<Done> {
    if !args.page_on.is_empty() {
        return page::write(&args.page_on).map(|()| Done::Well);
    }
    let options = Options {
        max_entries: args.max_entries,
        stacks: args.stacks,
        at: args.at,
        keep: args.keep,
        wait: args.wait.as_secs_f64(),
    };
    let purpose = Purpose { name: "oomscope-run", files: &[], environment: &[] };
    let directory = Directory::prepare(args.output.as_deref(), &options, purpose)?;
    let (ended, seen, left) = recorded(&args.command, directory)?;
    show(&args.command, ended, &seen, &left);
    Ok(Done::As(ended.code()))
}

/// Runs `command` to its end with the recorder of `directory`: how it ended, how far its processes came, and the
/// snapshots that they left.
pub(super) fn recorded(
    command: &[OsString],
    directory: Directory,
) -> anyhow::Result<(Ended, Seen, Vec<PathBuf>)> {
    let ended = child::run(command, &directory, None);
    let (seen, left) = directory.finish();
    Ok((ended?, seen, left))
}

/// The same, with what the command says in the file `log`.
pub(super) fn recorded_quietly(
    command: &[OsString],
    directory: Directory,
    log: &Path,
) -> anyhow::Result<(Ended, Vec<PathBuf>)> {
    let file =
        File::create(log).with_context(|| format!("{}: cannot be written", log.display()))?;
    let ended = child::run(command, &directory, Some(&file));
    let (_, left) = directory.finish();
    Ok((ended?, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_are_read_as_typed() {
        assert_eq!(parse_count("1M"), Ok(1_000_000));
        assert_eq!(parse_count("200k"), Ok(200_000));
        assert_eq!(parse_count("7"), Ok(7));
        for wrong in ["", "0", "M", "1G", "-1", "1.5M", "99999999999999999999"] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_seconds("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "-1s", "inf", "1h"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
