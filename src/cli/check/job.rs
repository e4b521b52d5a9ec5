//! Runs a command in a dry run, for a check of its snapshots and of the verdict.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use itertools::Itertools as _;

use super::args::Check;
use crate::cli::dry_run::{AnalyzedRun, DryRunOptions, Intervention};
use crate::cli::exit::print_stderr;
use crate::cli::guess::shell_line;
use crate::cli::run::{CommandOutput, Recorded, create_numbered, describe_no_snapshot, record};
use crate::compare::gate::{AllowMissing, CheckedJob};

/// A dry run that has ended.
pub(super) struct FinishedJob {
    command: Vec<OsString>,
    gpu: String,
    run: AnalyzedRun,
    recorded: Recorded,
    /// Where the snapshots are.
    directory: PathBuf,
    /// `directory` is not one that the user named.
    is_temporary: bool,
}

impl FinishedJob {
    /// Runs the command of `args`, with its standard output on standard error.
    pub(super) fn run(args: &Check) -> anyhow::Result<Self> {
        let command = args.checked_command()?.to_vec();
        let mut options = DryRunOptions::on_machine(args.machine.clone())?;
        options.is_alone = true;
        options.machine.check_memory()?;
        let directory = if let Some(chosen) = &args.dir { chosen.clone() } else { create_numbered("oomscope-check")? };
        let run_directory = options.prepare(Some(&directory), Intervention::default())?;
        let recorded = record(&command, run_directory, CommandOutput::OnStderr)?;
        let run = AnalyzedRun::read(&recorded)?;
        let is_temporary = args.dir.is_none();
        Ok(Self { command, gpu: options.machine.name(), run, recorded, directory, is_temporary })
    }

    /// The last snapshot of each process.
    pub(super) fn snapshots(&self) -> Vec<PathBuf> {
        self.run.job.latest_snapshots().iter().map(|snapshot| PathBuf::from(&snapshot.path)).collect()
    }

    /// The name of each process in a baseline, by the path of its snapshot. It has the rank, or else a number, since
    /// process ids differ from run to run; a single process needs no name.
    pub(super) fn process_names(&self) -> BTreeMap<String, String> {
        let latest = self.run.job.latest_snapshots();
        let ranks = latest.iter().map(|snapshot| snapshot.recorder.as_ref()?.rank.as_ref());
        let has_ranks = ranks.clone().flatten().unique().count() == latest.len();
        let names = ranks.enumerate().map(|(index, rank)| match rank {
            _ if latest.len() == 1 => String::new(),
            Some(rank) if has_ranks => format!("rank {rank}"),
            _ => format!("process {index}"),
        });
        latest.iter().map(|snapshot| snapshot.path.clone()).zip(names).collect()
    }

    /// Judges the verdict.
    pub(super) fn check(&self, allow_missing: &AllowMissing, source: &dyn Fn(&str) -> Option<String>) -> CheckedJob {
        let names = (self.gpu.clone(), shell_line(&self.command));
        CheckedJob::new(names, self.run.job.dry_run.as_ref(), || self.describe_no_verdict(), allow_missing, source)
    }

    fn describe_no_verdict(&self) -> String {
        let message = describe_no_snapshot(&self.command, &self.recorded);
        message.strip_prefix("no verdict: ").unwrap_or(&message).to_owned()
    }

    /// Removes the snapshots if the check has `passed`, unless the user named their directory.
    pub(super) fn finish(&self, passed: bool) -> anyhow::Result<()> {
        let shown = self.directory.display();
        if !passed && self.directory.exists() {
            print_stderr(&format!("for details: oomscope {shown}"));
        } else if self.is_temporary && self.directory.exists() {
            fs::remove_dir_all(&self.directory).with_context(|| format!("{shown}: cannot be removed"))?;
        }
        Ok(())
    }
}
