//! The outcome of a job under the conditions of a replay: one fact, from one function, for every command; how sure it is; and
//! settings and changes to the program in one list by their outcomes, the best first.

use std::cmp::Reverse;

use itertools::Itertools as _;
use serde::Serialize;

use super::overrides::{Overrides, hypothesis_with};
use crate::allocator::conf::ConfChange;
use crate::base::warning::words;
use crate::replay::model::{Hypothesis, simulate};
use crate::snapshot::Action;
use crate::stacks::frames::CodeLocation;
use crate::study::iterations::Growth;
use crate::study::{DeviceStudy, MAX_CONTINUED_ENTRIES};

/// Reserved bytes that differ by less than 1/50 count as equal: of settings that need about the same, the simplest is the
/// best.
pub const NOTICEABLE_PARTS: u64 = 50;

words! {
    /// Why a forecast is unsure, or ends.
    pub enum WhyUnknown {
        /// No earlier iteration shows what follows
        NoLoop = "no-loop",
        /// The failed request belongs to the first iteration, and nothing shows the rest of it
        FirstIteration = "first-iteration",
        /// Fewer than two whole iterations before it match it
        SingleIteration = "single-iteration",
        /// The sizes of this iteration are new, and no law predicts the others
        NewSizes = "new-sizes",
        /// The iteration makes requests that no earlier one made
        NewRequests = "new-requests",
        /// Sizes vary from iteration to iteration without a rule
        IrregularSizes = "irregular-sizes",
        /// The trace is too long to replay it further
        LongTrace = "long-trace",
        /// A replay under the recorded settings serves the request too: the cause of its failure is not replayed
        ServedAsRecorded = "served-as-recorded",
    }
}

/// The outcome of a job under the conditions of a replay: other settings, another device or a changed program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum JobOutcome {
    /// Every request is served, but for failures that the recorded program survived: the recorded requests, and after a
    /// failure that ended the recording the rest of its iteration and one more.
    GoesOn {
        /// After a failure that ended the recording, the largest further request that would be served when most is
        /// allocated; otherwise the bytes of the device that are never reserved. Null if no capacity is known.
        headroom_bytes: Option<u64>,
        /// Sizes vary from iteration to iteration without a rule, so that a larger input than all so far may fail.
        sizes_vary: bool,
        /// Number of recorded requests that fail, as they did when the program survived them.
        survived_failures: u64,
    },
    /// The failure that ended the recording is only postponed.
    FailsAgain {
        /// Number of requests that are served after the failed one.
        after_requests: u64,
        /// Number of iterations between that of the failed request and the one that fails then.
        steps_later: u64,
        /// Whether the requests up to it were predicted by established laws and replayed. Otherwise both numbers are
        /// estimates.
        sure: bool,
        /// The source line whose request fails then; without a frame if it was not replayed.
        location: Box<CodeLocation>,
    },
    /// Recorded requests fail.
    RequestFails {
        /// Number of recorded requests that fail.
        requests: u64,
        /// Entry index of the first of them, those aside that the recorded program survived; null if memory from before
        /// the recording alone exceeds the device.
        event: Option<usize>,
        /// The source line of that request.
        location: Box<CodeLocation>,
    },
    /// The recording does not show it.
    NotKnown {
        /// Why.
        why: WhyUnknown,
    },
}

impl JobOutcome {
    /// The outcome of a replay of the program of `device`, in which the requests with the entry indexes and bytes of
    /// `failed` fail. `later` is the outcome of the forecast, if a failure ended the recording and the replay, which then
    /// includes the forecast, serves that request. `free_bytes` of the device are never reserved.
    pub(crate) fn from_replay(
        device: DeviceStudy<'_, '_>,
        failed: &[(usize, u64)],
        later: Option<Self>,
        free_bytes: Option<u64>,
    ) -> Self {
        if let Some((event, bytes)) = first_fatal(device, failed) {
            let ending = device.ending_failure();
            let is_request = bytes > 0 && matches!(device.device().action(event), Some(Action::Alloc | Action::Oom));
            let recorded = failed.iter().filter(|(entry, _)| ending.is_none_or(|last| *entry <= last));
            return Self::RequestFails {
                requests: recorded.count().max(1) as u64,
                event: is_request.then_some(event),
                location: Box::new(if is_request { device.code_location(event) } else { CodeLocation::default() }),
            };
        }
        let survived_failures = failed.len() as u64;
        match (device.ending_failure(), later) {
            _ if is_failure_unreplayable(device) => Self::NotKnown { why: WhyUnknown::ServedAsRecorded },
            (None, _) => Self::GoesOn { headroom_bytes: free_bytes, sizes_vary: false, survived_failures },
            (Some(_), Some(later)) => later,
            (Some(_), None) if device.device().len() > MAX_CONTINUED_ENTRIES => {
                Self::NotKnown { why: WhyUnknown::LongTrace }
            }
            (Some(_), None) => Self::NotKnown { why: WhyUnknown::NoLoop },
        }
    }

    /// The outcome as recorded, with `free_bytes` of the device never reserved.
    pub(crate) fn recorded(device: DeviceStudy<'_, '_>, free_bytes: Option<u64>) -> Self {
        let trace = device.device();
        let failed: Vec<_> = trace.failed_requests().map(|event| (event, trace.entry(event).size)).collect();
        Self::from_replay(device, &failed, None, free_bytes)
    }

