//! Warnings about the recordings of a fit and about its answer.

use super::device::FitDevice;
use super::device_recordings::DeviceRecordings;
use super::input::SizedRecording;
use super::leave_one_out::{WARN_ERROR_RATIO, WARN_UNMATCHED_RATIO};
use crate::base::units::{count, counted, percent};
use crate::base::warning::{Code, Warnings};
use crate::study::LostHistory;

/// Warns about the recordings. Returns whether the warnings make every figure an estimate: a recording that starts late
/// does not, because its figures may still be exact.
pub(super) fn warn_about_recordings(family: &DeviceRecordings<'_, '_>, warnings: &mut Warnings) -> bool {
    let mut has_warnings = false;
    let mut warn = |code, message: String| {
        has_warnings |= code != Code::Truncated;
        warnings.add(code, message);
    };
    let identity = |recording: &SizedRecording<'_, '_>| (recording.size, recording.device.id());
    for recording in &family.recordings {
        let (size, id) = identity(recording);
        if recording.ends_in_failure() {
            warn(
                Code::EndsInFailure,
                format!(
                    "device {id}: the recording at {size} ends with a failed request: later requests are not recorded"
                ),
            );
        }
        if !recording.device.inferred().verification.is_exact() {
            warn(
                Code::ModelParted,
                format!(
                    "device {id}: the model does not reproduce the recording at {size}: every \
                     figure is an estimate"
                ),
            );
        }
        let reserved_before = recording.device.reserved_before();
        if reserved_before > 0 || matches!(recording.device.lost_history(), Some(LostHistory::RingOfOne)) {
            warn(
                Code::Truncated,
                format!(
                    "device {id}: the recording at {size} starts late: only the blocks still live at its start are \
                     known, not the memory freed before"
                ),
            );
        }
    }
    let requested_bytes = |recording: &SizedRecording<'_, '_>| {
        recording.requests.iter().fold(0u64, |sum, request| sum.saturating_add(request.bytes))
    };
    let equal = family.recordings.first().and_then(|first| {
        let last =
            family.recordings.iter().skip(1).rfind(|recording| requested_bytes(recording) == requested_bytes(first))?;
        Some((first, last))
    });
    if let Some((first, last)) = equal {
        warn(
            Code::UnlikeRecordings,
            format!(
                "device {}: the recordings at {} and {} request the same number of bytes: did the program run at \
                 these sizes?",
                first.device.id(),
                first.size,
                last.size
            ),
        );
    }
    let settings = |recording: &SizedRecording<'_, '_>| recording.device.inferred().hypothesis.settings.clone();
    if let [first, rest @ ..] = family.recordings.as_slice()
        && rest.iter().any(|recording| settings(recording) != settings(first))
    {
        warn(
            Code::UnlikeRecordings,
            format!(
                "device {}: the recordings have different settings: each size is replayed under those of the nearest \
                 recording",
                first.device.id()
            ),
        );
    }
    has_warnings
}

/// Warns about the answer.
pub(super) fn warn_about_device(device: &FitDevice, warnings: &mut Warnings) {
    let id = device.device;
    if device.paired_ratio < 1.0 - WARN_UNMATCHED_RATIO {
        let line = device.unpaired.first();
        let example = line.map_or_else(String::new, |line| format!(", most of it by {}", line.location.label()));
        let caveat = match device.requests.as_slice() {
            [first, .., last] if last > first => format!(
                ", but there are {} at the largest size and {} at the smallest, so larger sizes may need more than \
                 predicted",
                counted(*last, "request"),
                count(*first)
            ),
            _ => String::new(),
        };
        warnings.add(
            Code::Unpaired,
            format!(
                "device {id}: {} of the memory at the peak was requested in only one recording{example}; it is \
                 assumed to grow like other requests of its size{caveat}",
                percent(1.0 - device.paired_ratio)
            ),
        );
    }
    if device.paired_ratio >= 1.0 - WARN_UNMATCHED_RATIO && device.asked_paired_ratio < 1.0 - WARN_UNMATCHED_RATIO {
        warnings.add(
            Code::Unpaired,
            format!(
                "device {id}: {} of all bytes that the largest recording requests was not requested at the other size: \
                 the code took another path, and may take others at larger sizes; record larger sizes to check",
                percent(1.0 - device.asked_paired_ratio)
            ),
        );
    }
    if device.shrinking_ratio > WARN_UNMATCHED_RATIO {
        warnings.add(
            Code::UnlikeRecordings,
            format!(
                "device {id}: {} of the memory at the peak would shrink at a larger size: the recordings are of \
                 different programs or dtypes",
                percent(device.shrinking_ratio)
            ),
        );
    }
    if device.varying_ratio > WARN_UNMATCHED_RATIO {
        warnings.add(
            Code::VaryingShapes,
            format!(
                "device {id}: {} of the memory at the peak changes its size from step to step, as the data does: every \
                 step is assumed to be as large as the largest recorded one; longer data needs more",
                percent(device.varying_ratio)
            ),
        );
    }
    if device.guessed_ratio > WARN_UNMATCHED_RATIO {
        warnings.add(
            Code::GuessedGrowth,
            format!(
                "device {id}: {} of all requested bytes grows neither in proportion to the size nor to its square, and \
                 too few sizes are recorded to tell how: padding, one more token, or another number than the one \
                 given; record one more size to find out",
                percent(device.guessed_ratio)
            ),
        );
    }
    if let Some((largest, times)) = device.distant_size() {
        warnings.add(
            Code::FarAway,
            format!(
                "device {id}: {largest} is {times} times the largest recorded size: nothing beyond {} is checked, and \
                 other kernels or code paths may take over; record a size nearer to it",
                device.recorded_size()
            ),
        );
    }
    if device.freed_elsewhere_ratio > WARN_ERROR_RATIO {
        warnings.add(
            Code::UnlikeRecordings,
            format!(
                "device {id}: {} of the memory at the peak of one recording is already freed at that point in another: \
                 the programs request the same memory but keep it for different times, as with and without gradients",
                percent(device.freed_elsewhere_ratio)
            ),
        );
    }
    for check in &device.checked {
        let error = check.allocated_error_ratio;
        if check.is_off() {
            warnings.add(
                Code::PredictionOff,
                format!(
                    "device {id}: predicted from the other recordings, the peak at {} is {} too {}",
                    check.size,
                    percent(error.abs()),
                    if error > 0.0 { "high" } else { "low" }
                ),
            );
        }
    }
}
