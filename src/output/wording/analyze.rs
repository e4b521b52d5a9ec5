//! The summary of an analysis.

use super::Summary;
use super::advice::{detach, no_grad};
use super::cause::describe_cause;
use super::dry_verdict::describe_verdict;
use super::peers::{describe_difference, even_out};
use super::place::{category_label, describe_position_on, location_label};
use super::variables::{describe_keeper, describe_variable};
use crate::allocator::conf::{EXPANDABLE_SEGMENTS, shell_assignment};
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::{OomReport, RequestReport};
use crate::analysis::{AnalyzeReport, DeviceReport, DryRunReason, SnapshotReport};
use crate::base::units::{count, counted, duration, escape_name, percent, ratio, size};
use crate::base::warning::{Code, RECORD_MORE_COMMAND, RECORD_TO_END_COMMAND};
use crate::output::document::{Text, alarm, amount, strong};
use crate::stacks::frames::FrameReport;
use crate::study::attribution::{Category, MemoryBreakdown};
use crate::study::memory::{Holder, SizedCount};

impl AnalyzeReport {
    /// The result for the job: of the worst device, or of all ranks together.
    pub fn summary(&self) -> Summary {
        let Some((snapshot, device)) = self.shown() else { return Summary::default() }; // a report has a snapshot
        let mut summary = summarize_snapshot(snapshot, device);
        if let Some(ranks) = self.ranks.as_ref().filter(|_| self.snapshots.len() > 1) {
            let why = describe_difference(ranks).unwrap_or_else(|| ranks.peaks.clone());
            summary.answer = format!("{}; {why}", ranks.failed);
            summary.action = even_out(ranks, device.and_then(|device| device.advice.first())).or(summary.action);
        }
        if let (Some(job), Some(dry_run)) = (&self.dry_run, &snapshot.dry_run) {
            let verdict = describe_verdict(self, job, dry_run);
            let is_failure = matches!(job.reason, DryRunReason::Failed(_));
            summary.answer = if is_failure { format!("{verdict}: {}", summary.answer) } else { verdict };
        }
        summary
    }

    /// The snapshot and the device that a page shows first: the worst of the ranks.
    pub(crate) fn shown(&self) -> Option<(&SnapshotReport, Option<&DeviceReport>)> {
        let worst = self.ranks.as_ref().and_then(|ranks| ranks.rows.first());
        let snapshot = self.snapshots.iter().find(|snapshot| worst.is_none_or(|worst| worst.path == snapshot.path))?;
        let device = snapshot.devices.iter().find(|device| worst.is_none_or(|worst| worst.device == device.device));
        Some((snapshot, device))
    }
}

/// Summarizes `device` of `snapshot`; a snapshot that holds nothing has none.
pub(crate) fn summarize_snapshot(snapshot: &SnapshotReport, device: Option<&DeviceReport>) -> Summary {
    match device {
        Some(device) => summarize_device(snapshot, device),
        None => Summary::from_answer("the allocator held no memory and recorded nothing"),
    }
}

/// Summarizes `device` of `snapshot`.
pub(crate) fn summarize_device(snapshot: &SnapshotReport, device: &DeviceReport) -> Summary {
    if has_warning(snapshot, Code::ForeignBackend) {
        return Summary::from_answer(usage_headline(snapshot, device).raw());
    }
    let held_at_moment = device.at_moment.as_ref();
    if let Some(request) = &device.request {
        let (answer, why) = describe_request(device, request);
        let who = describe_holder(device, held_at_moment);
        return Summary { who, ..Summary::from_answer(format!("{}: {why}", answer.raw())) };
    }
    // The last failure and the peak have an answer of their own.
    if let Some(moment) = device.moment.filter(|_| !device.is_at_last_failure()) {
        let (position, memory) = (describe_position_on(device, moment), &device.memory);
        let [allocated, reserved] = [memory.allocated_bytes, memory.reserved_bytes].map(size);
        let answer = format!("{allocated} of {reserved} reserved is allocated {position}, GPU {}", device.device);
        return Summary { who: describe_holder(device, held_at_moment), ..Summary::from_answer(answer) };
    }
    let (answer, held, action, copy) = if let Some(oom) = device.ooms.last() {
        let first = device.advice.first();
        (
            format!("{}; {}", failure_headline(snapshot, device, oom).raw(), describe_cause(oom, device)),
            oom.held.as_ref(),
            first.map(ToString::to_string),
            first.and_then(|advice| advice.copy(oom, snapshot.settings_string.as_deref())),
        )
    } else {
        let (action, copy) = advise_without_failure(snapshot, device).unzip();
        (describe_usage(snapshot, device), device.at_peak.as_ref(), action, copy.flatten())
    };
    let who = describe_holder(device, held_at_moment.or(held));
    Summary { answer, who, variable: describe_variable(device), action, copy }
}

