//! What the program needs at one size, by replay.

use serde::Serialize;

use super::learned::Learned;
use super::size::Size;
use crate::allocator::device::UNBOUNDED;
use crate::allocator::verdict::Verdict;
use crate::replay::ops::Program;
use crate::replay::model::{Hypothesis, peak_if_served, simulate};
use crate::stacks::frames::CodeLocation;
use crate::whatif::{Overrides, hypothesis_with};

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SizeReport {
    /// The size.
    #[serde(flatten)]
    pub size: Size,
    /// Whether a recording at this size was given.
    pub is_recorded: bool,
    /// The most that the program would hold; all of it, where not all requests are served.
    pub peak_allocated_bytes: u64,
    /// The most that would be held from the device, on one that is large enough.
    pub peak_reserved_bytes: u64,
    /// Whether every request is served; `None` where no capacity is known.
    pub fits: Option<bool>,
    /// The first request that is not.
    pub failed: Option<FailedAt>,
}

/// A request that fails.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailedAt {
    /// The index of its entry in the trace of the recording that is nearest in size.
    pub event: usize,
    /// Its bytes, rounded.
    pub requested_bytes: u64,
    /// Why: `capacity` where the program holds more than the device has, else `fragmentation`.
    pub verdict: Verdict,
    /// The line that asks.
    #[serde(flatten)]
    pub location: CodeLocation,
}

/// Whether every request at size `n` is served under `change`, which names a capacity.
pub(super) fn is_served(learned: &Learned<'_, '_, '_>, n: Size, overrides: &Overrides) -> bool {
    let (program, hypothesis) = (learned.program_at(n), on(learned, overrides));
    !is_beyond(learned, &program, &hypothesis) && peak_if_served(&program, &hypothesis).is_some()
}

/// The most that the program holds at once at size `n`: no device with less serves it.
pub(super) fn most_held(learned: &Learned<'_, '_, '_>, n: Size, overrides: &Overrides) -> u64 {
    learned.program_at(n).peak_bytes(&on(learned, overrides).settings)
}

/// Size `n` under `change`.
pub(super) fn predicted(
    learned: &Learned<'_, '_, '_>,
    n: Size,
    is_recorded: bool,
    overrides: &Overrides,
) -> SizeReport {
    let program = learned.program_at(n);
    let hypothesis = on(learned, overrides);
    let failed = overrides.capacity.map(|_| first_failure(learned, &program, &hypothesis));
    let unbounded = Hypothesis {
        limit: None,
        ..on(learned, &Overrides { capacity: Some(UNBOUNDED), ..overrides.clone() })
    };
    // What was released for want of room is not needed: where all fits, that run counts.
    let counted = if failed == Some(None) { &hypothesis } else { &unbounded };
    let simulation = simulate(&program, counted, None);
    let statistics = simulation.allocator.statistics();
    let peaks = [&statistics.allocated_bytes, &statistics.reserved_bytes].map(|stat| stat.all.peak);
    // Requests beyond what any device has are not served: then what is held at once is all that can be told.
    let is_served = failed == Some(None) || simulation.ooms.is_empty();
    let held = if is_served { 0 } else { program.peak_bytes(&unbounded.settings) };
    let [peak_allocated_bytes, peak_reserved_bytes] = peaks.map(|peak| peak.max(held));
    SizeReport {
        size: n,
        is_recorded,
        peak_allocated_bytes,
        peak_reserved_bytes,
        fits: failed.as_ref().map(Option::is_none),
        failed: failed.flatten(),
    }
}

fn on(learned: &Learned<'_, '_, '_>, overrides: &Overrides) -> Hypothesis {
    hypothesis_with(learned.base.device, overrides)
}

/// Whether what was held before the recording, and stays, is more than the device has.
fn is_beyond(
    learned: &Learned<'_, '_, '_>,
    program: &Program<'_>,
    hypothesis: &Hypothesis,
) -> bool {
    let stays =
        if program.initial_blocks.is_empty() { 0 } else { learned.base.device.reserved_before() };
    hypothesis.capacity.is_some_and(|capacity| stays > capacity)
}

fn first_failure(
    learned: &Learned<'_, '_, '_>,
    program: &Program<'_>,
    hypothesis: &Hypothesis,
) -> Option<FailedAt> {
    let (event, requested_bytes) = if is_beyond(learned, program, hypothesis) {
        (0, learned.base.device.reserved_before())
    } else {
        simulate(program, hypothesis, None).ooms.first().copied()?
    };
    let beyond = hypothesis
        .capacity
        .and_then(|capacity| program.first_request_over(capacity, &hypothesis.settings));
    let is_full =
        is_beyond(learned, program, hypothesis) || beyond.is_some_and(|(first, _)| first <= event);
    let stacks = learned.base.device.stacks();
    let asking = learned.base.requests.iter().find(|request| request.at == event);
    let location =
        asking.map_or_else(Default::default, |request| stacks.code_location(stacks.line_id(request.stack)));
    let verdict = if is_full { Verdict::Capacity } else { Verdict::Fragmentation };
    Some(FailedAt { event, requested_bytes, verdict, location })
}
