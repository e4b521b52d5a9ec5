//! The smallest device on which a program's requests are all served.

use super::change::{WhatIf, changed};
use crate::allocator::conf::Settings;
use crate::allocator::device::UNBOUNDED;
use crate::base::units::MIB;
use crate::replay::model::{Hypothesis, enough, fits};
use crate::study::DeviceStudy;

/// The smallest capacity is found to within this, or to a part of itself.
const CAPACITY_STEP: u64 = 2 * MIB;
/// See [`CAPACITY_STEP`].
const CAPACITY_PARTS: u64 = 256;

/// What is taken for granted under `change` on a device of `capacity` bytes.
pub(super) fn on(device: DeviceStudy<'_, '_>, capacity: u64, change: &WhatIf) -> Hypothesis {
    changed(device, &WhatIf { capacity: Some(capacity), ..change.clone() })
}

/// The least that `device` needs under `settings`: what the program held at once, and what was held before
/// the recording began, of which nobody knows whether it could have been less.
fn least(device: DeviceStudy<'_, '_>, settings: &Settings) -> u64 {
    device.program().most_held(settings).max(device.reserved_before())
}

/// The request that fails for sure on a device of `capacity` bytes, whatever a replay does with memory from
/// before the recording: the first that is too much, as its entry's index and bytes.
pub(super) fn too_small_for(
    device: DeviceStudy<'_, '_>,
    capacity: u64,
    change: &WhatIf,
) -> Option<(usize, u64)> {
    let settings = on(device, capacity, change).mildest();
    let program = device.program();
    if least(device, &settings) <= capacity {
        return None;
    }
    let room = if device.reserved_before() > capacity { 0 } else { capacity };
    // Without any request the memory from before is too much by itself.
    program.first_beyond(room, &settings).or(Some((0, 0)))
}

fn whole(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(CAPACITY_STEP).unwrap_or(bytes)
}

/// The smallest device on which no request fails; `known` is the most that was reserved on one, if
/// nothing failed there. A replay on a device that gets more memory each time it runs out tells where to
/// begin. Once a size holds, it is made smaller until it does not, in strides that grow; what is left
/// is halved.
pub(super) fn smallest_capacity(
    device: DeviceStudy<'_, '_>,
    change: &WhatIf,
    known: (u64, Option<u64>),
) -> Option<u64> {
    let fits_on = |capacity| fits(device.program(), &on(device, capacity, change));
    let settings = on(device, UNBOUNDED, change).mildest();
    let fraction = settings.per_process_memory_fraction;
    // How many addresses are reserved, and how much may be, goes by the size of the device; if neither
    // matters, a device that has no more than was reserved sees the same run.
    let is_plain = !settings.expandable_segments && fraction >= 1.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let device_for = |bytes: u64| whole((bytes as f64 / fraction).ceil() as u64).min(UNBOUNDED);
    let high_of = |capacity, peak| if is_plain { device_for(peak) } else { capacity };
    let precision = |bytes: u64| whole(bytes / CAPACITY_PARTS).max(CAPACITY_STEP);

    // Sizes are multiples of the step from here on, so that what is left always has a middle.
    let least = device_for(least(device, &settings));
    let (mut low, mut high) = (least.saturating_sub(CAPACITY_STEP), UNBOUNDED);
    match known {
        (capacity, Some(peak)) => high = high_of(capacity, peak),
        (capacity, None) => low = low.max(capacity / CAPACITY_STEP * CAPACITY_STEP),
    }
    let found = |high: u64| (high < UNBOUNDED).then_some(high.max(least));
    if high.saturating_sub(low) <= precision(high) {
        return found(high);
    }
    let on_least = on(device, least, change);
    let is_limited = on_least.limit.is_some();
    let grown = enough(device.program(), &Hypothesis { limit: None, ..on_least });
    if grown == least && !is_limited && low < least {
        return Some(least);
    }
    let mut guess = device_for(grown).max(low.saturating_add(CAPACITY_STEP));
    let (mut up, mut down) = (precision(low), precision(low));
    while high.saturating_sub(low) > precision(high) {
        let middle = low + (high - low) / 2;
        let is_guess = low < guess && guess < high;
        let next = if is_guess { guess } else { whole(middle.max(high.saturating_sub(down))) };
        if let Some(peak) = fits_on(next) {
            down = if is_guess { precision(next) } else { down.saturating_mul(2) };
            (high, guess) = (high_of(next, peak), UNBOUNDED);
        } else {
            guess = if is_guess { next.saturating_add(up) } else { UNBOUNDED };
            (low, up, down) = (next, up.saturating_mul(2), UNBOUNDED);
        }
    }
    found(high)
}
