//! A snapshot's result in a few figures, for tables of many ranks, chats and agents.

use itertools::Itertools as _;
use serde::Serialize;

use super::Summary;
use super::analyze::summarize_snapshot;
use crate::allocator::verdict::{Certainty, Verdict};
use crate::analysis::failure::OomReport;
use crate::analysis::{AnalyzeReport, DeviceReport, DryRunVerdict, Ranks, SnapshotReport, host_in_path, rank_in_path};
use crate::base::warning::{Code, words};
use crate::stacks::frames::FrameReport;
use crate::stacks::phases::Phase;
use crate::study::TracePosition;
use crate::study::attribution::{Category, MemoryBreakdown};

/// Maximum number of lines and remedies in a brief report.
const MAX_LISTED: usize = 3;

/// The key figures of one snapshot's worst device.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Brief {
    /// `oomscope/analyze-brief/1`
    pub schema: &'static str,
    /// Path as given on the command line.
    pub path: String,
    /// The rank recorded by `oomscope run`, else read from the path (`rank3.pickle`, `rank_3/snapshot.pickle`); null
    /// if unknown.
    pub rank: Option<u32>,
    /// The host recorded by `oomscope run`, else read from the path (`node-1/rank3.pickle`, `host_a/..`); null if
    /// unknown.
    pub host: Option<String>,
    /// Time of the last trace entry, in microseconds since the epoch; null if no times were recorded.
    pub time_us: Option<u64>,
    /// The result in up to four sentences.
    pub summary: Summary,
    /// Device number of the worst device; null if the snapshot has no device.
    pub device: Option<u64>,
    /// Why the last failed request failed, by free bytes alone; null if none failed.
    pub verdict: Option<Verdict>,
    /// Why it failed, after what was replayed and what grows: the word of the summary; null if no request failed.
    pub conclusion: Option<Verdict>,
    /// Certainty of the verdict; null if no request failed.
    pub confidence: Option<Certainty>,
    /// The innermost line of the failed request's stack outside PyTorch, as `file:line`; null if unknown.
    pub culprit: Option<String>,
    /// Number of failed requests.
    pub oom_count: u64,
    /// Size of the last failed request in bytes; null if none failed.
    pub requested_bytes: Option<u64>,
    /// Free device memory when it failed, in bytes; null if none failed.
    pub device_free_bytes: Option<u64>,
    /// The moment of `reserved_bytes`, `allocated_bytes`, `step`, `phase`, `top_lines` and `summary.who`: `--at`, else the
    /// last failure, else the peak of allocated bytes, else the snapshot.
    pub at: BriefMoment,
    /// Entry index of that moment in the device's trace; null at the snapshot, and before the first entry.
    pub event: Option<u64>,
    /// The training step then, counted from 0; null before the first step, and if the recording shows no steps.
    pub step: Option<u32>,
    /// The phase of the program then; null without a trace.
    pub phase: Option<Phase>,
    /// Reserved bytes then.
    pub reserved_bytes: u64,
    /// Allocated bytes then.
    pub allocated_bytes: u64,
    /// Peak reserved bytes.
    pub peak_reserved_bytes: u64,
    /// Peak allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Growth of live memory per training step, in bytes; 0 if nothing grows, null if the recording shows no steps.
    pub growth_per_step_bytes: Option<u64>,
    /// The lines that hold the most memory then.
    pub top_lines: Vec<BriefLine>,
    /// Settings that serve the failed request in a replay, best first, without those after which the job is predicted to
    /// fail again.
    pub remedies: Vec<String>,
    /// Codes of all warnings about the file.
    pub warnings: Vec<Code>,
    /// Whether the job of a dry run would fit; null in a run with a GPU.
    pub dry_run: Option<DryRunVerdict>,
    /// The rank that differs most from its peers, or the path of its snapshot; null if none differs notably, and without
    /// other ranks.
    pub odd_rank: Option<String>,
    /// Number of snapshots, if this report is about the worst of several; else null.
    pub snapshots: Option<usize>,
}

