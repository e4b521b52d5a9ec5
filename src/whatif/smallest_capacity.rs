//! The capacity that a program needs: the smallest on which every request is served, and the first request that must fail
//! on less.

use super::overrides::{Overrides, hypothesis_on};
use crate::allocator::conf::Settings;
use crate::allocator::device::{Placement, UNBOUNDED};
use crate::base::units::MIB;
use crate::replay::model::{Hypothesis, peak_if_served, sufficient_capacity};
use crate::study::DeviceStudy;

/// The smallest capacity is found to within this many bytes, or to within 1/[`CAPACITY_PARTS`] of itself if that is
/// more.
const CAPACITY_STEP: u64 = 2 * MIB;
const CAPACITY_PARTS: u64 = 256;

/// A lower bound of the capacity under `settings`: the live bytes at the peak, and the bytes reserved before the
/// recording, because nothing shows whether less would have been enough.
fn minimum_capacity(device: DeviceStudy<'_, '_>, settings: &Settings) -> u64 {
    device.program().peak_bytes(settings).max(device.reserved_before())
}

/// The first request that must fail on a device of `capacity` bytes, wherever a replay places memory from before the
/// recording: its entry index and bytes.
pub(super) fn first_impossible_request(
    device: DeviceStudy<'_, '_>,
    capacity: u64,
    overrides: &Overrides,
) -> Option<(usize, u64)> {
    let settings = hypothesis_on(device, capacity, overrides).lenient_settings();
    let program = device.program();
    if minimum_capacity(device, &settings) <= capacity {
        return None;
    }
    let available = if device.reserved_before() > capacity { 0 } else { capacity };
    // Without any request, the memory from before the recording alone exceeds the device.
    program.first_request_over(available, &settings).or(Some((0, 0)))
}

fn round_up_to_step(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(CAPACITY_STEP).unwrap_or(bytes)
}

/// The smallest capacity on which no request fails, whether the driver places new memory above the old or below.
/// PyTorch chooses between equal blocks by address, so both matter near the limit. A real driver mostly places it below
/// (driver 580 on an H200: tests/gpu); the simulated device of all other replays, above. `known` is a capacity that was
/// already replayed, with the peak reserved there if no request failed.
///
/// The first guess comes from a replay on a device that grows whenever it runs out of memory. From there the search
/// goes up or down in growing strides until it has a lower and an upper bound, and then bisects.
pub(super) fn smallest_capacity(
    device: DeviceStudy<'_, '_>,
    overrides: &Overrides,
    known: (u64, Option<u64>),
) -> Option<u64> {
    let search =
        CapacitySearch { device, overrides, settings: hypothesis_on(device, UNBOUNDED, overrides).lenient_settings() };
    // From here on all sizes are multiples of the step, so that every remaining interval has a middle.
    let minimum = search.device_for(minimum_capacity(device, &search.settings));
    let (mut low, mut high) = (minimum.saturating_sub(CAPACITY_STEP), UNBOUNDED);
    let (capacity, peak) = known;
    match peak.and_then(|peak| Some(peak.max(search.peak_on(capacity, Placement::Highest)?))) {
        Some(peak) => high = search.upper_bound(capacity, peak),
        None => low = low.max(capacity / CAPACITY_STEP * CAPACITY_STEP),
    }
    if high.saturating_sub(low) > precision(high) {
        high = search.find_between(low, high, minimum);
    }
    (high < UNBOUNDED).then_some(high.max(minimum))
}

/// Replays of one device on several capacities.
struct CapacitySearch<'r, 's, 'a> {
    device: DeviceStudy<'s, 'a>,
    overrides: &'r Overrides,
    settings: Settings,
}

impl CapacitySearch<'_, '_, '_> {
    fn peak_on(&self, capacity: u64, placement: Placement) -> Option<u64> {
        peak_if_served(self.device.program(), &hypothesis_on(self.device, capacity, self.overrides), placement)
    }

    /// The device on which the program may use `bytes`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    fn device_for(&self, bytes: u64) -> u64 {
        let bytes = (bytes as f64 / self.settings.per_process_memory_fraction).ceil() as u64;
        round_up_to_step(bytes).min(UNBOUNDED)
    }

    /// A capacity that suffices if every request was served on `capacity`. The size of the device decides how many
    /// addresses an expandable segment reserves and how much memory a fraction allows. If the run depends on neither, it
    /// is the same on a device of exactly its `peak`.
    fn upper_bound(&self, capacity: u64, peak: u64) -> u64 {
        let is_size_independent =
            !self.settings.expandable_segments && self.settings.per_process_memory_fraction >= 1.0;
        if is_size_independent { self.device_for(peak) } else { capacity }
    }

    /// The smallest capacity above `low`, which fails, and up to `high`; at least `minimum`.
    fn find_between(&self, mut low: u64, mut high: u64, minimum: u64) -> u64 {
        let on_minimum = hypothesis_on(self.device, minimum, self.overrides);
        let is_limited = on_minimum.limit.is_some();
        let estimate = sufficient_capacity(self.device.program(), &Hypothesis { limit: None, ..on_minimum });
        let may_be_minimum = estimate == minimum && !is_limited && low < minimum;
        if may_be_minimum && self.peak_on(minimum, Placement::Highest).is_some() {
            return minimum;
        }
        let mut guess = self.device_for(estimate).max(low.saturating_add(CAPACITY_STEP));
        let (mut up, mut down) = (precision(low), precision(low));
        while high.saturating_sub(low) > precision(high) {
            let middle = low + (high - low) / 2;
            let is_guess = low < guess && guess < high;
            let next = if is_guess { guess } else { round_up_to_step(middle.max(high.saturating_sub(down))) };
            let lowest = self.peak_on(next, Placement::Lowest);
            let both = lowest.and_then(|peak| Some(peak.max(self.peak_on(next, Placement::Highest)?)));
            if let Some(peak) = both {
                down = if is_guess { precision(next) } else { down.saturating_mul(2) };
                (high, guess) = (self.upper_bound(next, peak), UNBOUNDED);
            } else {
                guess = if is_guess { next.saturating_add(up) } else { UNBOUNDED };
                (low, up, down) = (next, up.saturating_mul(2), UNBOUNDED);
            }
        }
        high
    }
}

/// The interval at which the search for a capacity of about `bytes` ends.
fn precision(bytes: u64) -> u64 {
    round_up_to_step(bytes / CAPACITY_PARTS).max(CAPACITY_STEP)
}
