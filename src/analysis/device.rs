//! Everything about one device.

use serde::Serialize;

use super::options::Options;
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::{Failures, OomReport, RequestReport, request};
use crate::base::units::{counted, size};
use crate::base::warning::{Code, Warnings};
use crate::replay::literal::Tracking;
use crate::study::attribution::{self, CategoryLayer, Leaks, MemoryBreakdown, StepsReport};
use crate::study::memory::{
    BlockSum, LiveByLine, LiveByStack, MemoryReport, SegmentList, top_lines, top_stacks,
};
use crate::study::{
    Activity, DeviceStudy, MemoryHistory, Peak, PositionSelector, TracePosition, warn_about_trace,
};
use crate::whatif::program::{ProgramRow, find_best_changes};

/// One device of a snapshot.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// Device number.
    pub device: u64,
    /// The moment that was asked for; figures, segments and holders are of it, else of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moment: Option<TracePosition>,
    /// The memory at that moment.
    #[serde(flatten)]
    pub memory: MemoryReport,
    /// The segments in which most is free and stuck.
    #[serde(flatten)]
    pub segments: SegmentList,
    /// Bytes of device memory, where they were given or recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// The highest totals, of the recorded time and what was live before it.
    pub peak: Peak,
    /// Failed requests in all.
    pub oom_count: u64,
    /// Failed requests, oldest first; the last 1000 where there are more.
    pub ooms: Vec<OomReport>,
    /// What to do about the last of them, most useful first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
    /// What to copy for the first of it.
    #[serde(skip)]
    pub copy: Option<String>,
    /// Changes to the program that do most for the last failed request, where no setting does: each one replayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ProgramRow>,
    /// Whether they were left out, because the trace is long.
    #[serde(skip)]
    pub changes_left_out: bool,
    /// What would become of one more request, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestReport>,
    /// Who holds the memory, by whole stack, most first.
    pub top_stacks: Vec<LiveByStack>,
    /// Who holds the memory, by line of the user's code, most first.
    pub top_lines: Vec<LiveByLine>,
    /// Where the memory was when allocated memory peaked; `None` without a trace.
    pub at_peak: Option<MemoryBreakdown>,
    /// Where the memory was at the moment that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_moment: Option<MemoryBreakdown>,
    /// How the training steps of the trace were told apart.
    pub steps: StepsReport,
    /// What grows with every training step.
    pub leaks: Leaks,
    /// Totals over the trace, for a chart; `None` when there is no trace.
    #[serde(skip)]
    pub timeline: Option<MemoryHistory>,
    /// Allocated memory over time by category, of each bucket where it was most; empty if not asked for.
    #[serde(skip)]
    pub layers: Vec<CategoryLayer>,
    /// What the program was doing over time.
    #[serde(skip)]
    pub course: Activity,
    /// Whether the trace begins at an empty allocator; nothing to say without a trace.
    #[serde(skip)]
    pub truncated: bool,
}

impl DeviceReport {
    /// By how much memory grows with every step, where that is why `oom` failed: it ate up what was missing, and
    /// more of the same would have come.
    pub fn explained_by_growth(&self, oom: &OomReport) -> Option<String> {
        let grows = |bytes| format!("memory grows by {} a step", size(bytes));
        let growth = oom.growth.filter(|growth| growth.explains);
        growth.map(|growth| grows(growth.bytes_per_step)).or_else(|| {
            self.leaks
                .explain_shortfall(oom.shortfall_bytes)
                .then(|| grows(self.leaks.bytes_per_step))
        })
    }
}

/// Looks at one device and lists the `top` of what is long; asks for one more request of so many bytes.
/// Oddities of its trace go to `warnings`.
pub(super) fn report(
    device: DeviceStudy<'_, '_>,
    options: Options<'_>,
    warnings: &mut Warnings,
) -> DeviceReport {
    let top = options.top;
    let mut failures = Failures::of(device);
    let over_time = device.replay(Tracking::Totals, |step| failures.see(step));
    let moment = options.at.and_then(|asked| device.position(asked));
    if let (Some(asked), None) = (options.at, moment) {
        warnings.add(Code::NoMoment, lacks(device, asked));
    }
    let shown = moment.unwrap_or_default();
    let whereabouts = |over_time| {
        attribution::attribute_memory(device, over_time, shown, options.rules, top, options.layers)
    };
    let found = over_time.map(whereabouts);
    let found = found.unwrap_or_default();
    let ooms = failures.reports(found.at_failure, !found.leaks.suspects.is_empty(), warnings);
    let changes = match ooms.last().filter(|oom| is_for_the_program(oom)) {
        Some(_) => find_best_changes(device, CHANGES),
        None => Some(Vec::new()),
    };
    warn_about_trace(device, warnings);
    let (stacks, memory) = (device.stacks(), device.memory_at(shown));
    let all = memory.live_by_stack.values().fold(BlockSum::default(), |all, sum| all.plus(*sum));
    DeviceReport {
        device: device.id(),
        moment,
        capacity_bytes: device.capacity(),
        segments: memory.segments(top),
        peak: Peak { is_lower_bound: device.lost_history().is_some(), ..device.peak() },
        oom_count: device.failed_requests().count() as u64,
        ooms,
        advice: Vec::new(),
        copy: None,
        changes_left_out: changes.is_none(),
        changes: changes.unwrap_or_default(),
        request: options.request.map(|asked| request(device, (shown, &memory), asked)),
        top_stacks: top_stacks(stacks, memory.live_by_stack.clone(), all, top).rows,
        top_lines: top_lines(stacks, memory.live_by_stack, all, top).rows,
        memory: memory.figures,
        at_peak: found.at_peak,
        at_moment: found.at_position,
        steps: found.steps,
        leaks: found.leaks,
        timeline: over_time.cloned(),
        layers: found.layers,
        course: over_time.map(|_| Activity::from_trace(device)).unwrap_or_default(),
        truncated: over_time.is_some_and(MemoryHistory::is_truncated),
    }
}

/// Changes to the program that are told unasked.
const CHANGES: usize = 3;

/// Whether the program has to change for `oom`: it holds too much, or no setting that was replayed serves it.
fn is_for_the_program(oom: &OomReport) -> bool {
    let is_served = || oom.remedies.iter().any(|remedy| remedy.avoids_oom);
    match oom.verdict {
        Verdict::Capacity => true,
        Verdict::Fragmentation => !oom.remedies.is_empty() && !is_served(),
        _ => false,
    }
}

/// Why `device` has no moment as `asked`.
fn lacks(device: DeviceStudy<'_, '_>, asked: PositionSelector) -> String {
    let why = match asked {
        _ if device.device().is_empty() => "no history was recorded".to_owned(),
        PositionSelector::Peak => "its trace has no peak".to_owned(),
        PositionSelector::Failure => "no request failed".to_owned(),
        PositionSelector::Entry(_) => {
            format!("its trace has {}", counted(device.device().len() as u64, "entry"))
        }
    };
    format!("device {}: {why}, so its memory is shown as at the snapshot", device.id())
}
