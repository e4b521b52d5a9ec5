//! The summary of an analysis.

use super::Summary;
use super::advice::detach;
use super::dry_verdict::describe_verdict;
use super::variables::describe_variable;
use crate::allocator::conf::{EXPANDABLE_SEGMENTS, shell_assignment};
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::OomReport;
use crate::analysis::{Advice, AnalyzeReport, DeviceReport, DryRunReason, SnapshotReport};
use crate::base::units::{duration, percent, ratio, size};
use crate::base::warning::{Code, RECORD_COMMAND};
use crate::stacks::frames::FrameReport;
use crate::study::attribution::{ByCategory, Category, Confidence, MemoryBreakdown};
use crate::study::memory::LiveByLine;

impl AnalyzeReport {
    /// The result for the job: of the worst device, or of all ranks together.
    pub fn summary(&self) -> Summary {
        summarize_all(self)
    }
}

/// Summarizes all snapshots; of several, the worst in `ranks`.
fn summarize_all(report: &AnalyzeReport) -> Summary {
    let (snapshots, ranks) = (&report.snapshots, report.ranks.as_ref());
    let worst = ranks.and_then(|ranks| ranks.rows.first());
    let shown = match worst {
        Some(worst) => snapshots.iter().find(|snapshot| snapshot.path == worst.path),
        None => snapshots.first(),
    };
    let summary = shown.map(|snapshot| summarize_snapshot(snapshot, worst.map(|row| row.device)));
    let mut summary = summary.unwrap_or_default(); // a report has a snapshot
    if let Some(ranks) = ranks.filter(|_| snapshots.len() > 1) {
        summary.answer.clone_from(&ranks.summary);
    }
    if let (Some(job), Some(dry_run)) = (&report.dry_run, shown.and_then(|snapshot| snapshot.dry_run.as_ref())) {
        let verdict = describe_verdict(report, job, dry_run);
        let is_failure = matches!(job.reason, DryRunReason::Failed(_));
        summary.answer = if is_failure { format!("{verdict}: {}", summary.answer) } else { verdict };
    }
    summary
}

/// Summarizes the device `worst` of `snapshot`, or its first one.
pub(crate) fn summarize_snapshot(snapshot: &SnapshotReport, worst: Option<u64>) -> Summary {
    let device = match worst {
        Some(worst) => snapshot.devices.iter().find(|device| device.device == worst),
        None => snapshot.devices.first(),
    };
    let foreign = snapshot.warnings.iter().find(|warning| warning.code == Code::ForeignBackend);
    match (foreign, device) {
        (Some(foreign), _) => Summary::from_answer(&*foreign.message),
        (None, Some(device)) => match device.ooms.last() {
            Some(oom) => summarize_failure(oom, device, snapshot.settings_string.as_deref()),
            None => summarize_without_failure(device, snapshot),
        },
        (None, None) => Summary::from_answer("the allocator held no memory and recorded nothing"),
    }
}

