//! The verdict on a failed request: the ladder's verdict, checked against replays and the program's prospects: its next step,
//! and growth from step to step.

use serde::Serialize;

use super::failed::FailureFacts;
use super::remedies::TrialResults;
use crate::allocator::verdict::{Certainty, MemoryAtFailure, Verdict, decide};
use crate::replay::literal::Totals;
use crate::study::DeviceStudy;
use crate::study::iterations::{self, GrowthKind};
use crate::whatif::forecast::Forecast;

/// A device is full if less than this part of the memory within reach is not in use (3 %).
const FULL_FRACTION: u64 = 32;

/// The verdict on a request that `failed`, with its certainty and reason. Fragmentation becomes capacity if the program
/// would fail again soon after, or if the device is full and no setting is known to serve the next step too. A verdict is
/// certain only if the model reproduces the recording and memory does not grow; a capacity verdict also requires a known
/// device size.
pub(super) fn judge(
    device: DeviceStudy<'_, '_>,
    failed: &FailureFacts,
    trials: &TrialResults,
    outlook: &Outlook,
    [is_reproduced, grows]: [bool; 2],
) -> (Verdict, Certainty, VerdictReason) {
    let ruling = decide(&failed.circumstances);
    let exceeds_reach = trials.as_recorded.is_some_and(|replay| replay.no_setting_helps);
    let is_dead_end = outlook.is_dead_end() || trials.only_postpones();
    let (reach, unused) = (failed.reach(), failed.unused());
    let is_full = unused < reach / FULL_FRACTION && !trials.has_lasting_remedy();
    let is_futile = ruling.verdict == Verdict::Fragmentation && (exceeds_reach || is_dead_end || is_full);
    let verdict = if is_futile { Verdict::Capacity } else { ruling.verdict };
    let is_confirmed = match verdict {
        // Only a replay of this and the next step shows that contiguous memory would have been enough.
        Verdict::Fragmentation => trials.has_lasting_remedy() && !grows && outlook.growth.is_none(),
        // On a device of unknown size other processes may hold memory.
        Verdict::Capacity => {
            let is_full = exceeds_reach || failed.circumstances.is_exhausted();
            is_full && device.capacity().is_some() && !trials.has_remedy()
        }
        Verdict::Unknown => false,
        _ => !outlook.is_dead_end() && !grows,
    };
    let guess = failed.pool_guess;
    let is_known = guess.pool.is_some() && !guess.is_open && is_reproduced;
    let is_certain = ruling.is_certain && is_known && is_confirmed;
    let reason = VerdictReason {
        dead_end: (verdict != ruling.verdict).then(|| {
            let layout_helps = !exceeds_reach && !is_dead_end;
            if layout_helps { DeadEnd::Full { unused, reach } } else { dead_end(*outlook, trials.has_remedy()) }
        }),
        ..VerdictReason::new(device, failed, ruling.verdict)
    };
    (verdict, if is_certain { Certainty::Certain } else { Certainty::Possible }, reason)
}

impl VerdictReason {
    pub(super) fn new(device: DeviceStudy<'_, '_>, failed: &FailureFacts, verdict: Verdict) -> Self {
        Self {
            verdict,
            memory: failed.circumstances,
            totals: failed.totals,
            asleep_bytes: device.sleep().map_or(0, |sleep| sleep.asleep_at(failed.entry)),
            outside_bytes: failed.outside,
            max_split_size: device.settings().max_split_size,
            dead_end: None,
            served: None,
        }
    }
}

/// Why contiguous memory would not have helped for long. `is_avoidable` if a replayed setting serves the request.
fn dead_end(outlook: Outlook, is_avoidable: bool) -> DeadEnd {
    match outlook {
        Outlook { growth: Some(growth), .. } if growth.explains => DeadEnd::Growth(growth.bytes_per_step),
        Outlook { next_step: Some(next), .. } if next.exceeds_room() => DeadEnd::NextStep(next),
        Outlook { filling: Some(filling), .. } if filling.exceeds_room() => DeadEnd::Filling(filling),
        Outlook { next_step: Some(_), .. } if is_avoidable => DeadEnd::EverySettingFails,
        _ => DeadEnd::ExceedsReach,
    }
}

