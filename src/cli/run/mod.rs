//! `oomscope run`

/// Texts of files, with the names that they get beside the recorder: `PREFIX name SUFFIX` from `PATH name SUFFIX`.
macro_rules! files {
    ($prefix:literal, $path:literal, $suffix:literal, $($name:literal)*) => {
        &[$((concat!($prefix, $name, $suffix), include_str!(concat!("../../../", $path, $name, $suffix)))),*]
    };
}

mod child;
mod directory;
mod exit_code;
mod page;
mod private_directory;
mod recorded_process;
mod restart;

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

pub(super) use self::child::{CommandOutput, Recorded, record};
pub(super) use self::directory::{RecorderOptions, RunDirectory, create_numbered, parse_count};
pub(super) use self::exit_code::complete as complete_snapshot;
pub(super) use self::page::{describe_no_snapshot, print_result};
pub(super) use self::recorded_process::{RecordedProcess, snapshots_in};
use super::exit::{Exit, print_stderr};
use crate::analysis::ProgramEnd;
pub(super) use files;

/// Run a command, and write a snapshot when a request fails
#[derive(Debug, Args)]
#[command(after_help = include_str!("../help/run.txt"))]
pub(super) struct Run {
    /// Write the snapshots to DIR [default: oomscope-run-1, or the next free number]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,

    #[command(flatten)]
    recorder: RecorderOptions,

    /// Write the page on these snapshots; the run starts this in a separate process
    #[arg(long, hide = true, value_name = "FILE", num_args = 1..)]
    page_on: Vec<PathBuf>,

    /// Exit code of the command that left the snapshots
    #[arg(long, hide = true, value_name = "CODE")]
    ended_with: Option<u8>,

    /// Signal that ended it
    #[arg(long, hide = true, value_name = "NUMBER")]
    ended_by: Option<i32>,

    /// Number of its processes whose memory is not known
    #[arg(long, hide = true, value_name = "N", default_value_t = 0)]
    lost: usize,

    /// Command and its arguments
    #[arg(required_unless_present = "page_on", trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Parses `10`, `10s`, `0.5s` or `2m`.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let (number, factor) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let time = number.parse::<f64>().ok().and_then(|number| Duration::try_from_secs_f64(number * factor).ok());
    time.ok_or_else(|| "give a time, such as 10s or 2m".to_owned())
}

pub(super) fn run(args: &Run) -> anyhow::Result<Exit> {
    if !args.page_on.is_empty() {
        let end = args.ended_with.map(ProgramEnd::Code).or(args.ended_by.map(ProgramEnd::Signal));
        return page::write(&args.page_on, end, args.lost);
    }
    let directory = match RunDirectory::prepare(args.output.as_deref(), &args.recorder, "oomscope-run", &[], true) {
        Err(error) if is_disk_full(&error) => {
            // The job is worth more than its recording.
            print_stderr(&format!("nothing is recorded: {error:#}"));
            return Ok(Exit::Code(child::run(&args.command, None, CommandOutput::Inherited)?.code()));
        }
        directory => directory?,
    };
    let recorded = record(&args.command, directory, CommandOutput::Inherited)?;
    print_result(&args.command, &recorded);
    Ok(Exit::Code(recorded.end.code()))
}

/// Whether there is no room on a disk, or for this user.
fn is_disk_full(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.into_iter().any(|kind| matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_disk_is_one() {
        for (code, is_full) in [(28, true), (2, false), (13, false)] {
            let error = anyhow::Error::from(io::Error::from_raw_os_error(code)).context("x");
            assert_eq!(is_disk_full(&error), is_full, "{code}");
        }
        assert!(!is_disk_full(&anyhow::anyhow!("No space left on device")));
    }

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