words! {
    /// The moment of the figures of a brief report
    #[derive(Default)]
    pub enum BriefMoment {
        /// After the trace entry `event`, as given by `--at`
        Entry = "entry",
        /// Before the first trace entry
        Start = "start",
        /// When the last failed request was made
        Failure = "failure",
        /// When most was allocated
        Peak = "peak",
        /// When the snapshot was taken
        #[default]
        Snapshot = "snapshot",
    }
}

/// A source line that holds memory of one category.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BriefLine {
    /// Label of the line.
    pub line: String,
    /// The category of these bytes; null if it is unknown.
    pub category: Option<Category>,
    /// Live bytes of the line.
    pub bytes: u64,
}

impl Brief {
    /// A report on the worst device of `snapshot`, with up to `top` lines.
    pub fn from_snapshot(snapshot: &SnapshotReport, top: usize) -> Self {
        Self::from_device(snapshot, worst_device(snapshot), top)
    }

    /// A report on the worst device, in fewer than `max_bytes` bytes of JSON. Texts are truncated as needed.
    pub fn within(report: &AnalyzeReport, max_bytes: usize) -> Self {
        let Some((shown, device)) = report.shown() else { return Self::default() }; // a report has a snapshot
        let several = Some(report.snapshots.len()).filter(|snapshots| *snapshots > 1);
        let brief = Self::from_device(shown, device, MAX_LISTED);
        let verdict = report.dry_run.as_ref().map(|job| job.verdict);
        let odd_rank = report.ranks.as_ref().and_then(odd_rank);
        let brief = Self { summary: report.summary(), snapshots: several, dry_run: verdict, odd_rank, ..brief };
        // Halve the texts until the report fits.
        let lengths = std::iter::successors(Some(1024), |length| Some(length / 2));
        let mut truncated = lengths.take_while(|length| *length > 8).map(|n| brief.truncate_texts(n));
        // Only an absurd limit leaves nothing: then an empty report is the answer.
        truncated
            .find(|brief| serde_json::to_string_pretty(brief).is_ok_and(|json| json.len() < max_bytes))
            .unwrap_or_default()
    }

    /// Shortens texts to at most `length` characters.
    fn truncate_texts(&self, length: usize) -> Self {
        let mut brief = self.clone();
        let Self { path, host, culprit, summary, top_lines, remedies, .. } = &mut brief;
        for path in [path].into_iter().chain(culprit) {
            let removed = path.chars().count().saturating_sub(length);
            let end: String = path.chars().skip(removed).collect();
            *path = if removed == 0 { end } else { format!("…{end}") };
        }
        let Summary { answer, who, variable, action, copy } = summary;
        let optional = [host, who, variable, action].into_iter().flatten();
        let texts = optional.chain(remedies).chain(top_lines.iter_mut().map(|line| &mut line.line));
        for text in [answer].into_iter().chain(texts) {
            let is_long = text.chars().nth(length).is_some();
            let start: String = text.chars().take(length).collect();
            *text = if is_long { format!("{start}…") } else { start };
        }
        // A truncated text is no use to copy.
        copy.take_if(|copy| copy.chars().count() > length);
        brief
    }

