//! Settings and changes to the program in one list, the best first.

use std::cmp::Reverse;

use itertools::Itertools as _;
use serde::Serialize;

use super::outcome::{JobOutcome, NOTICEABLE_PARTS};
use super::sureness::Sureness;
use crate::allocator::conf::ConfChange;
use crate::base::warning::words;
use crate::stacks::frames::CodeLocation;
use crate::study::DeviceStudy;

words! {
    /// Whether something that was tried helps.
    pub enum TriedMark {
        /// The job goes on, and that is no guess. If no request failed: at least 2 % less memory is reserved
        Helps = "helps",
        /// The same as a guess or an estimate, or what follows the failed request is not known
        MayHelp = "may-help",
        /// Requests fail, at once or later; if no request failed, nothing noticeable is gained
        NoHelp = "no-help",
    }
}

words! {
    /// A kind of thing to try.
    pub enum TriedKind {
        /// Settings of the allocator
        Settings = "settings",
        /// A change to the program
        Program = "program",
    }
}

/// Settings or a change to the program, replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TriedRow {
    /// Whether it helps.
    pub mark: TriedMark,
    /// Settings or program.
    pub kind: TriedKind,
    /// Settings in the syntax of `oomscope whatif --set`, or the change in words.
    pub what: String,
    /// The outcome of the job then.
    pub then: JobOutcome,
    /// Peak of reserved bytes: up to the end of one more iteration, if a failure ended the recording and the job goes on.
    pub peak_reserved_bytes: u64,
    /// The same of the unchanged program from the same start, to compare with; absent if a request failed as recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchanged_peak_reserved_bytes: Option<u64>,
    /// How sure the replay is.
    pub sure: Sureness,
    /// The source line to change; absent for settings, and if no line is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<Box<CodeLocation>>,
}

impl TriedRow {
    /// Peak of reserved bytes on the device; `None` if the job fails there. A change is replayed without a limit, so that
    /// `peak_reserved_bytes` is then what it would need.
    pub fn reached_reserved_bytes(&self) -> Option<u64> {
        let is_reached = self.kind == TriedKind::Settings || self.then.goes_on();
        Some(self.peak_reserved_bytes).filter(|_| is_reached)
    }
}

/// The program of a device as recorded, with which everything tried is compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TriedOn {
    /// Whether the model reproduces the recording.
    pub(crate) is_exact: bool,
    /// Memory grows noticeably from iteration to iteration.
    pub(crate) grows: bool,
}

impl TriedOn {
    pub(crate) fn from_device(device: DeviceStudy<'_, '_>) -> Self {
        Self { is_exact: device.inferred().verification.is_exact(), grows: grows_noticeably(device) }
    }

    /// `unchanged` is the peak of reserved bytes as recorded, if no request failed.
    pub(crate) fn settings(
        self,
        what: String,
        (then, peak_reserved_bytes): (&JobOutcome, u64),
        unchanged: Option<u64>,
    ) -> TriedRow {
        let sure = if self.is_exact { Sureness::Checked } else { Sureness::Estimate };
        let gains = !self.grows && saves(unchanged, peak_reserved_bytes);
        TriedRow {
            mark: mark(then, sure, gains),
            kind: TriedKind::Settings,
            what,
            then: then.clone(),
            peak_reserved_bytes,
            unchanged_peak_reserved_bytes: unchanged,
            sure,
            location: None,
        }
    }
}

/// Whether memory grows from iteration to iteration, by a part of the peak that counts.
pub(super) fn grows_noticeably(device: DeviceStudy<'_, '_>) -> bool {
    device.growth().is_some_and(|growth| growth.bytes() >= device.peak().reserved_bytes / NOTICEABLE_PARTS)
}

/// Whether `peak` is noticeably below `unchanged`, where that is to be compared.
pub(super) fn saves(unchanged: Option<u64>, peak: u64) -> bool {
    unchanged.is_none_or(|unchanged| peak <= unchanged - unchanged / NOTICEABLE_PARTS)
}

/// `gains`: the job gains from it if it goes on.
pub(super) fn mark(then: &JobOutcome, sure: Sureness, gains: bool) -> TriedMark {
    let is_sure = matches!(sure, Sureness::Checked | Sureness::Should);
    match then {
        JobOutcome::GoesOn { .. } if gains && is_sure => TriedMark::Helps,
        JobOutcome::GoesOn { .. } if gains => TriedMark::MayHelp,
        JobOutcome::NotKnown { .. } => TriedMark::MayHelp,
        JobOutcome::GoesOn { .. } | JobOutcome::FailsAgain { .. } | JobOutcome::RequestFails { .. } => {
            TriedMark::NoHelp
        }
    }
}

/// Sorts `rows`, the best first: what helps, then what may help; then by how far the job gets, then settings before
/// changes, then by [`settings_order`].
pub(crate) fn sort_tried(mut rows: Vec<TriedRow>) -> Vec<TriedRow> {
    let group = |row: &TriedRow| (row.mark, Reverse(row.then.reach()), row.kind);
    let lowest = rows.iter().map(|row| (group(row), row.peak_reserved_bytes)).into_grouping_map().min();
    rows.sort_by_cached_key(|row| {
        let group = group(row);
        let lowest = lowest.get(&group).copied().unwrap_or(0); // every row has a group
        let settings = if row.kind == TriedKind::Settings { &row.what } else { "" };
        (group, settings_order(settings, row.peak_reserved_bytes, lowest), row.what.clone())
    });
    rows
}

/// The order of changes of settings with the same outcome, the best first, where `lowest` is the lowest peak among them. A limit on
/// splits comes last: it may slow the program down later. The simplest of those that need about the same memory is the
/// best.
pub(crate) fn settings_order(option: &str, peak_reserved: u64, lowest: u64) -> (bool, bool, usize, u64) {
    let is_noticeable = peak_reserved > lowest.saturating_add(lowest / NOTICEABLE_PARTS);
    let limits_splits = ConfChange::parse(option).set.contains("max_split_size_mb");
    (limits_splits, is_noticeable, option.matches(',').count(), peak_reserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_on_splits_comes_last_and_its_removal_does_not() {
        let sorted =
            ["max_split_size_mb:default", "expandable_segments:True,max_split_size_mb:default", "max_split_size_mb:64"];
        assert!(sorted.is_sorted_by_key(|option| settings_order(option, 5, 5)));
    }
}
