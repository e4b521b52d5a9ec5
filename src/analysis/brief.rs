//! The answer in a few figures: one object a snapshot, for tables over many ranks, chats and agents.

use serde::Serialize;

use super::analyzed::AnalyzeReport;
use super::device::DeviceReport;
use super::names::{host, rank};
use super::snapshot::SnapshotReport;
use super::summary;
use crate::allocator::verdict::{Certainty, Verdict};
use crate::base::summary::Summary;
use crate::base::warning::Code;
use crate::stacks::frames::FrameReport;

/// Lines, remedies and codes that a brief answer lists.
const LISTED: usize = 3;

/// One snapshot: its device that stands worst, and what is to be known of that.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Brief {
    /// `oomscope/analyze-brief/1`
    pub schema: &'static str,
    /// As given.
    pub path: String,
    /// The rank: as `oomscope run` recorded it, else as its path names it (`rank3.pickle`, `rank_3/snapshot.pickle`).
    pub rank: Option<u32>,
    /// The host, likewise (`node-1/rank3.pickle`, `host_a/..`).
    pub host: Option<String>,
    /// What it comes to.
    pub summary: Summary,
    /// Device number.
    pub device: Option<u64>,
    /// Why the last request that failed did; `None` where none failed.
    pub verdict: Option<Verdict>,
    /// How sure that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Certainty>,
    /// The innermost line of that request that is not PyTorch's, as `file:line`.
    pub culprit: Option<String>,
    /// Failed requests.
    pub oom_count: u64,
    /// The last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<u64>,
    /// Free on the device at that moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_free_bytes: Option<u64>,
    /// Held from the device, at the failure if there is one, else at the snapshot.
    pub reserved_bytes: u64,
    /// Held by the program at that moment.
    pub allocated_bytes: u64,
    /// Peak of reserved memory.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated memory.
    pub peak_allocated_bytes: u64,
    /// Who holds most, at the failure if there is one, else at the peak.
    pub top_lines: Vec<BriefLine>,
    /// Settings under which the failed request is served, the best first.
    pub remedies: Vec<String>,
    /// Codes of what is odd about the file.
    pub warnings: Vec<Code>,
    /// How many snapshots there are, where this is about the worst of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<usize>,
}

/// A line that holds memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BriefLine {
    /// The line, in a few words.
    pub line: String,
    /// What it holds.
    pub bytes: u64,
}

impl Brief {
    /// One for each snapshot, with `top` lines.
    pub fn each(report: &AnalyzeReport) -> impl Iterator<Item = Self> + '_ {
        report.snapshots.iter().map(|snapshot| of(snapshot, worst(snapshot), report.top))
    }

    /// Of all of `report`, in fewer than `most` bytes of JSON: words are cut where they are too long.
    pub fn within(report: &AnalyzeReport, most: usize) -> Self {
        let worst_of_all = report.ranks.as_ref().and_then(|ranks| ranks.rows.first());
        let shown = report
            .snapshots
            .iter()
            .find(|snapshot| worst_of_all.is_none_or(|worst| worst.path == snapshot.path));
        let Some(shown) = shown else { return Self::default() };
        let several = Some(report.snapshots.len()).filter(|snapshots| *snapshots > 1);
        let device = shown
            .devices
            .iter()
            .find(|device| worst_of_all.is_none_or(|worst| worst.device == device.device));
        let whole = of(shown, device, LISTED);
        let whole = Self { summary: report.summary.clone(), snapshots: several, ..whole };
        // Each time half of what was left of a text.
        let lengths = std::iter::successors(Some(1024), |length| Some(length / 2));
        let shorter = lengths.take_while(|length| *length > 8).map(|length| whole.cut(length));
        let fits =
            |brief: &Self| serde_json::to_string_pretty(brief).is_ok_and(|it| it.len() < most);
        shorter.into_iter().find(fits).unwrap_or_default()
    }

    /// With no text longer than `length` characters.
    fn cut(&self, length: usize) -> Self {
        let end = |text: &String| {
            let out = text.chars().count().saturating_sub(length);
            if out == 0 {
                text.clone()
            } else {
                format!("…{}", text.chars().skip(out).collect::<String>())
            }
        };
        let begin = |text: &String| {
            let is_long = text.chars().nth(length).is_some();
            let kept: String = text.chars().take(length).collect();
            if is_long { format!("{kept}…") } else { kept }
        };
        let mut brief = self.clone();
        brief.path = end(&self.path);
        brief.host = self.host.as_ref().map(begin);
        brief.culprit = self.culprit.as_ref().map(end);
        brief.summary = Summary {
            answer: begin(&self.summary.answer),
            who: self.summary.who.as_ref().map(begin),
            action: self.summary.action.as_ref().map(begin),
            // What is cut cannot be copied.
            copy: self.summary.copy.clone().filter(|copy| copy.chars().count() <= length),
        };
        for line in &mut brief.top_lines {
            line.line = begin(&line.line);
        }
        brief.remedies = self.remedies.iter().map(begin).collect();
        brief
    }
}

