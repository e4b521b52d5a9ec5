//! The program's prospects after a failed request: its next step, and growth from step to step.

use super::failed::FailureFacts;
use crate::study::DeviceStudy;
use crate::study::iterations::{self, GrowthKind};
use crate::whatif::forecast::Forecast;

/// Minimum number of uninterrupted requests by one line that count as filling memory.
const MIN_RUN: usize = 8;
/// See [`Filling::exceeds_room`].
const FILLING_FRACTION: u64 = 4;
/// The rest of the failed iteration and one more, as far as earlier iterations predict them for sure.
/// Bytes are rounded to 512, the smallest rounding under any setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextStep {
    /// Number of requests.
    pub requests: u64,
    /// Peak of allocated bytes, beyond those with the failed request.
    pub needed_bytes: u64,
    /// Bytes within reach that the failed request would have left; `None` if it exceeded them.
    pub spare_bytes: Option<u64>,
}

impl NextStep {
    /// Whether the step cannot succeed under any memory layout.
    pub(super) fn exceeds_room(self) -> bool {
        self.spare_bytes.is_some_and(|remaining| self.needed_bytes > remaining)
    }
}

/// Growth of allocated memory from iteration to iteration up to the failure: the same figure as `leaks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// The kind of growth.
    pub kind: GrowthKind,
    /// Number of consecutive steps whose memory was compared.
    pub steps: u64,
    /// Average growth per step in bytes.
    pub bytes_per_step: u64,
    /// Total growth in bytes.
    pub bytes: u64,
    /// Number of further steps that the remaining memory would have lasted; `None` if this request already exceeded it.
    pub steps_left: Option<u64>,
    /// Whether growth explains the failure: without it the request would have fitted, and the remaining memory would
    /// not have lasted for as many steps again.
    pub explains: bool,
}

impl Growth {
    fn new(growth: &iterations::Growth, remaining: Option<u64>, missing: u64) -> Self {
        let steps = growth.steps();
        let (bytes_per_step, bytes) = (growth.bytes_per_step(), growth.bytes());
        let steps_left = remaining.and_then(|remaining| remaining.checked_div(bytes_per_step));
        let is_short = steps_left.is_none_or(|left| left < steps);
        let kind = growth.kind;
        Self { kind, steps, bytes_per_step, bytes, steps_left, explains: bytes >= missing && is_short }
    }
}

/// Uninterrupted requests of the failing line up to the failure, which fill memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling {
    /// Number of requests.
    pub requests: u64,
    /// Bytes of those requests that are still allocated.
    pub bytes: u64,
    /// Bytes within reach that the failed request would have left.
    pub spare_bytes: u64,
}

impl Filling {
    /// Whether little memory would remain compared with the bytes taken. The total number of requests is unknown, so
    /// at least a quarter of them is assumed to be still to come.
    pub(super) fn exceeds_room(self) -> bool {
        self.spare_bytes < self.bytes / FILLING_FRACTION
    }

    fn before_failure(device: DeviceStudy<'_, '_>, failed: &FailureFacts, remaining: u64) -> Option<Self> {
        let (stacks, request) = (device.stacks(), &failed.request);
        // The line that the headline names, which may be a package's: others that the user's line calls are not "this line".
        let line = stacks.line_id(request.extended_stack).frame?;
        let is_same_line = |stack| stack == request.extended_stack || stacks.line_id(stack).frame == Some(line);
        let (requests, bytes) = device.program().similar_requests_before(failed.entry, is_same_line);
        (requests >= MIN_RUN).then_some(Self { requests: requests as u64, bytes, spare_bytes: remaining })
    }
}

/// The program's prospects, as far as known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Predicted memory needs of the rest of the iteration and of one more, if the program is in a loop.
    pub next_step: Option<NextStep>,
    /// Growth from step to step up to this request.
    pub growth: Option<Growth>,
    /// Uninterrupted requests by the failing line.
    pub filling: Option<Filling>,
}

impl Outlook {
    /// The outlook after the last failure of `device`.
    pub(super) fn after_failure(
        device: DeviceStudy<'_, '_>,
        failed: &FailureFacts,
        forecast: Option<&Forecast<'_>>,
    ) -> Self {
        let c = &failed.circumstances;
        // Memory beyond a process limit is not within reach.
        let is_limited = c.device_free.covers(c.segment_in_granules).is_likely();
        let free = if is_limited { 0 } else { failed.request.addr };
        let reach = failed.totals.reserved.saturating_add(free);
        let is_known = |forecast: &&Forecast<'_>| forecast.sure_requests() > 0 && !forecast.is_single_request();
        let known = forecast.filter(is_known);
        let Some(forecast) = known else {
            let held = failed.totals.allocated.saturating_add(failed.request.size);
            let remaining = reach.checked_sub(held);
            let filling = remaining.and_then(|remaining| Filling::before_failure(device, failed, remaining));
            return Self { filling, ..Self::default() };
        };
        let remaining = reach.checked_sub(forecast.live_bytes);
        let next_step = NextStep {
            requests: forecast.sure_requests() as u64,
            needed_bytes: forecast.sure_peak_bytes.saturating_sub(forecast.live_bytes),
            spare_bytes: remaining,
        };
        let growth = forecast.growth.as_ref().map(|growth| Growth::new(growth, remaining, failed.missing_bytes()));
        Self { next_step: Some(next_step), growth, filling: None }
    }

    /// Whether the program would have failed again soon, under any memory layout.
    pub(super) fn is_dead_end(&self) -> bool {
        self.growth.is_some_and(|growth| growth.explains)
            || self.next_step.is_some_and(NextStep::exceeds_room)
            || self.filling.is_some_and(Filling::exceeds_room)
    }
}