/// The facts behind a verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VerdictReason {
    /// The verdict that the memory at the failure alone gives.
    pub verdict: Verdict,
    /// The free memory of each kind.
    pub memory: MemoryAtFailure,
    /// The totals of the allocator.
    pub totals: Totals,
    /// Bytes of the totals that an engine had unmapped: they were not on the device.
    pub asleep_bytes: u64,
    /// Bytes of device memory in use outside this allocator.
    pub outside_bytes: u64,
    /// The setting `max_split_size`, in bytes.
    pub max_split_size: u64,
    /// Why free memory in one piece would not have helped for long; `None` if that is not known.
    pub dead_end: Option<DeadEnd>,
    /// The memory that serves a tried request, and the bytes of the cache that are released for it.
    pub served: Option<(Served, u64)>,
}

/// Why a program would have failed soon, under any layout of its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadEnd {
    /// Its memory grows by this number of bytes a step.
    Growth(u64),
    /// Its next step needs more than would be left.
    NextStep(NextStep),
    /// The failing line fills memory.
    Filling(Filling),
    /// Its next step fails under every setting that was tried.
    EverySettingFails,
    /// Its memory exceeds the memory within reach.
    ExceedsReach,
    /// Nearly all memory within reach is in use; bytes.
    Full {
        /// The bytes that are not.
        unused: u64,
        /// All bytes within reach.
        reach: u64,
    },
}

/// The memory that would serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Served {
    /// `free-block` or `new-memory`.
    pub kind: &'static str,
    /// Address of the free block; null for new memory.
    pub address: Option<u64>,
    /// Size in bytes of the free block, or of the new device memory.
    pub bytes: u64,
}

/// A kind of memory that could have served a failed request, and why it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseNote {
    /// Free in the request's pool and stream: the size of the largest block, and whether it is large enough.
    Own(u64, bool),
    /// Free in blocks of other streams.
    OtherStream,
    /// Free in private pools, and the request was for the default pool.
    PrivatePools,
    /// Free in other pools, and the request was for a private pool.
    OtherPools,
    /// Free in pools, and the pool of the request is not known.
    UnknownPool,
    /// Freed, and waiting for work on another stream.
    Pending,
    /// In use outside this allocator.
    Outside,
}

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
    fn exceeds_room(self) -> bool {
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
        Self { kind: growth.kind, steps, bytes_per_step, bytes, steps_left, explains: bytes >= missing && is_short }
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
    fn exceeds_room(self) -> bool {
        self.spare_bytes < self.bytes / FILLING_FRACTION
    }

    fn before_failure(device: DeviceStudy<'_, '_>, failed: &FailureFacts, remaining: u64) -> Option<Self> {
        let (stacks, request) = (device.stacks(), &failed.request);
        // The line that the headline names, which may be in a package. Another package line that the user's line calls
        // is not "this line".
        let line = stacks.line_id(request.extended_stack).frame?;
        let (requests, bytes) = device.program().similar_requests_before(failed.entry, |stack| {
            stack == request.extended_stack || stacks.line_id(stack).frame == Some(line)
        });
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
        let known = forecast.filter(|forecast| forecast.sure_requests() > 0 && !forecast.is_single_request());
        let Some(forecast) = known else {
            let remaining = reach.checked_sub(failed.totals.allocated.saturating_add(failed.request.size));
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
    fn is_dead_end(&self) -> bool {
        self.growth.is_some_and(|growth| growth.explains)
            || self.next_step.is_some_and(NextStep::exceeds_room)
            || self.filling.is_some_and(Filling::exceeds_room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_that_holds_ends_a_program() {
        let [fits, exceeds, unknown] =
            [Some(40), Some(39), None].map(|spare_bytes| Some(NextStep { requests: 1, needed_bytes: 40, spare_bytes }));
        let [slow, fast] = [10, 9].map(|spare_bytes| Some(Filling { requests: 8, bytes: 40, spare_bytes }));
        let [other, cause] = [false, true].map(|explains| {
            let (kind, steps, bytes_per_step, bytes) = (GrowthKind::Kept, 4, 10, 40);
            Some(Growth { kind, steps, bytes_per_step, bytes, steps_left: None, explains })
        });
        for (growth, next_step, filling, is_avoidable, expected) in [
            (cause, exceeds, fast, true, DeadEnd::Growth(10)),
            (other, exceeds, fast, true, DeadEnd::NextStep(exceeds.unwrap())),
            (other, fits, fast, true, DeadEnd::Filling(fast.unwrap())),
            (None, unknown, slow, true, DeadEnd::EverySettingFails),
            (None, fits, slow, false, DeadEnd::ExceedsReach),
            (None, None, slow, true, DeadEnd::ExceedsReach),
        ] {
            assert_eq!(dead_end(Outlook { next_step, growth, filling }, is_avoidable), expected);
        }
    }
}
