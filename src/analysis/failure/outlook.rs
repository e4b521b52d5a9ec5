//! The program's prospects after a failed request: its next step, and growth from step to step.

use serde::Serialize;

use super::failed::FailureFacts;
use crate::replay::ops::Continuation;
use crate::study::DeviceStudy;

/// Minimum number of uninterrupted requests by one line that count as filling memory.
const MIN_RUN: usize = 8;
/// See [`Filling::exceeds_room`].
const FILLING_FRACTION: u64 = 4;
/// Minimum number of growing steps that explain a failure. That the failing step holds the most is expected; of seven
/// random sizes, the six before it are in ascending order once in 720 cases.
const MIN_EXPLAINING_STEPS: usize = 6;
/// Minimum number of growing steps, with no shrinking step between them.
const MIN_STEPS: usize = 3;

/// The predicted next step: the requests that followed the same request one step earlier, up to this request again.
/// Bytes are rounded to 512, the smallest rounding under any setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NextStep {
    /// Number of requests.
    pub requests: u64,
    /// Peak of allocated bytes in that step, beyond those with the failed request.
    pub needed_bytes: u64,
    /// Bytes within reach that the failed request would have left; null if it exceeded them.
    pub spare_bytes: Option<u64>,
}

impl NextStep {
    /// Whether the step cannot succeed under any memory layout.
    pub(super) fn exceeds_room(self) -> bool {
        self.spare_bytes.is_some_and(|remaining| self.needed_bytes > remaining)
    }
}

/// Growth of allocated memory at the same request, from step to step up to the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// Number of consecutive steps without a decrease, at least three of them with an increase.
    pub steps: u64,
    /// Average growth per step in bytes.
    pub bytes_per_step: u64,
    /// Total growth in bytes.
    pub bytes: u64,
    /// Number of further steps that the remaining memory would have lasted; null if this request already exceeded it.
    pub steps_left: Option<u64>,
    /// Whether growth explains the failure: without it the request would have fitted, and the remaining memory would
    /// not have lasted for as many steps again.
    pub explains: bool,
}

/// Uninterrupted requests of the failing line up to the failure, which fill memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
        let line = stacks.user_frame(request.stack)?;
        let is_same_line = |stack| stack == request.stack || stacks.user_frame(stack) == Some(line);
        let (requests, bytes) = device.program().similar_requests_before(request.entry, is_same_line);
        (requests >= MIN_RUN).then_some(Self { requests: requests as u64, bytes, spare_bytes: remaining })
    }
}

/// The program's prospects, as far as known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    pub(super) next_step: Option<NextStep>,
    pub(super) growth: Option<Growth>,
    pub(super) filling: Option<Filling>,
}

impl Outlook {
    /// The outlook after the last failure of `device`, which lacked `missing` bytes.
    pub(super) fn after_failure(
        device: DeviceStudy<'_, '_>,
        failed: &FailureFacts,
        continuation: Option<&Continuation<'_>>,
        missing: u64,
    ) -> Self {
        let c = &failed.circumstances;
        // Memory beyond a process limit is not within reach.
        let is_limited = c.device_free.covers(c.segment_in_granules).is_likely();
        let free = if is_limited { 0 } else { failed.request.device_free };
        let reach = failed.totals.reserved.saturating_add(free);
        let Some(continuation) = continuation else {
            let held = failed.totals.allocated.saturating_add(failed.request.bytes);
            let remaining = reach.checked_sub(held);
            let filling = remaining.and_then(|remaining| Filling::before_failure(device, failed, remaining));
            return Self { filling, ..Self::default() };
        };
        let held = continuation.live_by_step.last().copied().unwrap_or(0); // no step: nothing held
        let remaining = reach.checked_sub(held);
        let next_step = NextStep {
            requests: continuation.added_requests as u64,
            needed_bytes: continuation.peak_after.saturating_sub(held),
            spare_bytes: remaining,
        };
        let growth = growth(&continuation.live_by_step, remaining, missing);
        Self { next_step: Some(next_step), growth, filling: None }
    }

    /// Whether the program would have failed again soon, under any memory layout.
    pub(super) fn is_dead_end(&self) -> bool {
        self.growth.is_some_and(|growth| growth.explains)
            || self.next_step.is_some_and(NextStep::exceeds_room)
            || self.filling.is_some_and(Filling::exceeds_room)
    }
}

/// Growth of `held`, the bytes of each step, over the last consecutive steps without a decrease.
fn growth(held: &[u64], remaining: Option<u64>, missing: u64) -> Option<Growth> {
    let pairs = || held.windows(2).rev().take_while(|pair| pair[1] >= pair[0]);
    // Steps before the first increase are not part of the growth.
    let steps = pairs().enumerate().filter(|(_, pair)| pair[1] > pair[0]).last()?.0 + 1;
    let rises = pairs().filter(|pair| pair[1] > pair[0]).count();
    let first = held.len().checked_sub(steps + 1)?;
    let bytes = held.last()?.saturating_sub(*held.get(first)?);
    let bytes_per_step = bytes.checked_div(steps as u64)?;
    let steps_left = remaining.and_then(|remaining| remaining.checked_div(bytes_per_step));
    let is_short = steps_left.is_none_or(|left| left < steps as u64);
    (rises >= MIN_STEPS).then_some(Growth {
        steps: steps as u64,
        bytes_per_step,
        bytes,
        steps_left,
        explains: rises >= MIN_EXPLAINING_STEPS && bytes >= missing && is_short,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_every_step_and_explains_a_smaller_shortfall() {
        assert_eq!(growth(&[10, 20, 30], Some(5), 1), None, "too few steps to tell");
        assert_eq!(growth(&[10, 20, 30, 40, 35, 35], Some(5), 1), None, "the growth ended");
        let every_other = growth(&[9, 9, 9, 10, 10, 20, 20, 30, 30], Some(5), 1).unwrap();
        assert_eq!((every_other.steps, every_other.bytes), (6, 21));
        let few = growth(&[50, 10, 20, 30, 40], Some(25), 20).unwrap();
        assert_eq!((few.steps, few.bytes_per_step, few.bytes), (3, 10, 30));
        assert_eq!((few.steps_left, few.explains), (Some(2), false));
        let held = [50, 10, 20, 30, 40, 50, 60, 70];
        assert!(growth(&held, Some(25), 20).unwrap().explains);
        assert!(!growth(&held, Some(25), 61).unwrap().explains, "the growth is too small");
        assert!(!growth(&held, Some(99), 5).unwrap().explains, "there was room for more steps");
        let beyond = growth(&held, None, 5).unwrap();
        assert_eq!((beyond.steps_left, beyond.explains), (None, true));
    }
}