    fn from_device(snapshot: &SnapshotReport, device: Option<&DeviceReport>, top: usize) -> Self {
        let recorder = snapshot.recorder.as_ref();
        let rank = recorder.and_then(|recorder| recorder.rank.as_ref()?.parse().ok());
        let brief = Self {
            schema: "oomscope/analyze-brief/1",
            path: snapshot.path.clone(),
            rank: rank.or_else(|| rank_in_path(&snapshot.path)),
            host: recorder.and_then(|recorder| recorder.host.clone()).or_else(|| host_in_path(&snapshot.path)),
            time_us: snapshot.time_us,
            summary: summarize_snapshot(snapshot, device),
            warnings: snapshot.warnings.iter().map(|warning| warning.code).dedup().collect(),
            dry_run: snapshot.dry_run.as_ref().map(|process| process.verdict),
            ..Self::default()
        };
        let Some(device) = device else { return brief }; // the snapshot holds nothing
        let last = device.ooms.last();
        let failed = last.filter(|_| device.moment.is_none() || device.is_at_last_failure());
        let ShownMoment { at, event, held, totals: [reserved_bytes, allocated_bytes] } =
            ShownMoment::new(device, failed);
        let lines = held.map_or(&device.top_lines, |held| &held.by_line.rows);
        let top_lines = lines.iter().take(top).map(|line| BriefLine {
            line: line.location.label(),
            category: line.category.filter(|category| *category != Category::Other),
            bytes: line.bytes,
        });
        let has_steps = device.steps.completed > 0 || device.leaks.kind.is_some();
        let remedies = last.iter().flat_map(|oom| &oom.remedies);
        let remedies = remedies.filter(|one| one.avoids_oom && one.without.is_none() && !one.then.fails_again());
        Self {
            device: Some(device.device),
            verdict: last.map(|oom| oom.verdict),
            conclusion: device.conclusion,
            confidence: last.map(|oom| oom.confidence),
            culprit: last.and_then(|oom| oom.location.frame.as_ref()).map(FrameReport::file_line),
            oom_count: device.oom_count,
            requested_bytes: last.map(|oom| oom.requested_bytes),
            device_free_bytes: last.map(|oom| oom.device_free_bytes),
            at,
            event,
            step: held.and_then(|held| held.step),
            phase: held.filter(|_| device.history().is_some()).map(|held| held.phase),
            reserved_bytes,
            allocated_bytes,
            growth_per_step_bytes: has_steps.then_some(device.leaks.bytes_per_step),
            peak_reserved_bytes: device.peak.reserved_bytes,
            peak_allocated_bytes: device.peak.allocated_bytes,
            top_lines: top_lines.collect(),
            remedies: remedies.take(MAX_LISTED).map(|remedy| remedy.settings.clone()).collect(),
            ..brief
        }
    }
}

/// The moment of `--at`, else of the failed request, else of the peak, else of the snapshot.
struct ShownMoment<'d> {
    at: BriefMoment,
    event: Option<u64>,
    held: Option<&'d MemoryBreakdown>,
    /// Reserved and allocated bytes.
    totals: [u64; 2],
}

impl<'d> ShownMoment<'d> {
    fn new(device: &'d DeviceReport, failed: Option<&'d OomReport>) -> Self {
        if let Some(oom) = failed {
            let totals = [oom.reserved_bytes, oom.allocated_bytes];
            return Self { at: BriefMoment::Failure, event: Some(oom.event), held: oom.held.as_ref(), totals };
        }
        let (at, event) = match device.moment {
            Some(TracePosition::Entry { event }) => (BriefMoment::Entry, Some(event)),
            Some(TracePosition::Start) => (BriefMoment::Start, None),
            None if device.at_peak.is_some() => {
                let totals = [device.peak.reserved_then, device.peak.allocated_bytes];
                let (event, held) = (device.peak.allocated_event, device.at_peak.as_ref());
                return Self { at: BriefMoment::Peak, event, held, totals };
            }
            Some(TracePosition::Snapshot) | None => (BriefMoment::Snapshot, None),
        };
        let held = device.at_moment.as_ref().filter(|_| device.moment.is_some());
        Self { at, event, held, totals: [device.memory.reserved_bytes, device.memory.allocated_bytes] }
    }
}

/// The rank to look at first, if it differs from its peers.
fn odd_rank(ranks: &Ranks) -> Option<String> {
    let first = ranks.difference.as_ref().and_then(|difference| difference.rows.first().copied());
    let row = ranks.rows.get(first.or(ranks.outlier)?)?;
    Some(row.rank.clone().unwrap_or_else(|| row.path.clone()))
}

/// The device with a failure; among equals, the one with the highest peak of reserved memory.
fn worst_device(snapshot: &SnapshotReport) -> Option<&DeviceReport> {
    // `rev`, so that the first device wins a tie.
    snapshot.devices.iter().rev().max_by_key(|device| (device.oom_count > 0, device.peak.reserved_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_nothing_that_is_copied_is() {
        let long = "é".repeat(300);
        let copy = Some(long.clone());
        let brief = Brief {
            path: long.clone(),
            summary: Summary { answer: long, copy, ..Summary::default() },
            ..Brief::default()
        };
        let cut = brief.truncate_texts(10);
        assert_eq!(cut.path, format!("…{}", "é".repeat(10)));
        assert_eq!(cut.summary.answer, format!("{}…", "é".repeat(10)));
        assert_eq!(cut.summary.copy, None);
    }
}