fn summarize_failure(oom: &OomReport, device: &DeviceReport, settings_string: Option<&str>) -> Summary {
    let first = device.advice.first();
    // A setting that serves the input needs no word about it.
    let needs_less = matches!(first, Some(Advice::LimitInput(_) | Advice::Change(..)));
    let input = oom.unusual_input.as_ref().filter(|_| needs_less);
    let why = match (first, device.explaining_growth(oom), input) {
        (Some(Advice::RequestLess(_)), ..) => format!("the request itself is too large ({})", oom.verdict),
        (_, Some(bytes), _) => format!("memory grows by {} a step ({})", size(bytes), oom.verdict),
        (_, None, Some(input)) => format!("{input} ({})", oom.verdict),
        (_, None, None) if concerns_one_request(oom) => {
            format!("{} (of this request; what follows is not known)", oom.verdict)
        }
        (_, None, None) => oom.verdict.to_string(),
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
    let copy = first.and_then(|advice| advice.copy(oom, settings_string));
    Summary {
        answer,
        who: held.and_then(describe_holders),
        variable: describe_kept(device),
        action: first.map(ToString::to_string),
        copy,
    }
}

/// Whether the verdict blames free memory that this request could not use, and nothing shows whether the program would
/// go on with it.
fn concerns_one_request(oom: &OomReport) -> bool {
    use Verdict::{Fragmentation, OtherStream, PendingFree, PrivatePool};
    oom.is_rest_unknown && matches!(oom.verdict, Fragmentation | OtherStream | PendingFree | PrivatePool)
}

fn summarize_without_failure(device: &DeviceReport, snapshot: &SnapshotReport) -> Summary {
    let (memory, peak) = (&device.memory, &device.peak);
    // The legacy recording API keeps a single entry, which is no history.
    let timeline = device.timeline.as_ref().filter(|timeline| timeline.trace_entries > 1);
    let Some(timeline) = timeline else {
        let failure = snapshot.recorder.as_ref().and_then(|recorder| recorder.failure_on(device.device));
        let unknown = failure.map_or_else(
            || "no history was kept, so failures and peak are not known".to_owned(),
            |oom| {
                format!(
                    "out of memory on device {}: {} requested, {} free on the device; no history was kept, so the line and \
                     the peak are not known",
                    oom.device,
                    size(oom.requested_bytes),
                    size(oom.free_bytes)
                )
            },
        );
        return Summary {
            answer: format!(
                "{unknown}; at the snapshot {} of {} reserved is allocated on device {}",
                size(memory.allocated_bytes),
                size(memory.reserved_bytes),
                device.device
            ),
            who: describe_largest_line(&device.top_lines, memory.allocated_bytes),
            variable: describe_kept(device),
            action: Some("record a history to see the peak, and failures".to_owned()),
            copy: Some("oomscope run --at exit -- python train.py".to_owned()),
        };
    };
    let lasted = timeline.duration_us.filter(|us| *us > 0);
    let lasted = lasted.map_or_else(String::new, |us| format!(" of {}", duration(us)));
    let is_lost = snapshot.warnings.iter().any(|warning| warning.code == Code::HistoryLost);
    let part = if is_lost { "what is left of this recording" } else { "this recording" };
    let at_least = if is_lost { "at least " } else { "" };
    let answer = format!(
        "no request failed in {part}{lasted}; peak of device {}: {at_least}{} allocated, {at_least}{} reserved",
        device.device,
        size(peak.allocated_bytes),
        size(peak.reserved_bytes)
    );
    let contradicts = snapshot.warnings.iter().any(|warning| warning.code == Code::TraceInconsistent);
    let estimates = if contradicts { " (estimates: the trace contradicts itself)" } else { "" };
    let answer = format!("{answer}{estimates}");
    let held = device.at_moment.as_ref().or(device.at_peak.as_ref());
    let (action, copy) = if let Some(graphs) = held.and_then(|held| held.unused_graphs.as_ref()) {
        (Some(graphs.to_string()), Some(graphs.called_at.file_line()))
    } else if let Some(graphs) = device.leaks.kept_graphs.as_ref().filter(|_| device.is_growth_notable()) {
        (
            Some(detach(graphs, device.leaks.variable.as_deref().filter(|variable| variable.is_graph()))),
            graphs.result_at.as_ref().map(FrameReport::file_line),
        )
    } else if let Some(leak) = device.leaks.suspects.first().filter(|_| device.is_growth_notable()) {
        let line = leak.location.label();
        let rate = size(device.leaks.bytes_per_step);
        let action = format!("look at {line}: memory grows by {rate} per step");
        (Some(action), leak.location.frame.as_ref().map(FrameReport::file_line))
    } else if let Some(gain) = device.expandable_gain {
        let action = format!(
            "set {EXPANDABLE_SEGMENTS}: {} of free memory is stuck between live blocks, and in a replay the peak of \
             reserved memory is {} instead of {}",
            size(gain.stranded_bytes),
            size(gain.peak_reserved_bytes),
            size(peak.reserved_bytes)
        );
        (Some(action), Some(shell_assignment(EXPANDABLE_SEGMENTS, snapshot.settings_string.as_deref())))
    } else if let Some(imbalance) = &device.data_parallel {
        (Some(imbalance.to_string()), imbalance.called_at.as_ref().map(FrameReport::file_line))
    } else if let Some(idle) = &device.idle_cache {
        (Some(idle.to_string()), Some("torch.cuda.empty_cache()".to_owned()))
    } else if is_lost {
        let action = "record again with more trace entries, to see all of it";
        (Some(action.to_owned()), Some("oomscope run --max-entries 4M -- python train.py".to_owned()))
    } else if device.truncated {
        let action = "start the recording before the model is built, to see who holds the memory from before it";
        (Some(action.to_owned()), Some(RECORD_COMMAND.to_owned()))
    } else {
        (None, None)
    };
    Summary { answer, who: held.and_then(describe_holders), variable: describe_kept(device), action, copy }
}

/// The variable that keeps the growing memory if growth explains the failure, else the one that keeps most.
fn describe_kept(device: &DeviceReport) -> Option<String> {
    let growth = device.ooms.last().and_then(|oom| device.explaining_growth(oom));
    let growing = device.leaks.variable.as_deref().filter(|_| growth.is_some());
    describe_variable(device.kept_by.as_ref()?, growing, device.memory.allocated_bytes)
}

/// The categories named in the first lines make up at least this share of the memory.
const MIN_NAMED_SHARE: f64 = 0.9;

/// Describes the largest line and the largest categories.
fn describe_holders(held: &MemoryBreakdown) -> Option<String> {
    let line = describe_largest_line(&held.by_line.rows, held.allocated_bytes)?;
    let share = |row: &ByCategory| {
        let guess = if row.confidence == Confidence::Low { " (a guess)" } else { "" };
        format!("{} {}{guess}", percent(row.share.share_ratio), row.category.word().replace('-', " "))
    };
    let mut named = 0.0;
    let is_needed = |row: &&ByCategory| {
        let is_needed = named < MIN_NAMED_SHARE;
        named += row.share.share_ratio;
        is_needed
    };
    let categories: Vec<String> = held.by_category.iter().take_while(is_needed).map(share).collect();
    // Without any known purpose, the line says it all.
    let is_known = held.by_category.iter().any(|row| row.category != Category::Other);
    Some(if is_known { format!("{line}; of all: {}", categories.join(", ")) } else { line })
}

fn describe_largest_line(lines: &[LiveByLine], allocated: u64) -> Option<String> {
    let largest = lines.first()?;
    let description = format!(
        "{}: {} of {} allocated ({})",
        largest.location.label(),
        size(largest.bytes),
        size(allocated),
        percent(ratio(largest.bytes, allocated))
    );
    // Memory without a line is no answer to "who": add the largest holder with one.
    let next = lines.iter().find(|line| line.location.frame.is_some()).filter(|_| largest.location.frame.is_none());
    Some(match next {
        Some(line) => {
            format!("{description}, then {}: {}", line.location.label(), size(line.bytes))
        }
        None => description,
    })
}