/// The line that holds most at the moment of `held`, else at the snapshot.
fn describe_holder(device: &DeviceReport, held: Option<&MemoryBreakdown>) -> Option<String> {
    let snapshot = (&device.top_lines, device.memory.allocated_bytes);
    let (lines, allocated) = held.map_or(snapshot, |held| (&held.by_line.rows, held.allocated_bytes));
    describe_largest_line(lines, allocated)
}

/// The answer to `--request`, and why.
pub(crate) fn describe_request(device: &DeviceReport, request: &RequestReport) -> (Text, String) {
    let label = format!("{} more on GPU {}", size(request.asked_bytes), device.device);
    match &request.outcome {
        Ok(served) => (strong(format!("{label} would be served")), served.verdict_reason.to_string()),
        Err(oom) if oom.verdict == Verdict::Unknown => (
            strong(format!("whether {label} would be served is not known")),
            "the cache has no room for it, and the size of the device is unknown: give --capacity".to_owned(),
        ),
        Err(oom) => (alarm(format!("{label} would fail")), oom.verdict_reason.to_string()),
    }
}

fn has_warning(snapshot: &SnapshotReport, code: Code) -> bool {
    snapshot.warnings.iter().any(|warning| warning.code == code)
}

/// `GPU 0`, or of a job with several processes `rank 3 (node-7, GPU 3)`.
fn describe_device(snapshot: &SnapshotReport, device: &DeviceReport) -> String {
    let recorder = snapshot.recorder.as_ref();
    let number = recorder.and_then(|recorder| recorder.host_device(device.device)).unwrap_or(device.device);
    let of_several = recorder.filter(|recorder| recorder.world_size.as_deref().is_some_and(|size| size != "1"));
    // All ranks of a dry run are here.
    let host = of_several.and_then(|recorder| recorder.host.as_deref()).filter(|_| snapshot.dry_run.is_none());
    let host = host.map_or_else(String::new, |host| format!("{}, ", escape_name(host)));
    match of_several.and_then(|recorder| recorder.rank.as_deref()) {
        Some(rank) => format!("rank {} ({host}GPU {number})", escape_name(rank)),
        None => format!("GPU {number}"),
    }
}

/// `out of memory on GPU 0: app/train.py:26 forward requested 399 MiB`
pub(crate) fn failure_headline(snapshot: &SnapshotReport, device: &DeviceReport, oom: &OomReport) -> Text {
    let start = alarm("out of memory").and(format!(" on {}: ", describe_device(snapshot, device)));
    let requested = strong(amount(oom.requested_bytes));
    if oom.location.frame.is_none() && oom.location.backward.is_none() {
        return start.and(requested).and(" requested, ").and(location_label(&oom.location));
    }
    start.and(location_label(&oom.location)).and(" requested ").and(requested)
}

/// `no request failed: 53,000 entries over 2 min 11 s, GPU 0`, or that there is no history.
pub(crate) fn usage_headline(snapshot: &SnapshotReport, device: &DeviceReport) -> Text {
    let gpu = describe_device(snapshot, device);
    if has_warning(snapshot, Code::ForeignBackend) {
        return strong(format!("{gpu}: another allocator than PyTorch's recorded this"));
    }
    let Some(timeline) = device.history() else {
        if let Some(failed) = snapshot.recorder.as_ref().and_then(|info| info.failure_on(device.device)) {
            let start = alarm("out of memory").and(format!(" on {gpu}: "));
            let requested = strong(amount(failed.requested_bytes));
            return start.and(requested).and(" requested; no history, so the line is not known");
        }
        let memory = &device.memory;
        let share = amount(memory.allocated_bytes).and(" of ").and(amount(memory.reserved_bytes));
        return strong("no history recorded").and(": ").and(share).and(format!(" reserved is allocated, {gpu}"));
    };
    let lasted =
        timeline.duration_us.filter(|us| *us > 0).map_or_else(String::new, |us| format!(" over {}", duration(us)));
    let entries = counted(timeline.entries, "entry");
    let part = if has_warning(snapshot, Code::HistoryLost) { " (what is left of the recording)" } else { "" };
    strong("no request failed").and(format!(": {entries}{lasted}{part}, {gpu}"))
}

/// The headline with the peaks, which the page has in a bar.
fn describe_usage(snapshot: &SnapshotReport, device: &DeviceReport) -> String {
    let headline = usage_headline(snapshot, device).raw();
    if device.history().is_none() {
        return headline;
    }
    let at_least = if device.peak.is_lower_bound { "at least " } else { "" };
    let [allocated, reserved] = [device.peak.allocated_bytes, device.peak.reserved_bytes].map(size);
    format!("{headline}; up to {at_least}{allocated} allocated, {at_least}{reserved} reserved")
}

/// The action if no request failed, and a text to copy for it.
fn advise_without_failure(snapshot: &SnapshotReport, device: &DeviceReport) -> Option<(String, Option<String>)> {
    if device.history().is_none() {
        let command = "oomscope run --at exit -- python train.py";
        return Some(("record a history to see the peak, and failures".to_owned(), Some(command.to_owned())));
    }
    advise_on_growth(device)
        .or_else(|| advise_on_savings(snapshot, device))
        .or_else(|| advise_on_record(snapshot, device))
}

