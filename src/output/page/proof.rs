//! Which part of the page proves the verdict, and so comes first.

use serde::Serialize;

use crate::allocator::verdict::Verdict;
use crate::analysis::DeviceReport;
use crate::study::iterations::GrowthKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Proof {
    /// The lines that keep memory after every step.
    Kept,
    /// The map of the device's memory: where the free memory is that the request could not use.
    Map,
    /// The timeline: its last steps, or the peak.
    Time,
}

impl Proof {
    pub(super) fn from_report(report: &DeviceReport) -> Self {
        let leaks = &report.leaks;
        let is_kept = leaks.kind == Some(GrowthKind::Kept) && !leaks.suspects.is_empty();
        match report.ooms.last() {
            Some(oom) if is_kept && report.explaining_growth(oom).is_some() => Self::Kept,
            Some(oom) if is_in_map(oom.verdict) => Self::Map,
            None if is_kept && report.is_growth_notable() => Self::Kept,
            _ => Self::Time,
        }
    }
}

/// Whether a failure is for memory that is free, but not for the request.
pub(crate) fn is_in_map(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Fragmentation | Verdict::OtherStream | Verdict::PrivatePool | Verdict::PendingFree)
}
