//! Everything about one device.

use serde::Serialize;

use super::options::Options;
use crate::facts::Keep;
use crate::failure::{Failures, OomReport, RequestReport, request};
use crate::held::{self, HeldAt, Leaks, StepsReport};
use crate::memory::{
    HeldByLine, HeldByStack, Memory, SegmentList, Sum, by_line, by_stack, list_segments,
};
use crate::notice::Warnings;
use crate::study::{DeviceStudy, OverTime, Peak, remark_on_trace};

/// One device of a snapshot.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceReport {
    /// Device number.
    pub device: u64,
    /// The memory at the snapshot.
    #[serde(flatten)]
    pub memory: Memory,
    /// The segments in which most is free and stuck.
    #[serde(flatten)]
    pub segments: SegmentList,
    /// The highest totals, of the recorded time and what was live before it.
    pub peak: Peak,
    /// Failed requests in all.
    pub oom_count: u64,
    /// Failed requests, oldest first; the last 1000 where there are more.
    pub ooms: Vec<OomReport>,
    /// What would become of one more request, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestReport>,
    /// Who holds the memory, by whole stack, most first.
    pub top_stacks: Vec<HeldByStack>,
    /// Who holds the memory, by line of the user's code, most first.
    pub top_lines: Vec<HeldByLine>,
    /// Where the memory was when allocated memory peaked; `None` without a trace.
    pub at_peak: Option<HeldAt>,
    /// How the training steps of the trace were told apart.
    pub steps: StepsReport,
    /// What grows with every training step.
    pub leaks: Leaks,
    /// Totals over the trace, for a chart; `None` when there is no trace.
    #[serde(skip)]
    pub timeline: Option<OverTime>,
    /// Whether the trace begins at an empty allocator; nothing to say without a trace.
    #[serde(skip)]
    pub truncated: bool,
}

/// Looks at one device and lists the `top` of what is long; asks for one more request of so many bytes.
/// Oddities of its trace go to `warnings`.
pub(super) fn report(
    device: DeviceStudy<'_, '_>,
    options: Options,
    warnings: &mut Warnings,
) -> DeviceReport {
    let (stacks, settings, top) = (device.stacks(), device.settings(), options.top);
    let all = device.held().values().fold(Sum::default(), |all, sum| all.and(*sum));
    let mut failures = Failures::of(device);
    let over_time = device.follow(Keep::Sums, |step| failures.see(step));
    let found = over_time.map(|over_time| held::whereabouts(device, over_time, top));
    let found = found.unwrap_or_default();
    let ooms = failures.reports(found.at_failure, warnings);
    remark_on_trace(device, warnings);
    DeviceReport {
        device: device.id(),
        memory: device.memory().clone(),
        segments: list_segments(device.device(), settings, top),
        peak: device.peak(),
        oom_count: device.failed().count() as u64,
        ooms,
        request: options.request.map(|asked| request(device, asked)),
        top_stacks: by_stack(stacks, device.held().clone(), all, top).rows,
        top_lines: by_line(stacks, device.held().clone(), all, top).rows,
        at_peak: found.at_peak,
        steps: found.steps,
        leaks: found.leaks,
        timeline: over_time.cloned(),
        truncated: over_time.is_some_and(OverTime::is_truncated),
    }
}