/// The device with a failure, of equals the one that reserves most.
fn worst(snapshot: &SnapshotReport) -> Option<&DeviceReport> {
    let key = |device: &&DeviceReport| (device.oom_count > 0, device.peak.reserved_bytes);
    // The first of equals.
    snapshot.devices.iter().rev().max_by_key(key)
}

fn of(snapshot: &SnapshotReport, device: Option<&DeviceReport>, top: usize) -> Brief {
    let mut warnings: Vec<Code> = snapshot.warnings.iter().map(|warning| warning.code).collect();
    warnings.dedup();
    let recorder = snapshot.recorder.as_ref();
    let brief = Brief {
        schema: "oomscope/analyze-brief/1",
        path: snapshot.path.clone(),
        rank: recorder
            .and_then(|known| known.rank.as_ref()?.parse().ok())
            .or_else(|| rank(&snapshot.path)),
        host: recorder.and_then(|known| known.host.clone()).or_else(|| host(&snapshot.path)),
        summary: summary::of_snapshot(snapshot, device.map(|device| device.device)),
        warnings,
        ..Brief::default()
    };
    let Some(device) = device else { return brief };
    let last = device.ooms.last();
    let held = last.map_or(device.at_peak.as_ref(), |oom| oom.held.as_ref());
    let lines = held.map_or(&device.top_lines, |held| &held.by_line.rows);
    let remedies = last.iter().flat_map(|oom| &oom.remedies);
    let remedies = remedies.filter(|remedy| remedy.avoids_oom && remedy.without.is_none());
    Brief {
        device: Some(device.device),
        verdict: last.map(|oom| oom.verdict),
        confidence: last.map(|oom| oom.confidence),
        culprit: last.and_then(|oom| oom.location.frame.as_ref()).map(FrameReport::file_line),
        oom_count: device.oom_count,
        requested_bytes: last.map(|oom| oom.requested_bytes),
        device_free_bytes: last.map(|oom| oom.device_free_bytes),
        reserved_bytes: last.map_or(device.memory.reserved_bytes, |oom| oom.reserved_bytes),
        allocated_bytes: last.map_or(device.memory.allocated_bytes, |oom| oom.allocated_bytes),
        peak_reserved_bytes: device.peak.reserved_bytes,
        peak_allocated_bytes: device.peak.allocated_bytes,
        top_lines: lines
            .iter()
            .take(top)
            .map(|line| BriefLine { line: line.location.label(), bytes: line.bytes })
            .collect(),
        remedies: remedies.take(LISTED).map(|remedy| remedy.settings.clone()).collect(),
        ..brief
    }
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
        let cut = brief.cut(10);
        assert_eq!(cut.path, format!("…{}", "é".repeat(10)));
        assert_eq!(cut.summary.answer, format!("{}…", "é".repeat(10)));
        assert_eq!(cut.summary.copy, None);
    }
}
