//! Warnings about the recordings of a fit and about its answer.

use super::device::FitDevice;
use super::device_recordings::DeviceRecordings;
use super::input::SizedRecording;
use super::prediction::{WARN_ERROR_RATIO, WARN_UNMATCHED_RATIO};
use crate::base::units::{count, percent};
use crate::base::warning::{Code, Warnings};
use crate::study::LostHistory;

/// Warns about the recordings. Returns whether there is a warning: it makes every figure an estimate.
pub(super) fn warn_about_recordings(family: &DeviceRecordings<'_, '_>, warnings: &mut Warnings) -> bool {
    let mut has_warnings = false;
    let mut warn = |code, message: String| {
        has_warnings = true;
        warnings.add(code, message);
    };
    let identity = |recording: &SizedRecording<'_, '_>| (count(recording.size), recording.device.id());
    for recording in &family.recordings {
        let (size, id) = identity(recording);
        if recording.ends_in_failure() {
            warn(
                Code::EndsInFailure,
                format!("GPU {id}: the recording at {size} ends with a failed request: later ones are missing"),
            );
        }
        if !recording.device.inferred().verification.is_exact() {
            warn(
                Code::ModelParted,
                format!("GPU {id}: the model does not reproduce the recording at {size}: all is an estimate"),
            );
        }
        let reserved_before = recording.device.reserved_before();
        if reserved_before > 0 || matches!(recording.device.lost_history(), Some(LostHistory::RingOfOne)) {
            warn(
                Code::StartsLater,
                format!(
                    "GPU {id}: the recording at {size} starts late, and an earlier peak is unknown: record from the start"
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
                "GPU {}: the recordings at {} and {} request equal bytes: did the program run at these sizes?",
                first.device.id(),
                count(first.size),
                count(last.size)
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
                "GPU {}: the recordings have different settings: a size is replayed under the nearest one's",
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
        let grows = device.requests.first() < device.requests.last();
        let caveat = if grows { "; larger sizes may need more" } else { "" };
        warnings.add(
            Code::Unpaired,
            format!(
                "GPU {id}: {} of the memory at the peak is in only one recording{example}{caveat}",
                percent(1.0 - device.paired_ratio)
            ),
        );
    }
    if device.paired_ratio >= 1.0 - WARN_UNMATCHED_RATIO && device.asked_paired_ratio < 1.0 - WARN_UNMATCHED_RATIO {
        warnings.add(
            Code::Unpaired,
            format!(
                "GPU {id}: {} of requested bytes are in one recording only: the code took another path there",
                percent(1.0 - device.asked_paired_ratio)
            ),
        );
    }
    if device.shrinking_ratio > WARN_UNMATCHED_RATIO {
        warnings.add(
            Code::UnlikeRecordings,
            format!(
                "GPU {id}: {} of the memory at the peak shrinks with the size: different programs or dtypes?",
                percent(device.shrinking_ratio)
            ),
        );
    }
    if device.varies() {
        warnings.add(
            Code::VaryingShapes,
            format!(
                "GPU {id}: {} of the memory at the peak varies between steps: longer data needs more",
                percent(device.varying_ratio)
            ),
        );
    }
    if device.guessed_ratio > WARN_UNMATCHED_RATIO {
        warnings.add(
            Code::GuessedGrowth,
            format!(
                "GPU {id}: {} of requested bytes grow along an unknown curve: record one more size",
                percent(device.guessed_ratio)
            ),
        );
    }
    if let Some((largest, times)) = device.distant_size() {
        let trusted_sizes = device.trusted_sizes();
        let evidence = if trusted_sizes[0] == device.largest_recorded { "recorded" } else { "checked" };
        let largest = count(largest);
        let [checked, trusted] = trusted_sizes.map(count);
        let is_likely = !device.has_doubtful_recordings();
        let trust = if is_likely { format!(", likely up to {trusted}") } else { String::new() };
        warnings.add(
            Code::FarAway,
            format!(
                "GPU {id}: {largest} is {times} times the largest recorded size: {evidence} up to {checked}{trust}"
            ),
        );
    }
    if device.freed_elsewhere_ratio > WARN_ERROR_RATIO {
        warnings.add(
            Code::UnlikeRecordings,
            format!(
                "GPU {id}: {} of the memory at a peak is freed earlier in another recording: gradients off?",
                percent(device.freed_elsewhere_ratio)
            ),
        );
    }
    let off = || device.checked.iter().filter(|check| check.is_off());
    if let Some(worst) = off().max_by(|a, b| a.allocated_error_ratio.abs().total_cmp(&b.allocated_error_ratio.abs())) {
        let error = worst.allocated_error_ratio;
        let others = match off().count() {
            1 => String::new(),
            count => format!(", {count} of {} off", device.checked.len()),
        };
        warnings.add(
            Code::PredictionOff,
            format!(
                "GPU {id}: predicted from the other recordings, the peak at {} is {} too {}{others}",
                count(worst.size),
                percent(error.abs()),
                if error > 0.0 { "high" } else { "low" }
            ),
        );
    }
}
