//! `oomscope dump`

use std::io::Write as _;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;

use super::exit::{Done, complain};
use super::run::{Recorded, parse_seconds, snapshots_in};
use crate::base::units::counted;

/// Between two looks at what was written.
const POLL: Duration = Duration::from_millis(200);

/// Have every process that `oomscope run` records write a snapshot now
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oomscope dump oomscope-run-1                     while the command runs; the paths written are printed
  oomscope analyze $(oomscope dump oomscope-run-1)

Exit codes: 0 every process wrote one; 2 one did not, or nothing is recorded there.")]
pub(super) struct Dump {
    /// The directory that `oomscope run` writes to
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// How long to wait for the snapshots
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_seconds)]
    wait: Duration,
}

/// Asks, waits and prints what was written.
pub(super) fn run(args: &Dump) -> anyhow::Result<Done> {
    let directory = &args.directory;
    let mut waiting = Recorded::all(directory);
    waiting.retain(Recorded::may_live);
    if waiting.is_empty() {
        bail!("{}: no process is recorded there now", directory.display());
    }
    let (all, before) = (waiting.len(), snapshots_in(directory));
    Recorded::ask(directory)
        .with_context(|| format!("{}: cannot be written to", directory.display()))?;
    let until = Instant::now() + args.wait;
    while !waiting.is_empty() && Instant::now() < until {
        sleep(POLL);
        let now = Recorded::all(directory);
        waiting.retain(|process| now.iter().any(|it| it.is_still(process)) && process.may_live());
    }
    let mut out = std::io::stdout().lock();
    for path in snapshots_in(directory).iter().filter(|path| !before.contains(path)) {
        writeln!(out, "{}", path.display())?;
    }
    if waiting.is_empty() {
        return Ok(Done::Well);
    }
    complain(&format!(
        "no snapshot from {} of {} after {} s",
        waiting.len(),
        counted(all as u64, "process"),
        args.wait.as_secs()
    ));
    Ok(Done::Partly)
}
