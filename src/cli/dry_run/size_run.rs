//! A dry run at one size of the program.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::analyzed_run::AnalyzedRun;
use super::options::{DryRunOptions, Intervention};
use crate::analysis::failure::OomReport;
use crate::analysis::{DeviceReport, DryRunReason, DryRunVerdict, RangeReport, SnapshotReport};
use crate::cli::run::{CommandOutput, Recorded, record};

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
        let code = end.code();
        let worst = worst.filter(|_| code == 0 || has_failed);
        worst.ok_or_else(|| anyhow!("{label}: {}; see its output in {}", describe_end(code, &log), log.display()))
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

/// Why a command that exited with `code` shows no memory.
fn describe_end(code: u8, log: &Path) -> String {
    if code == 0 {
        return "no process used CUDA".to_owned();
    }
    let error = last_line(log).map(|line| format!(": {line}")).unwrap_or_default();
    format!("the command exited with code {code}, without an out-of-memory error{error}")
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