    /// Whether every request is served, as far as requests are recorded or predicted.
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::GoesOn { .. })
    }

    /// Whether a failure is only postponed.
    pub fn fails_again(&self) -> bool {
        matches!(self, Self::FailsAgain { .. })
    }

    /// How far the job gets, to compare outcomes. An estimated failure in later iterations comes after what is not known.
    pub(crate) fn reach(&self) -> (u8, u64) {
        match self {
            Self::GoesOn { survived_failures, .. } => (4, u64::MAX - survived_failures),
            Self::FailsAgain { after_requests, sure: false, .. } => (3, *after_requests),
            Self::NotKnown { .. } => (2, 0),
            Self::FailsAgain { after_requests, .. } => (1, *after_requests),
            Self::RequestFails { requests, .. } => (0, u64::MAX - requests),
        }
    }
}

/// Whether a replay of the recorded program in which `failed` requests fail gets to the failure that ended the recording,
/// and serves it, so that the outcome depends on the forecast.
pub(super) fn outlives_recording(device: DeviceStudy<'_, '_>, failed: &[(usize, u64)]) -> bool {
    device.ending_failure().is_some() && first_fatal(device, failed).is_none()
}

/// Bytes of the device of `hypothesis` beyond `reserved`; `None` if no capacity is known.
pub(crate) fn free_of(hypothesis: &Hypothesis, reserved: u64) -> Option<u64> {
    let within_reach = [hypothesis.capacity, hypothesis.limit].into_iter().flatten().min()?;
    Some(within_reach.saturating_sub(reserved))
}

/// Whether a replay under the recorded settings serves the last failed request: the cause of its failure, such as memory
/// that waited for another stream, is not replayed, and nothing shows that a change helps.
pub(crate) fn is_failure_unreplayable(device: DeviceStudy<'_, '_>) -> bool {
    let Some(last) = device.failed_requests().next_back() else { return false };
    device.replay_serves_failure(|| {
        let settings = Some((device.inferred().hypothesis.last_settings().clone(), String::new()));
        let overrides = Overrides { settings, ..Overrides::default() };
        let done = simulate(device.program(), &hypothesis_with(device, &overrides), None);
        !done.ooms.iter().any(|(entry, _)| *entry == last)
    })
}

/// The first of the `failed` requests that counts. The program survived all recorded failures but the last, so it survives
/// them in a replay. Failures of predicted requests are the forecast's.
fn first_fatal(device: DeviceStudy<'_, '_>, failed: &[(usize, u64)]) -> Option<(usize, u64)> {
    let last = device.failed_requests().next_back();
    let mut fatal = failed.iter().filter(|(entry, _)| {
        last.is_none_or(|last| *entry >= last) || device.device().action(*entry) != Some(Action::Oom)
    });
    let Some(ending) = device.ending_failure() else { return fatal.next().copied() };
    // The forecast's first entry repeats the failed request.
    let (entry, bytes) = fatal.find(|(entry, _)| *entry <= ending + 1)?;
    Some(((*entry).min(ending), *bytes))
}

words! {
    /// How sure a prediction is: one scale for replays, changes to the program and sizes.
    pub enum Sureness {
        /// It ran so
        Confirmed = "confirmed",
        /// A replay: the model reproduces the recording, and the program makes the same requests or omits some. A size:
        /// predicted without a warning, below twice the largest recorded size
        Checked = "checked",
        /// A replay: calls are repeated or moved to where their order in the recording puts them. A size: predicted without
        /// a warning, but from smaller recordings, and other kernels may need other workspaces
        Should = "should",
        /// A replay: the model does not reproduce the recording, or sizes depend on what the memory was for, which is
        /// inferred from stacks and lifetimes. A size: predicted with a warning
        Estimate = "estimate",
    }
}

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

    /// The order of rows, but for changes of settings with the same outcome: see [`settings_order`].
    fn rank(&self) -> (TriedMark, Reverse<(u8, u64)>, TriedKind) {
        (self.mark, Reverse(self.then.reach()), self.kind)
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
        Self { is_exact: device.inferred().verification.is_exact(), grows: noticeable_growth(device).is_some() }
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

/// The growth of memory from iteration to iteration, if it is a part of the peak that counts.
fn noticeable_growth<'s>(device: DeviceStudy<'s, '_>) -> Option<&'s Growth> {
    device.growth().filter(|growth| growth.bytes() >= device.peak().reserved_bytes / NOTICEABLE_PARTS)
}

/// Bytes by which memory grows in each step up to the end of the recording, if that counts. After a failure the forecast
/// includes the growth.
pub(super) fn growth_to_end(device: DeviceStudy<'_, '_>) -> Option<u64> {
    let growth = noticeable_growth(device).filter(|_| device.ending_failure().is_none())?;
    Some(growth.bytes_per_step())
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
    let lowest = rows.iter().map(|row| (row.rank(), row.peak_reserved_bytes)).into_grouping_map().min();
    rows.sort_by_cached_key(|row| {
        let lowest = lowest.get(&row.rank()).copied().unwrap_or(0); // every row has a rank
        let settings = if row.kind == TriedKind::Settings { &row.what } else { "" };
        (row.rank(), settings_order(settings, row.peak_reserved_bytes, lowest), row.what.clone())
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
