//! The gate's answer over all snapshots: `oomscope/check/1`.

use std::cmp::Ordering;

use serde::Serialize;

use super::baseline::Peaks;
use super::finding::{Finding, Noted, Severity};
use crate::analysis::Unreadable;
use crate::base::summary::Summary;
use crate::base::units::counted;

/// The JSON of `oomscope check`.
#[derive(Debug, Serialize)]
pub struct CheckReport {
    /// `oomscope/check/1`
    pub schema: &'static str,
    /// What it comes to.
    pub summary: Summary,
    /// Whether every snapshot was read and every limit holds, save those that only warn.
    pub passed: bool,
    /// The configuration whose limits apply.
    pub config: Option<String>,
    /// Every limit against every device, in the order of the snapshots.
    pub findings: Vec<Finding>,
    /// Of several devices the one that keeps to the fewest limits.
    pub worst: Option<Worst>,
    /// Peaks replayed from an empty pool, where a limit on growth needed them: this report is a
    /// baseline too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replayed: Vec<Peaks>,
    /// What is odd about the files.
    pub warnings: Vec<Noted>,
    /// Files that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// How many snapshots there had to be, and how many were checked; where it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RankCount>,
}

/// Snapshots of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RankCount {
    /// That there had to be.
    pub expected: usize,
    /// That were checked.
    pub checked: usize,
}

/// The device that keeps to the fewest limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Worst {
    /// The snapshot, as given.
    pub path: String,
    /// Device number.
    pub device: u64,
    /// Limits that do not hold and fail the gate.
    pub failed: usize,
    /// Limits that do not hold and only warn.
    pub warned: usize,
}

impl CheckReport {
    /// The findings that have not passed: those that fail the gate first, of those the worst.
    pub fn lost(&self) -> Vec<&Finding> {
        let mut lost: Vec<&Finding> = self.findings.iter().filter(|f| !f.passed).collect();
        lost.sort_by(|a, b| {
            let worse = b.excess().partial_cmp(&a.excess()).unwrap_or(Ordering::Equal);
            a.severity.cmp(&b.severity).then(worse)
        });
        lost
    }

    /// What could not be checked, each with why: files that cannot be read, ranks that are not there.
    pub fn not_checked(&self) -> Vec<(String, String)> {
        let unreadable = self.unreadable.iter().map(|it| (it.path.clone(), it.message.clone()));
        let wrong = self.ranks.filter(|ranks| ranks.expected != ranks.checked).map(|ranks| {
            let checked = counted(ranks.checked as u64, "snapshot");
            let verb = if ranks.checked == 1 { "was" } else { "were" };
            let expected = ranks.expected;
            ("--ranks".to_owned(), format!("{checked} {verb} checked; there must be {expected}"))
        });
        unreadable.chain(wrong).collect()
    }

    /// Limits of this severity that do not hold.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|f| !f.passed && f.severity == severity).count()
    }

    pub(super) fn worst_of_several(&self) -> Option<Worst> {
        let of_device = |of: &[Finding]| {
            let first = of.first()?;
            let lost =
                |severity| of.iter().filter(move |f| !f.passed && f.severity == severity).count();
            // How far above its limit the farthest is.
            let excess = of.iter().filter(|f| !f.passed).map(|f| f.excess().0).fold(0.0, f64::max);
            let (path, device) = (first.path.clone(), first.device);
            let (failed, warned) = (lost(Severity::Fail), lost(Severity::Warn));
            Some((excess, Worst { path, device, failed, warned }))
        };
        let same = |a: &Finding, b: &Finding| (&a.path, a.device) == (&b.path, b.device);
        let devices: Vec<_> = self.findings.chunk_by(same).filter_map(of_device).collect();
        if devices.len() < 2 {
            return None;
        }
        let key = |(excess, worst): &(f64, Worst)| (worst.failed, worst.warned, *excess);
        let mut worst: Option<&(f64, Worst)> = None;
        for one in &devices {
            // The first of equals.
            if worst.is_none_or(|worst| key(one) > key(worst)) {
                worst = Some(one);
            }
        }
        worst.map(|(_, worst)| worst.clone()).filter(|worst| worst.failed + worst.warned > 0)
    }
}
