//! A dry run that has ended: its snapshots, analyzed together; and one at one size.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::options::{DryRunOptions, Intervention};
use crate::allocator::trace_action::Action;
use crate::analysis::failure::OomReport;
use crate::analysis::{
    AnalyzeReport, DeviceReport, DryRunReason, DryRunVerdict, Options, RangeReport, SnapshotReport, analyze,
};
use crate::cli::inputs;
use crate::cli::run::{CommandOutput, Recorded, record};
use crate::snapshot::Serving;

pub(in crate::cli) struct AnalyzedRun {
    pub(in crate::cli) job: AnalyzeReport,
    /// Number of requests that were served, in all processes.
    pub(super) served: usize,
}

impl AnalyzedRun {
    /// Reads the snapshots of a run. The verdict takes into account how its command ended.
    pub(in crate::cli) fn read(recorded: &Recorded) -> anyhow::Result<Self> {
        let mut run = Self::without_end(&recorded.snapshots)?;
        run.job.set_end(recorded.end.program_end(), recorded.status.lost());
        Ok(run)
    }

    /// Reads `snapshots` alone.
    pub(super) fn without_end(snapshots: &[PathBuf]) -> anyhow::Result<Self> {
        let (mut reports, mut served) = (Vec::new(), 0);
        for path in snapshots {
            let snapshot = inputs::read_one(path)?;
            reports.push(analyze(&snapshot, &path.display().to_string(), 0, Options::default()));
            served += snapshot.devices().map(|device| device.indexes_with_action(Action::Alloc).count()).sum::<usize>();
        }
        Ok(Self { job: AnalyzeReport::new(reports, Vec::new(), 0), served })
    }

    /// Whether a request failed and the program, if this was a dry run, did not get past it.
    pub(super) fn has_failed(&self) -> bool {
        match &self.job.dry_run {
            Some(job) => job.verdict == DryRunVerdict::WouldNotFit,
            None => self.last_failure().is_some(),
        }
    }

    /// The serving engine that the program started.
    pub(in crate::cli) fn serving(&self) -> Option<&Serving> {
        let runs = self.job.snapshots.iter().filter_map(|snapshot| snapshot.dry_run.as_ref());
        runs.filter_map(|run| run.serving.as_ref()).next_back()
    }

    /// The last failed request of the first device that has one.
    pub(super) fn last_failure(&self) -> Option<&OomReport> {
        self.job.devices().find_map(|device| device.ooms.last())
    }
}

/// The last line of an output is searched in this many bytes.
const MAX_LINE_BYTES: u64 = 4096;

/// A dry run that ended well or with a failed request.
pub(in crate::cli) struct SizeRun {
    pub(in crate::cli) snapshot: PathBuf,
    /// The analysis of that snapshot. If there are several ranks, it is the one that failed or reserved most.
    pub(in crate::cli) report: SnapshotReport,
    /// A request failed in a process of the run, and it did not get past it.
    pub(in crate::cli) has_failed: bool,
    /// False if a value of the GPU, or memory that only a GPU knows, may decide otherwise.
    pub(in crate::cli) is_certain: bool,
}

impl SizeRun {
    /// Runs `command` in `directory`, with its output in a file beside it. `label` names the run in an error, as in
    /// `BATCH = 4`.
    pub(in crate::cli) fn record(
        options: &DryRunOptions,
        command: &[OsString],
        directory: &Path,
        intervention: Intervention,
        label: &str,
    ) -> anyhow::Result<Self> {
        let log = directory.with_extension("txt");
        let directory = options.prepare(Some(directory), intervention)?;
        let Recorded { end, status, snapshots } = record(command, directory, CommandOutput::Log(&log))?;
        let run = AnalyzedRun::without_end(&snapshots)?;
        // A program that tries again with less did not complete at this size.
        let is_retried = run.job.dry_run.as_ref().is_some_and(|job| matches!(job.reason, DryRunReason::Retried(_)));
        let has_failed = run.has_failed() || is_retried;
        let may_fit = run.job.dry_run.as_ref().is_some_and(|job| job.verdict == DryRunVerdict::MayFit);
        let is_certain = status.lost() == 0 && !may_fit;
        let processes = snapshots.into_iter().zip(run.job.snapshots);
        let processes = processes.map(|(snapshot, report)| Self { snapshot, report, has_failed, is_certain });
        // `rev`, so that the first of equals is taken.
        let worst = processes.rev().max_by_key(|ran| (has_failed && ran.last_failure().is_some(), ran.reserved()));
        let has_succeeded = end.code() == 0;
        worst.filter(|ran| has_succeeded || ran.has_failed).ok_or_else(|| {
            let why = if has_succeeded {
                "no process used CUDA".to_owned()
            } else {
                format!("the command exited with code {}, without an out-of-memory error", end.code())
            };
            let error = last_line(&log).filter(|_| !has_succeeded).map(|line| format!(": {line}")).unwrap_or_default();
            anyhow!("{label}: {why}{error}; see its output in {}", log.display())
        })
    }

    /// Peak reserved bytes of the device that reserved most; 0 if no device was used.
    pub(in crate::cli) fn reserved(&self) -> u64 {
        self.report.devices.iter().map(DeviceReport::peak_on_device).fold(0, u64::max)
    }

    pub(super) fn last_failure(&self) -> Option<&OomReport> {
        self.report.devices.iter().find_map(|device| device.ooms.last())
    }

    /// True if it fits with any addresses, and with the largest workspaces of libraries.
    pub(super) fn fits_in_worst_case(&self) -> bool {
        let ranges = self.report.dry_run.iter().flat_map(|dry| &dry.ranges);
        !self.has_failed && ranges.into_iter().all(RangeReport::fits)
    }
}

/// The last line that the command printed: of a Python program, its error.
pub(super) fn last_line(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(MAX_LINE_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_LINE_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let printed = text.lines().rev().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("oomscope: "));
    printed.map(str::to_owned)
}
