//! `oomscope dump`

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;

use super::exit::{Exit, print_stderr};
use super::run::{RecordedProcess, snapshots_in};
use crate::base::units::{counted, escape_name};

/// Interval between checks for finished snapshots.
const POLL: Duration = Duration::from_millis(200);
/// How long to wait for the snapshots.
const PATIENCE: Duration = Duration::from_secs(60);

/// Write a snapshot of every process that `oomscope run` records
#[derive(Debug, Args)]
#[command(after_help = include_str!("help/dump.txt"))]
pub(super) struct Dump {
    /// Output directory of `oomscope run`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run(args: &Dump) -> anyhow::Result<Exit> {
    let directory = &args.directory;
    let mut waiting = RecordedProcess::find_all(directory);
    waiting.retain(RecordedProcess::may_be_running);
    if waiting.is_empty() {
        let hint = if directory.is_file() { "; `oomscope analyze` reads snapshots" } else { "" };
        bail!("{}: no running process is recorded there{hint}", directory.display());
    }
    let (all, before) = (waiting.len(), snapshots_in(directory));
    RecordedProcess::request_snapshots(directory)
        .with_context(|| format!("{}: cannot be written", directory.display()))?;
    let deadline = Instant::now() + PATIENCE;
    while !waiting.is_empty() && Instant::now() < deadline {
        sleep(POLL);
        let now = RecordedProcess::find_all(directory);
        waiting.retain(|process| now.iter().any(|current| current.is_waiting(process)) && process.may_be_running());
    }
    let mut out = std::io::stdout().lock();
    for path in snapshots_in(directory).iter().filter(|path| !before.contains(path)) {
        let path = path.display().to_string();
        // A script gets the name itself.
        writeln!(out, "{}", if out.is_terminal() { escape_name(&path) } else { path })?;
    }
    if waiting.is_empty() {
        return Ok(Exit::Success);
    }
    let all = counted(all as u64, "process");
    print_stderr(&format!("no snapshot from {} of {all} after {} s", waiting.len(), PATIENCE.as_secs()));
    Ok(Exit::Unreadable)
}
