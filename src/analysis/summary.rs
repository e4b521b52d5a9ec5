//! What an analysis comes to.

use super::device::DeviceReport;
use super::ranks::Ranks;
use super::snapshot::SnapshotReport;
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::EXPANDABLE_SEGMENTS;
use crate::analysis::failure::OomReport;
use crate::base::summary::Summary;
use crate::base::units::{duration, percent, ratio, size};
use crate::base::warning::{Code, RECORD_HISTORY_CALL};
use crate::stacks::frames::FrameReport;
use crate::study::attribution::{ByCategory, Category, MemoryBreakdown};
use crate::study::memory::LiveByLine;

/// Free memory that is stuck beside live blocks is worth a word from this share of what is reserved on.
const STRANDED_RATIO: f64 = 0.2;

/// Of all `snapshots`, which `ranks` put side by side.
pub(super) fn of_all(snapshots: &[SnapshotReport], ranks: Option<&Ranks>) -> Summary {
    let worst = ranks.and_then(|ranks| ranks.rows.first());
    let shown = match worst {
        Some(worst) => snapshots.iter().find(|snapshot| snapshot.path == worst.path),
        None => snapshots.first(),
    };
    let summary = shown.map(|snapshot| of_snapshot(snapshot, worst.map(|row| row.device)));
    let mut summary = summary.unwrap_or_default();
    if let Some(ranks) = ranks.filter(|_| snapshots.len() > 1) {
        summary.answer.clone_from(&ranks.summary);
    }
    if let Some(dry_run) = shown.and_then(|snapshot| snapshot.dry_run.as_ref()) {
        let has_failed = snapshots.iter().flat_map(|snapshot| &snapshot.devices);
        let has_failed = has_failed.into_iter().any(|device| device.oom_count > 0);
        let upper_end = dry_run.upper_end().unwrap_or_default();
        summary.answer = format!("{}: {}{upper_end}", dry_run.verdict(has_failed), summary.answer);
    }
    summary
}

/// Of `snapshot`, whose worst device is `worst`, if it has several.
pub(super) fn of_snapshot(snapshot: &SnapshotReport, worst: Option<u64>) -> Summary {
    let device = match worst {
        Some(worst) => snapshot.devices.iter().find(|device| device.device == worst),
        None => snapshot.devices.first(),
    };
    let foreign = snapshot.warnings.iter().find(|warning| warning.code == Code::ForeignBackend);
    match (foreign, device) {
        (Some(foreign), _) => Summary::from_answer(&*foreign.message),
        (None, Some(device)) => match device.ooms.last() {
            Some(oom) => of_failure(oom, device),
            None => without_failure(device, snapshot),
        },
        (None, None) => Summary::from_answer("the allocator held no memory and recorded nothing"),
    }
}

fn of_failure(oom: &OomReport, device: &DeviceReport) -> Summary {
    let why = match device.explained_by_growth(oom) {
        Some(growth) => format!("{growth} ({})", oom.verdict),
        None => oom.verdict.to_string(),
    };
    let answer = format!(
        "out of memory on device {} at {}: {why}; {} requested, {} free on the device, {} in the cache",
        device.device,
        oom.location.label(),
        size(oom.requested_bytes),
        size(oom.device_free_bytes),
        size(oom.cached_bytes)
    );
    let held = device.at_moment.as_ref().or(oom.held.as_ref());
    let action = device.advice.first().cloned();
    Summary { answer, who: held.and_then(who), action, copy: device.copy.clone() }
}

