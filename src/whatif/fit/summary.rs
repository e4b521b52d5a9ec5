//! What the answer comes to.

use std::cmp::Reverse;

use super::device::FitDevice;
use super::growth::GrowingLine;
use super::prediction::FailedAt;
use super::recording::Sized;
use super::size::Size;
use super::slice::Largest;
use crate::allocator::conf::shell_assignment;
use crate::allocator::verdict::Verdict;
use crate::base::summary::Summary;
use crate::base::units::{count, size};

/// How large it may be, by the device on which least fits. `largest` is the recording of the largest size: settings are
/// told beside its own.
pub(super) fn summary(
    devices: &[FitDevice],
    largest: Option<&Sized<'_, '_>>,
    multiple: u64,
) -> Summary {
    let fits = |device: &&FitDevice| {
        let size = device.largest.as_ref().and_then(|largest| largest.size).unwrap_or(u64::MAX);
        let peak = device.sizes.iter().map(|at| at.peak_reserved_bytes).max();
        (size, Reverse(peak))
    };
    let Some(device) = devices.iter().min_by_key(fits) else { return Summary::default() };
    let of = match devices {
        [_] => String::new(),
        _ => format!("device {}: ", device.device),
    };
    let estimate = if device.is_doubtful() { "an estimate, see the warnings: " } else { "" };
    let settings = largest.and_then(|one| one.study.snapshot().settings.as_ref());
    let settings = settings.map(|settings| settings.string.as_str());
    let (action, copy) = match (&device.best, device.capacity_bytes) {
        (Some(better), _) => {
            let (fits, option) = (better.at(), &better.settings);
            let action =
                fits.map(|fits| format!("size {fits} fits with {option}{}", to_spare(better)));
            (action, Some(shell_assignment(option, settings)))
        }
        (_, None) => {
            let action = "give --capacity, such as 80GiB, to learn the largest size that fits";
            (Some(action.to_owned()), None)
        }
        _ if multiple > 1 && device.largest.as_ref().is_some_and(|none| none.size == Some(0)) => {
            (Some("leave out --multiple-of to learn what fits".to_owned()), None)
        }
        _ => (None, None),
    };
    Summary {
        answer: format!("{of}{estimate}{}", answer(device, multiple)),
        who: device.growth.first().map(|line| grows(line, device)),
        action,
        copy,
    }
}

fn answer(device: &FitDevice, multiple: u64) -> String {
    let Some(capacity) = device.capacity_bytes else {
        let largest = device.sizes.last();
        let unasked = || "without a capacity no largest size is told";
        return largest.map_or_else(
            || unasked().to_owned(),
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
    let Some(largest) = &device.largest else {
        return "how large it may be cannot be told: a larger size makes more requests, and how many \
                more is not known"
            .to_owned();
    };
    let on = size(capacity);
    let of = largest.second.map_or_else(String::new, |second| format!(" with x{second}"));
    match largest.size {
        None => format!("every size{of} fits on {on}: the peak does not grow"),
        Some(0) if multiple > 1 => format!("no multiple of {}{of} fits on {on}", count(multiple)),
        Some(0) if device.best.is_some() => {
            format!("no size{of} fits on {on} under the settings recorded")
        }
        Some(0) => format!("no size{of} fits on {on}"),
        Some(first) => {
            let fits = Size { first, second: largest.second };
            let fails = device.failing_beyond(fits).map_or_else(String::new, |(n, failed)| {
                format!("; {n} fails{}", failed.in_short())
            });
            let away = far(fits, device.recorded());
            let will = will_fit(&away, device);
            format!("size {fits}{away} {will} on {on}{}{fails}", to_spare(largest))
        }
    }
}

/// How far from what was recorded: other kernels, other paths of the code may begin in between.
fn far(fits: Size, recorded: Size) -> String {
    match fits.extent().checked_div(recorded.extent()) {
        Some(times @ 2..) => format!(", {times} times the largest recorded,"),
        _ => String::new(),
    }
}

/// A prediction that is far and that nothing checks is no promise.
fn will_fit(away: &str, device: &FitDevice) -> &'static str {
    if away.is_empty() || !device.checked.is_empty() { "fits" } else { "should fit" }
}

/// What is left of the device: the less, the more a prediction that is a little low matters.
fn to_spare(largest: &Largest) -> String {
    match largest.unreserved_bytes {
        None => String::new(),
        Some(0) => ", nothing to spare".to_owned(),
        Some(bytes) => format!(", {} to spare", size(bytes)),
    }
}

/// Who grows most.
fn grows(line: &GrowingLine, device: &FitDevice) -> String {
    format!(
        "{}: {} at size {}, {} more for each unit",
        line.location.label(),
        size(line.bytes),
        device.growth_size(),
        size(line.bytes_per_unit.unsigned_abs())
    )
}

impl FailedAt {
    /// Where, and why.
    pub fn in_short(&self) -> String {
        let why = match self.verdict {
            Verdict::Fragmentation => ": fragmentation",
            _ => "",
        };
        match &self.location.frame {
            Some(_) => format!(" at {}{why}", self.location.label()),
            None => why.to_owned(),
        }
    }
}
