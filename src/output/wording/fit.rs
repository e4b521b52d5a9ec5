//! The summary of a fit.

use std::cmp::Reverse;

use super::Summary;
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::Verdict;
use crate::base::units::{count, size};
use crate::whatif::fit::{FitCertainty, FitDevice, FitReport, GrowingLine, Largest, PredictedFailure, Size};

impl FitReport {
    /// The device on which least fits.
    pub(crate) fn limiting_device(&self) -> Option<&FitDevice> {
        let fitting_size = |device: &&FitDevice| {
            let size = device.largest_safe.as_ref().and_then(|largest| largest.size).unwrap_or(u64::MAX);
            let peak = device.sizes.iter().map(|at| at.peak_reserved_bytes).max();
            (size, Reverse(peak))
        };
        self.devices.iter().min_by_key(fitting_size)
    }

    /// Summarizes the device on which least fits.
    pub fn summary(&self) -> Summary {
        let Some(device) = self.limiting_device() else { return Summary::default() }; // a report has a device
        let device_prefix = match *self.devices {
            [_] => String::new(),
            _ => format!("device {}: ", device.device),
        };
        let estimate = if device.is_doubtful() { "an estimate, see the warnings: " } else { "" };
        let (action, copy) = match (&device.best, device.capacity_bytes) {
            (Some(best), _) => {
                let (size, option) = (best.to_size(), &best.settings);
                let action = size.map(|at| {
                    format!("size {at} {} with {option}{}", fits_or_should_fit(best), describe_headroom(best))
                });
                (action, Some(shell_assignment(option, self.settings_string.as_deref())))
            }
            (_, None) => {
                let action = "give --capacity, such as 80GiB, to see the largest size that fits";
                (Some(action.to_owned()), None)
            }
            _ if self.multiple > 1 && device.largest_safe.as_ref().is_some_and(|none| none.size == Some(0)) => {
                (Some("leave out --multiple-of to see what fits".to_owned()), None)
            }
            _ => (None, None),
        };
        Summary {
            answer: format!("{device_prefix}{estimate}{}", describe_answer(device, self.multiple)),
            who: device.growth.first().map(|line| describe_growth(line, device)),
            variable: None,
            action,
            copy,
        }
    }
}

fn describe_answer(device: &FitDevice, multiple: u64) -> String {
    let Some(capacity) = device.capacity_bytes else {
        let largest = device.sizes.last();
        let no_capacity = || "the largest size is unknown without a capacity";
        return largest.map_or_else(
            || no_capacity().to_owned(),
            |at| {
                format!(
                    "at size {} the peak is {} allocated, {} reserved",
                    at.size,
                    size(at.peak_allocated_bytes),
                    size(at.peak_reserved_bytes)
                )
            },
        );
    };
    let Some(largest) = &device.largest_safe else {
        let why = match device.repeated {
            Some(_) => "it repeats its operations so often that a replay would take more than a million",
            None => "a larger size makes more requests, and how many more is unknown",
        };
        return format!("the largest size cannot be predicted: {why}");
    };
    let capacity = size(capacity);
    let with_second = largest.second.map_or_else(String::new, |second| format!(" with x{second}"));
    match largest.size {
        None => format!("every size{with_second} fits on {capacity}: the peak does not grow"),
        Some(0) if multiple > 1 => {
            format!("no multiple of {}{with_second} fits on {capacity}", count(multiple))
        }
        Some(0) if device.best.is_some() => {
            format!("no size{with_second} fits on {capacity} under the recorded settings")
        }
        Some(0) => format!("no size{with_second} fits on {capacity}"),
        Some(first) => {
            let fitting_size = Size { first, second: largest.second };
            let fails = device
                .failing_beyond(fitting_size)
                .map_or_else(String::new, |(n, failed)| format!("; {n} fails{}", failed.label()));
            let larger = device.largest.as_ref().filter(|larger| larger.size != largest.size);
            let larger = larger.and_then(Largest::to_size);
            let larger = larger.map_or_else(String::new, |size| format!("; {size} fits"));
            let distance = describe_distance(fitting_size, device.recorded_size());
            let verb = fits_or_should_fit(largest);
            format!("size {fitting_size}{distance} {verb} on {capacity}{}{fails}{larger}", describe_headroom(largest))
        }
    }
}

/// Describes how far `predicted` is from `recorded`, if at least twice: other kernels or code paths may take over in
/// between.
fn describe_distance(predicted: Size, recorded: Size) -> String {
    match predicted.product().checked_div(recorded.product()) {
        Some(times @ 2..) => format!(", {times} times the largest recorded,"),
        _ => String::new(),
    }
}

fn fits_or_should_fit(largest: &Largest) -> &'static str {
    if largest.certainty <= FitCertainty::Checked || largest.size.is_none() { "fits" } else { "should fit" }
}

/// Describes the headroom: with little of it, a prediction that is slightly too low matters.
fn describe_headroom(largest: &Largest) -> String {
    match largest.unreserved_bytes {
        None => String::new(),
        Some(0) => ", no headroom".to_owned(),
        Some(bytes) => format!(", {} headroom", size(bytes)),
    }
}

/// Describes the line that grows most.
fn describe_growth(line: &GrowingLine, device: &FitDevice) -> String {
    format!(
        "{}: {} at size {}, {} more for each unit",
        line.location.label(),
        size(line.bytes),
        device.growth_size(),
        size(line.bytes_per_unit.unsigned_abs())
    )
}

impl FitCertainty {
    /// For a size in a headline.
    pub(crate) fn phrase(self) -> &'static str {
        if self == Self::Should { "should fit" } else { self.word() }
    }
}

impl PredictedFailure {
    /// Where and why the request fails.
    pub fn label(&self) -> String {
        let why = if self.verdict == Verdict::Fragmentation { ": fragmentation" } else { "" };
        format!("{}{why}", self.location.at_label())
    }
}