fn without_failure(device: &DeviceReport, snapshot: &SnapshotReport) -> Summary {
    let (memory, peak) = (&device.memory, &device.peak);
    // What the legacy call keeps is no history either.
    let timeline = device.timeline.as_ref().filter(|timeline| timeline.trace_entries > 1);
    let Some(timeline) = timeline else {
        return Summary {
            answer: format!(
                "no history was kept, so failures and peak are not known; at the snapshot {} of {} reserved \
                 is allocated on device {}",
                size(memory.allocated_bytes),
                size(memory.reserved_bytes),
                device.device
            ),
            who: line_in_words(&device.top_lines, memory.allocated_bytes),
            action: Some("record a history to see the peak, and failures".to_owned()),
            copy: Some(RECORD_HISTORY_CALL.to_owned()),
        };
    };
    let lasted = timeline.duration_us.filter(|us| *us > 0);
    let lasted = lasted.map_or_else(String::new, |us| format!(" of {}", duration(us)));
    let lost = snapshot.warnings.iter().any(|warning| warning.code == Code::HistoryLost);
    let part = if lost { "what is left of this recording" } else { "this recording" };
    let least = if lost { "at least " } else { "" };
    let answer = format!(
        "no request failed in {part}{lasted}; peak of device {}: {least}{} allocated, {least}{} reserved",
        device.device,
        size(peak.allocated_bytes),
        size(peak.reserved_bytes)
    );
    let contradicts =
        snapshot.warnings.iter().any(|warning| warning.code == Code::TraceInconsistent);
    let estimates = if contradicts { " (estimates: the trace contradicts itself)" } else { "" };
    let answer = format!("{answer}{estimates}");
    let held = device.at_moment.as_ref().or(device.at_peak.as_ref());
    // What private pools have free is not stuck: their graphs use it again.
    let private = memory.pools.iter().filter(|pool| pool.pool_id != [0, 0]);
    let private = private.map(|pool| pool.inactive_bytes).sum::<u64>();
    let stranded = memory.fragmentation.stranded_bytes.saturating_sub(private);
    let (action, copy) = if let Some(leak) = device.leaks.suspects.first() {
        let line = leak.location.label();
        let rate = size(device.leaks.bytes_per_step);
        let action = format!("look at {line}: memory grows by {rate} with every step");
        (Some(action), leak.location.frame.as_ref().map(FrameReport::file_line))
    } else if ratio(stranded, memory.reserved_bytes) >= STRANDED_RATIO
        && memory.segments.expandable.count == 0
    {
        let action = format!(
            "{} of free memory is stuck between live blocks: try expandable segments",
            size(stranded)
        );
        (
            Some(action),
            Some(shell_assignment(EXPANDABLE_SEGMENTS, snapshot.settings_string.as_deref())),
        )
    } else if lost {
        let action = "to see all of it, record again with more entries in the ring";
        (Some(action.to_owned()), Some(RECORD_HISTORY_CALL.to_owned()))
    } else if device.truncated {
        let action = "to see what was there before, begin to record before the model is built";
        (Some(action.to_owned()), Some(RECORD_HISTORY_CALL.to_owned()))
    } else {
        (None, None)
    };
    Summary { answer, who: held.and_then(who), action, copy }
}

/// Who held the memory of a moment: the two largest categories, and the largest line.
fn who(held: &MemoryBreakdown) -> Option<String> {
    let line = line_in_words(&held.by_line.rows, held.allocated_bytes)?;
    let share = |of: &ByCategory| {
        format!("{} {}", percent(of.share.share_ratio), of.category.word().replace('-', " "))
    };
    let known = held.by_category.iter().filter(|of| of.category != Category::Other);
    let categories: Vec<String> = known.take(2).map(share).collect();
    Some(match categories.join(", ") {
        none if none.is_empty() => line,
        categories => format!("{line}; of all: {categories}"),
    })
}

fn line_in_words(lines: &[LiveByLine], all: u64) -> Option<String> {
    let most = lines.first()?;
    let told = |line: &LiveByLine| line.location.label();
    let told_most = format!(
        "{}: {} of {} allocated ({})",
        told(most),
        size(most.bytes),
        size(all),
        percent(ratio(most.bytes, all))
    );
    // What has no line is followed by what has one.
    let next = lines
        .iter()
        .find(|line| line.location.frame.is_some())
        .filter(|_| most.location.frame.is_none());
    Some(match next {
        Some(line) => format!("{told_most}, then {}: {}", told(line), size(line.bytes)),
        None => told_most,
    })
}
