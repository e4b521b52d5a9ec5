//! A dry run that has ended: its snapshots, analyzed together.

use std::path::PathBuf;

use crate::allocator::trace_action::Action;
use crate::analysis::failure::OomReport;
use crate::analysis::{AnalyzeReport, DryRunVerdict, Options, analyze};
use crate::cli::inputs;
use crate::cli::run::Recorded;
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
