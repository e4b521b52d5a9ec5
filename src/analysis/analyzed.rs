//! The report on all snapshots.

use serde::Serialize;

use super::dry_run::{DryRunCertainty, DryRunReport};
use super::dry_verdict::{DryRunReason, DryRunVerdict, ProgramEnd, decide_job};
use super::latest::latest_dumps;
use super::ranks::{Ranks, compare_ranks};
use super::shared_device::decide_shared;
use super::snapshot::SnapshotReport;

/// The JSON of `oomscope analyze`.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct AnalyzeReport {
    /// One report per snapshot that could be read, in the order given.
    pub snapshots: Vec<SnapshotReport>,
    /// Number of rows in tables of ranks and devices on a page.
    #[serde(skip)]
    pub top: usize,
    /// All devices side by side; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Ranks>,
    /// The verdict on all processes of a dry run; absent in a run with a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<JobVerdict>,
    /// Files that could not be read; absent if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

impl AnalyzeReport {
    /// Compares the devices of `snapshots` and summarizes them; `top` is the number of rows in tables.
    pub fn new(snapshots: Vec<SnapshotReport>, unreadable: Vec<Unreadable>, top: usize) -> Self {
        let ranks = compare_ranks(&snapshots);
        let dry_run = JobVerdict::new(&snapshots, None, 0);
        Self { snapshots, top, ranks, dry_run, unreadable }
    }

    /// The last snapshot of each process.
    pub fn latest_snapshots(&self) -> Vec<&SnapshotReport> {
        latest_dumps(&self.snapshots)
    }

    /// Decides again, with the end of the command that the snapshots come from, and the number of its processes that
    /// left no recording of their end.
    pub fn set_end(&mut self, end: ProgramEnd, lost: usize) {
        self.dry_run = JobVerdict::new(&self.snapshots, Some(end), lost);
    }
}

/// The verdict on a dry run.
#[derive(Debug, Clone, Serialize)]
pub struct JobVerdict {
    /// Whether the job would fit.
    pub verdict: DryRunVerdict,
    /// Why, in a sentence.
    pub reason: DryRunReason,
    /// How closely the requests match those on a GPU: the least certain of the processes.
    pub certainty: DryRunCertainty,
}

impl JobVerdict {
    fn new(snapshots: &[SnapshotReport], end: Option<ProgramEnd>, lost: usize) -> Option<Self> {
        let latest = latest_dumps(snapshots);
        let processes: Vec<&DryRunReport> = latest.iter().filter_map(|snapshot| snapshot.dry_run.as_ref()).collect();
        let certainty = processes.iter().map(|process| process.certainty).max()?;
        let verdicts = processes.iter().map(|process| (process.verdict, process.reason.clone()));
        let was_ready = processes.iter().filter_map(|process| process.server()).any(|server| server.ready);
        // A server that was ready has taken its memory, however its processes end.
        let lost = (lost > 0 && !was_ready).then_some((DryRunVerdict::NoVerdict, DryRunReason::Lost(lost)));
        let verdicts = verdicts.chain(decide_shared(&latest)).chain(lost);
        let (verdict, reason) = decide_job(verdicts, end.filter(|_| !was_ready))?;
        Some(Self { verdict, reason, certainty })
    }
}

/// A file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Path as given on the command line.
    pub path: String,
    /// The error message.
    pub message: String,
}
