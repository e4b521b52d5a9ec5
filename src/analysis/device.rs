//! Everything about one device.

use serde::Serialize;

use super::options::Options;
use crate::facts::Keep;
use crate::failure::{Failures, MAX_OOMS, OomReport, RequestReport, request};
use crate::held::{self, HeldAt, Leaks, StepsReport};
use crate::memory::{
    HeldByLine, HeldByStack, Memory, SegmentList, Sum, by_line, by_stack, list_segments,
};
use crate::notice::{Code, Warnings};
use crate::study::{DeviceStudy, OverTime, Peak, warn_of_trace};
use crate::units::{counted, size};

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
    let ooms = described(device, failures, found.at_failure, warnings);
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

/// The failed requests of `device`, oldest first: the last ones, the very last with remedies. What is odd about
/// its trace, and what is not said of its failures, goes to `warnings`.
pub fn failures(device: DeviceStudy<'_, '_>, warnings: &mut Warnings) -> Vec<OomReport> {
    let mut failures = Failures::of(device);
    device.follow(Keep::Sums, |step| failures.see(step));
    described(device, failures, None, warnings)
}

fn described(
    device: DeviceStudy<'_, '_>,
    failures: Failures<'_, '_>,
    held: Option<HeldAt>,
    warnings: &mut Warnings,
) -> Vec<OomReport> {
    let ooms = failures.reports(held, warnings);
    remark_on_trace(device, warnings);
    warn_of_failures(device, &ooms, warnings);
    ooms
}

/// Adds to `warnings` what is odd about the trace of `device`, if it has one.
pub fn remark_on_trace(device: DeviceStudy<'_, '_>, warnings: &mut Warnings) {
    if let Some(over_time) = device.over_time() {
        warn_of_options(device, over_time, warnings);
        warn_of_trace(device.device(), over_time.outcome, warnings);
    }
}

/// Adds to `warnings` what was asked for and cannot be.
fn warn_of_options(device: DeviceStudy<'_, '_>, over_time: &OverTime, warnings: &mut Warnings) {
    let (id, reserved) = (device.id(), device.peak().reserved_bytes);
    if over_time.events == 0 {
        warnings.add(
            Code::EmptyWindow,
            format!(
                "device {id}: none of the {} is in the part asked for, so there is no peak, no course over \
                 time and no failed request to see",
                counted(over_time.trace_events, "trace entry")
            ),
        );
    }
    if let Some(capacity) = device.scope().capacity.filter(|capacity| *capacity < reserved) {
        warnings.add(
            Code::SmallCapacity,
            format!(
                "device {id}: a capacity of {} was given, and {} was reserved at once",
                size(capacity),
                size(reserved)
            ),
        );
    }
}

/// Adds to `warnings` what is not said of the failed requests of `device`, described in `ooms`.
fn warn_of_failures(device: DeviceStudy<'_, '_>, ooms: &[OomReport], warnings: &mut Warnings) {
    let (memory, oom_count) = (device.memory(), device.failed().count() as u64);
    let device = device.id();
    if ooms.iter().any(|oom| oom.pool_id.is_none() && oom.kept_back_bytes.is_none())
        && memory.pools.iter().any(|pool| pool.pool_id != [0, 0])
    {
        warnings.add(
            Code::FailedPoolNotRecorded,
            format!(
                "device {device}: this release does not record which pool a failed request was for: it \
                 is taken to be the default one, though there are private pools (CUDA graphs, MemPool), and no \
                 setting is said to help one on a stream of theirs"
            ),
        );
    }
    if oom_count > MAX_OOMS as u64 {
        warnings.add(
            Code::ManyOoms,
            format!(
                "device {device} has {}: the last {MAX_OOMS} are described",
                counted(oom_count, "failed request")
            ),
        );
    }
}