/// Advice about memory that grows.
fn advise_on_growth(device: &DeviceReport) -> Option<(String, Option<String>)> {
    let leaks = Some(&device.leaks).filter(|_| device.is_growth_notable())?;
    if let Some(graphs) = &leaks.kept_graphs {
        let variable = leaks.variable.as_deref().filter(|variable| variable.is_graph());
        return Some((detach(graphs, variable), graphs.result_at.as_ref().map(FrameReport::file_line)));
    }
    let leak = leaks.suspects.first()?;
    let what = leaks.variable.as_deref().map_or_else(|| leak.location.label(), describe_keeper);
    let copy = leak.location.frame.as_ref().map(FrameReport::file_line);
    Some((format!("look at {what}: memory grows by {} per step", size(leaks.bytes_per_step)), copy))
}

/// The change that would save most, if that is notable.
fn advise_on_savings(snapshot: &SnapshotReport, device: &DeviceReport) -> Option<(String, Option<String>)> {
    let peak = device.peak.reserved_bytes;
    let held = device.at_moment.as_ref().or(device.at_peak.as_ref());
    let graphs = held.and_then(|held| held.unused_graphs.as_ref());
    let graphs = graphs.map(|graphs| (graphs.bytes, no_grad(graphs), Some(graphs.called_at.file_line())));
    let expandable = device.expandable_gain.map(|gain| {
        let [stranded, replayed, recorded] = [gain.stranded_bytes, gain.peak_reserved_bytes, peak].map(size);
        let action = format!(
            "set {EXPANDABLE_SEGMENTS}: {stranded} of free memory is stuck between live blocks, and in a replay the peak \
             of reserved memory is {replayed} instead of {recorded}"
        );
        let copy = shell_assignment(EXPANDABLE_SEGMENTS, snapshot.settings_string.as_deref());
        (peak.saturating_sub(gain.peak_reserved_bytes), action, Some(copy))
    });
    let optimizer = device.optimizer_change.as_ref().and_then(|row| {
        let gain = u64::try_from(row.reserved_gain_bytes).ok()?;
        let [changed, unchanged] = [row.peak_reserved_bytes, row.peak_reserved_bytes.saturating_add(gain)].map(size);
        let action =
            format!("{}: in replays the peak of reserved memory is {changed} instead of {unchanged}", row.label());
        Some((gain, action, row.location.frame.as_ref().map(FrameReport::file_line)))
    });
    let idle = device.idle_cache.map(|idle| {
        let [bytes, reserved] = [idle.bytes, idle.reserved_bytes].map(size);
        let action = format!(
            "if other processes need the device: torch.cuda.empty_cache() releases {bytes} of the {reserved} reserved, \
             which nothing used in the second half of this recording"
        );
        (idle.bytes, action, Some("torch.cuda.empty_cache()".to_owned()))
    });
    let savings = [graphs, expandable, optimizer, idle].into_iter().flatten();
    let best = savings.filter(|(bytes, ..)| device.is_notable(*bytes)).max_by_key(|(bytes, ..)| *bytes);
    let flushes = device.cache_flushes.filter(|flushes| flushes.count >= MIN_FLUSHES);
    let best = best.map(|(_, action, copy)| (action, copy));
    best.or_else(|| flushes.map(|flushes| (describe_flushes(flushes), None)))
}

/// How to see what this recording does not show.
fn advise_on_record(snapshot: &SnapshotReport, device: &DeviceReport) -> Option<(String, Option<String>)> {
    if has_warning(snapshot, Code::HistoryLost) {
        let action = "record again with more trace entries, to see all of it";
        return Some((action.to_owned(), Some(RECORD_MORE_COMMAND.to_owned())));
    }
    let before = device.allocated_before_bytes();
    device.is_notable(before).then(|| {
        let action = format!(
            "start the recording before the model is built, to see who holds the {} from before it",
            size(before)
        );
        (action, Some(RECORD_TO_END_COMMAND.to_owned()))
    })
}

/// Fewer requests that wait for the GPU hardly show.
const MIN_FLUSHES: u64 = 8;

fn describe_flushes(flushes: SizedCount) -> String {
    let (requests, bytes) = (count(flushes.count), size(flushes.bytes));
    format!(
        "lower the peak, or give the job a larger device: {requests} requests waited until the allocator had released \
         cached memory, {bytes} in all, which stops the GPU each time"
    )
}

/// The line that holds the most, before memory without a line.
fn describe_largest_line(lines: &[Holder], allocated: u64) -> Option<String> {
    let largest = lines.iter().find(|line| line.location.frame.is_some()).or(lines.first())?;
    let category = largest.category.filter(|category| *category != Category::Other);
    let category = category.map_or_else(String::new, |category| format!(" ({})", category_label(category)));
    let (line, share) = (largest.location.label(), percent(ratio(largest.bytes, allocated)));
    let [bytes, all] = [largest.bytes, allocated].map(size);
    Some(format!("{line}{category}: {bytes} of {all} allocated ({share})"))
}
