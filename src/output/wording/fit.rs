//! The summary of a fit.

use std::cmp::Reverse;

use super::Summary;
use crate::allocator::conf::shell_assignment;
use crate::base::units::{count, size};
use crate::whatif::Sureness;
use crate::whatif::fit::{FitDevice, FitRefusal, FitReport, GrowingLine, Largest};

impl FitRefusal {
    /// Why nothing is predicted.
    pub fn summary(&self) -> Summary {
        Summary::from_answer(&*self.sentence)
    }
}

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
        let (action, copy) = match (&device.best, device.capacity_bytes, nearer_size(device)) {
            (_, None, _) => {
                let action = "give --capacity, such as 80GiB, to see the largest size that fits";
                (Some(action.to_owned()), None)
            }
            _ if device.varies() => {
                (Some("pad the data of every step to one length to know the largest size".to_owned()), None)
            }
            (_, _, Some(nearer)) => {
                (Some(format!("record at {} too: the answer is far from the recordings", count(nearer))), None)
            }
            (Some(best), ..) => {
                let (size, option) = (best.size, &best.settings);
                let action = size.map(|at| {
                    format!("size {} {} with {option}{}", count(at), describe_fit(best), describe_headroom(best))
                });
                (action, Some(shell_assignment(option, self.settings_string.as_deref())))
            }
            _ if self.multiple > 1 && device.largest_safe.as_ref().is_some_and(|none| none.size == Some(0)) => {
                (Some("leave out --multiple-of to see what fits".to_owned()), None)
            }
            _ => (None, None),
        };
        Summary {
            answer: describe_answer(device, self),
            who: device.growth.first().map(|line| describe_growth(line, device)),
            variable: None,
            action,
            copy,
        }
    }
}

/// The size to record if the answer is an estimate because the recordings are far from it: half of it.
fn nearer_size(device: &FitDevice) -> Option<u64> {
    let answer = device.largest_safe.as_ref().filter(|answer| answer.certainty == Sureness::Estimate)?;
    answer.size.map(|size| size / 2).filter(|nearer| *nearer > device.largest_recorded)
}

/// `largest size on 80 GiB: 95 (checked)`
fn describe_answer(device: &FitDevice, report: &FitReport) -> String {
    let Some(capacity) = device.capacity_bytes else {
        return device.sizes.last().map_or_else(
            || "the largest size is unknown without a capacity".to_owned(),
            |at| {
                let [allocated, reserved] = [at.peak_allocated_bytes, at.peak_reserved_bytes].map(size);
                let estimate = if device.is_doubtful() { " (estimate)" } else { "" };
                let at = count(at.size);
                format!("at size {at} the peak is {allocated} allocated, {reserved} reserved{estimate}")
            },
        );
    };
    let Some(largest) = &device.largest_safe else {
        return "the largest size cannot be predicted: a larger size makes more requests, and how many more is unknown"
            .to_owned();
    };
    let of = if report.devices.len() > 1 { format!(" of GPU {}", device.device) } else { String::new() };
    let on = format!("on {}{of}", size(capacity));
    match largest.size {
        None => {
            let estimate = if largest.certainty == Sureness::Estimate { " (estimate)" } else { "" };
            format!("every size fits {on}{estimate}: the peak does not grow")
        }
        Some(0) => {
            let what =
                if report.multiple > 1 { format!("multiple of {}", count(report.multiple)) } else { "size".into() };
            let settings = if device.best.is_some() { " under the recorded settings" } else { "" };
            format!("no {what} fits {on}{settings}")
        }
        Some(at) => {
            let should = largest.certainty == Sureness::Should;
            let by_data = device.by_data.map_or_else(String::new, describe_range_by_data);
            let word = if should { "should fit" } else { largest.certainty.word() };
            format!("largest size {on}: {} ({word}){by_data}", count(at))
        }
    }
}

/// The answers of the recordings, if data decides about shapes.
pub(super) fn describe_range_by_data([minimum, maximum]: [u64; 2]) -> String {
    format!("; its data decide about shapes: with others {} to {}", count(minimum), count(maximum))
}

fn describe_fit(largest: &Largest) -> &'static str {
    match largest.certainty {
        Sureness::Confirmed | Sureness::Checked => "fits",
        Sureness::Should => "should fit",
        Sureness::Estimate => "may fit",
    }
}

/// Describes the headroom: with little of it, a prediction that is slightly too low matters.
fn describe_headroom(largest: &Largest) -> String {
    match largest.headroom() {
        None => String::new(),
        Some(0) => ", no headroom".to_owned(),
        Some(bytes) => format!(", {} headroom", size(bytes)),
    }
}

/// Describes the line that grows most.
fn describe_growth(line: &GrowingLine, device: &FitDevice) -> String {
    let (place, at) = (line.location.label(), count(device.growth_at));
    let [bytes, more] = [line.bytes, line.bytes_per_unit.unsigned_abs()].map(size);
    format!("{place}: {bytes} at size {at}, {more} more for each unit")
}
