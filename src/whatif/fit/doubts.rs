//! What makes an answer less sure.

use super::checked::{OFF, TOLD};
use super::device::{Family, FitDevice};
use super::recording::Recording;
use crate::base::units::{count, counted, percent};
use crate::base::warning::{Code, Warnings};
use crate::study::LostHistory;

/// What about the recordings makes the answer less sure; whether anything does but that they begin late, in which the
/// figures may still be exact.
pub(super) fn remark(family: &Family<'_, '_>, warnings: &mut Warnings) -> bool {
    let mut is_remarked = false;
    let mut remark = |code, message: String| {
        is_remarked |= code != Code::Truncated;
        warnings.add(code, message);
    };
    let of = |one: &Recording<'_, '_>| (one.size, one.device.id());
    for one in &family.recordings {
        let (size, id) = of(one);
        if one.ends_in_failure() {
            remark(
                Code::EndsInFailure,
                format!(
                    "device {id}: the recording at {size} ends with a failed request: what the \
                     program would have asked for next is not in it"
                ),
            );
        }
        if !one.device.inferred().verification.is_exact() {
            remark(
                Code::ModelParted,
                format!(
                    "device {id}: the model does not reproduce the recording at {size}: every \
                     figure is an estimate"
                ),
            );
        }
        let held = one.device.reserved_before();
        if held > 0 || matches!(one.device.lost_history(), Some(LostHistory::RingOfOne)) {
            remark(
                Code::Truncated,
                format!(
                    "device {id}: the recording at {size} begins late: what was held before it is \
                     known by its blocks alone, and memory that was freed before is not known"
                ),
            );
        }
    }
    let asked = |one: &Recording<'_, '_>| {
        one.requests.iter().fold(0u64, |sum, request| sum.saturating_add(request.bytes))
    };
    let alike = family.recordings.first().and_then(|first| {
        let last = family.recordings.iter().skip(1).rfind(|one| asked(one) == asked(first))?;
        Some((first, last))
    });
    if let Some((first, last)) = alike {
        remark(
            Code::UnlikeRecordings,
            format!(
                "device {}: the recordings at {} and {} ask for as many bytes: was the program given \
                 these sizes?",
                first.device.id(),
                first.size,
                last.size
            ),
        );
    }
    let settings = |one: &Recording<'_, '_>| one.device.inferred().hypothesis.settings.clone();
    if let [first, rest @ ..] = family.recordings.as_slice()
        && rest.iter().any(|one| settings(one) != settings(first))
    {
        remark(
            Code::UnlikeRecordings,
            format!(
                "device {}: the recordings were made under different settings: each size is \
                 replayed under those of the nearest",
                first.device.id()
            ),
        );
    }
    is_remarked
}

/// What about the answer makes it less sure.
pub(super) fn doubt(device: &FitDevice, warnings: &mut Warnings) {
    let id = device.device;
    if device.paired_ratio < 1.0 - TOLD {
        let line = device.unpaired.first();
        let example = line.map_or_else(String::new, |line| {
            format!(", most of it by {}", line.location.label())
        });
        let more = match device.requests.as_slice() {
            [first, .., last] if last > first => format!(
                ", though there are {} at the largest size for {} at the smallest: memory at \
                 larger sizes may be more than is said",
                counted(*last, "request"),
                count(*first)
            ),
            _ => String::new(),
        };
        warnings.add(
            Code::Unpaired,
            format!(
                "device {id}: {} of the memory at the peak was asked for in one recording \
                 only{example}; it is taken to grow as \
                 other memory of its size does{more}",
                percent(1.0 - device.paired_ratio)
            ),
        );
    }
    if device.paired_ratio >= 1.0 - TOLD && device.asked_paired_ratio < 1.0 - TOLD {
        warnings.add(
            Code::Unpaired,
            format!(
                "device {id}: {} of what the largest recording asks for in all was not asked for at the \
                 other size: another path of the code; at larger sizes there may be others. Recordings \
                 at larger sizes tell more",
                percent(1.0 - device.asked_paired_ratio)
            ),
        );
    }
    if device.shrinking_ratio > TOLD {
        warnings.add(
            Code::UnlikeRecordings,
            format!(
                "device {id}: {} of the memory at the peak would be less at a larger size: the \
                 recordings are of different programs, or of different types of numbers",
                percent(device.shrinking_ratio)
            ),
        );
    }
    if device.varying_ratio > TOLD {
        warnings.add(
            Code::VaryingShapes,
            format!(
                "device {id}: {} of the memory at the peak is asked for in other sizes at each step, \
                 as the data are: every step is taken to be as large as the largest recorded; longer \
                 data need more",
                percent(device.varying_ratio)
            ),
        );
    }
    if device.guessed_ratio > TOLD {
        warnings.add(
            Code::GuessedGrowth,
            format!(
                "device {id}: {} of what is asked for in all grows neither in proportion to the size nor as \
                 its square, and too few sizes tell how: padding, one token more, or another number \
                 than the one given. A recording at one more size tells",
                percent(device.guessed_ratio)
            ),
        );
    }
    if let Some((largest, times)) = device.far_away() {
        warnings.add(
            Code::FarAway,
            format!(
                "device {id}: {largest} is {times} times the largest size recorded: other kernels and other paths \
                 of the code may begin in between; a recording nearer to it tells more"
            ),
        );
    }
    if device.freed_elsewhere_ratio > OFF {
        warnings.add(
            Code::UnlikeRecordings,
            format!(
                "device {id}: {} of the memory at the peak of one recording had been freed by then \
                 in another: they ask for the same and do not keep the same, as with and without \
                 gradients",
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
