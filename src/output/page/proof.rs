//! Which part of the page proves the verdict, and so comes first.

use crate::allocator::verdict::Verdict;
use crate::analysis::DeviceReport;
use crate::study::iterations::GrowthKind;

/// `kept`: the lines that keep memory after every step; `map`: the map of the device's memory, where the free memory is that
/// the request could not use; `time`: the timeline, its last steps or the peak.
pub(super) fn find_proof(report: &DeviceReport) -> &'static str {
    let leaks = &report.leaks;
    let is_kept = leaks.kind == Some(GrowthKind::Kept) && !leaks.suspects.is_empty();
    match report.ooms.last() {
        Some(oom) if is_kept && report.explaining_growth(oom).is_some() => "kept",
        Some(oom) if is_in_map(oom.verdict) => "map",
        None if is_kept && report.is_growth_notable() => "kept",
        _ => "time",
    }
}

/// Whether a failure is for memory that is free, but not for the request.
pub(crate) fn is_in_map(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Fragmentation | Verdict::OtherStream | Verdict::PrivatePool | Verdict::PendingFree)
}
