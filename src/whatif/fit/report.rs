//! The JSON of `oomscope fit`, what it is made from, and its warnings about the recordings and the answer.

use serde::Serialize;

use super::device::FitDevice;
use super::fitted_program::DeviceRecordings;
use super::input::{FitInput, FitOptions, SizedRecording};
use super::prediction::{MIN_PAIRED_RATIO, WARN_ERROR_RATIO, WARN_UNMATCHED_RATIO};
use crate::base::units::{count, percent};
use crate::base::warning::{Code, Warning, Warnings, words};
use crate::study::{DeviceStudy, LostHistory};
use crate::whatif::replay::describe_releases;

/// The JSON of `oomscope fit`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct FitReport {
    /// The recordings, in order of size.
    pub recordings: Vec<RecordingReport>,
    /// The PyTorch releases whose rules the replay followed.
    pub torch_version: String,
    /// Every device with a trace in all recordings.
    pub devices: Vec<FitDevice>,
    /// The recorded settings string of the largest size.
    #[serde(skip)]
    pub settings_string: Option<String>,
    /// Only multiples of this size count as fitting.
    #[serde(skip)]
    pub multiple: u64,
    /// Problems of the recordings, and reasons why the answer is an estimate.
    pub warnings: Vec<Warning>,
}

/// One of the recordings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordingReport {
    /// The size at which the program ran.
    pub size: u64,
    /// Path of the snapshot, as given on the command line.
    pub path: String,
}

impl RecordingReport {
    pub(in crate::whatif) fn from_input(input: &FitInput<'_, '_>) -> Self {
        Self { size: input.size, path: input.path.to_owned() }
    }
}

/// The PyTorch releases whose rules a replay of the last of `recordings` follows.
pub(in crate::whatif) fn torch_version(recordings: &[FitInput<'_, '_>]) -> String {
    recordings.last().map_or_else(String::new, |largest| describe_releases(&largest.study.inference().releases))
}

/// Predicts what the recorded program needs at other sizes.
///
/// # Errors
/// Too few recordings, no device in common, different programs, or an invalid option.
pub fn fit(recordings: &[FitInput<'_, '_>], options: &FitOptions<'_>) -> Result<FitReport, FitRefusal> {
    let mut recordings = recordings.to_vec();
    recordings.sort_by_key(|input| input.size);
    let first_input = check_inputs(&recordings)?;
    let mut warnings = Warnings::default();
    let mut devices = Vec::new();
    for id in first_input.study.devices().map(DeviceStudy::id) {
        let all_recordings = DeviceRecordings::from_inputs(&recordings, id);
        if all_recordings.recordings.len() < recordings.len() {
            continue;
        }
        let found = warnings_about_recordings(&all_recordings);
        let device = all_recordings.fit(options, !found.is_empty());
        add_warnings(&mut warnings, id, found);
        let device = device.map_err(|sentence| FitRefusal::new(RefusalCode::InvalidOption, sentence))?;
        let paired_ratio = device.paired_ratio.min(device.stacks_paired_ratio);
        if paired_ratio < MIN_PAIRED_RATIO {
            let sentence = too_little_paired(&device, paired_ratio);
            let refusal = FitRefusal::new(RefusalCode::DifferentPrograms, sentence);
            return Err(FitRefusal { paired_ratio: Some(paired_ratio), ..refusal });
        }
        add_warnings(&mut warnings, id, warnings_about_device(&device));
        devices.push(device);
    }
    if devices.is_empty() {
        let sentence = "no device has a trace in all of these recordings: record each with the same devices";
        return Err(FitRefusal::new(RefusalCode::NoCommonDevice, sentence));
    }
    let settings = recordings.last().and_then(|input| input.study.snapshot().settings_string());
    Ok(FitReport {
        recordings: recordings.iter().map(RecordingReport::from_input).collect(),
        torch_version: torch_version(&recordings),
        devices,
        settings_string: settings.map(str::to_owned),
        multiple: options.multiple,
        warnings: warnings.to_vec(),
    })
}

/// Checks that the recordings have enough sizes, and returns the first.
fn check_inputs<'r, 's, 'a>(recordings: &'r [FitInput<'s, 'a>]) -> Result<&'r FitInput<'s, 'a>, FitRefusal> {
    if recordings.windows(2).any(|two| two[0].size == two[1].size) {
        let sentence = "two recordings have the same size: give one for each size";
        return Err(FitRefusal::new(RefusalCode::SameSize, sentence));
    }
    let too_few = "one recording does not show how a program grows: give two of different sizes, \
                   such as 4=small.pickle 8=larger.pickle";
    let [first, _, ..] = recordings else { return Err(FitRefusal::new(RefusalCode::TooFewSizes, too_few)) };
    Ok(first)
}

fn too_little_paired(device: &FitDevice, paired_ratio: f64) -> String {
    let line = device.unpaired.first();
    let example = line.map_or_else(String::new, |line| format!(", and most of the rest by {}", line.location.label()));
    format!(
        "GPU {}: these recordings cannot predict other sizes: only {} of the memory at the peak is requested by the \
         same stacks in both{example}; are they of different programs, or does the code take another path at another \
         size?",
        device.device,
        percent(paired_ratio)
    )
}

words! {
    /// Why recordings predict no other size.
    pub enum RefusalCode {
        /// Most of the memory at the peak was requested by other stacks: another program, or another path of the code
        DifferentPrograms = "different-programs",
        /// An option does not apply to these recordings
        InvalidOption = "invalid-option",
        /// No device has a trace in all recordings
        NoCommonDevice = "no-common-device",
        /// Two recordings have the same size
        SameSize = "same-size",
        /// The recordings do not show how the program grows
        TooFewSizes = "too-few-sizes",
    }
}

/// The JSON of `oomscope fit` if it predicts nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct FitRefusal {
    /// The reason.
    pub code: RefusalCode,
    /// The share of the memory at the peak that was requested by the same stacks in all recordings; null if they were
    /// not compared.
    pub paired_ratio: Option<f64>,
    /// The reason as a sentence.
    #[serde(skip)]
    pub sentence: String,
}

impl FitRefusal {
    pub(super) fn new(code: RefusalCode, sentence: impl Into<String>) -> Self {
        Self { code, paired_ratio: None, sentence: sentence.into() }
    }
}

fn add_warnings(warnings: &mut Warnings, device: u64, found: Vec<(Code, String)>) {
    for (code, text) in found {
        warnings.add(code, format!("GPU {device}: {text}"));
    }
}

/// Warnings about the recordings. Any makes every figure an estimate.
fn warnings_about_recordings(family: &DeviceRecordings<'_, '_>) -> Vec<(Code, String)> {
    let mut found = Vec::new();
    let [first, rest @ ..] = family.recordings.as_slice() else { return found };
    for recording in &family.recordings {
        let size = count(recording.size);
        if recording.ends_in_failure() {
            let text = format!("the recording at {size} ends with a failed request: later ones are missing");
            found.push((Code::EndsInFailure, text));
        }
        if !recording.device.inferred().verification.is_exact() {
            let text = format!("the model does not reproduce the recording at {size}: all is an estimate");
            found.push((Code::ModelParted, text));
        }
        let reserved_before = recording.device.reserved_before();
        if reserved_before > 0 || matches!(recording.device.lost_history(), Some(LostHistory::RingOfOne)) {
            let text =
                format!("the recording at {size} starts late, and an earlier peak is unknown: record from the start");
            found.push((Code::StartsLater, text));
        }
    }
    if let Some(last) = rest.iter().rfind(|recording| requested_bytes(recording) == requested_bytes(first)) {
        let [first, last] = [first, last].map(|recording| count(recording.size));
        let text =
            format!("the recordings at {first} and {last} request equal bytes: did the program run at these sizes?");
        found.push((Code::UnlikeRecordings, text));
    }
    let settings = &first.device.inferred().hypothesis.settings;
    if rest.iter().any(|recording| recording.device.inferred().hypothesis.settings != *settings) {
        let text = "the recordings have different settings: a size is replayed under the nearest one's";
        found.push((Code::UnlikeRecordings, text.to_owned()));
    }
    found
}

fn requested_bytes(recording: &SizedRecording<'_, '_>) -> u64 {
    recording.requests.iter().fold(0u64, |sum, request| sum.saturating_add(request.bytes))
}

/// A warning about a share of the memory above `limit`.
fn share_warning(share: f64, limit: f64, code: Code, text: &str) -> Option<(Code, String)> {
    (share > limit).then(|| (code, format!("{} {text}", percent(share))))
}

/// Warnings about the answer.
fn warnings_about_device(device: &FitDevice) -> Vec<(Code, String)> {
    let mut found = Vec::new();
    if device.paired_ratio < 1.0 - WARN_UNMATCHED_RATIO {
        let share = percent(1.0 - device.paired_ratio);
        let line = device.unpaired.first();
        let example = line.map_or_else(String::new, |line| format!(", most of it by {}", line.location.label()));
        let grows = device.requests.first() < device.requests.last();
        let caveat = if grows { "; larger sizes may need more" } else { "" };
        let text = format!("{share} of the memory at the peak is in only one recording{example}{caveat}");
        found.push((Code::Unpaired, text));
    } else if device.asked_paired_ratio < 1.0 - WARN_UNMATCHED_RATIO {
        let share = percent(1.0 - device.asked_paired_ratio);
        let text = format!("{share} of requested bytes are in one recording only: the code took another path there");
        found.push((Code::Unpaired, text));
    }
    let text = "of the memory at the peak shrinks with the size: different programs or dtypes?";
    found.extend(share_warning(device.shrinking_ratio, WARN_UNMATCHED_RATIO, Code::UnlikeRecordings, text));
    let text = "of the memory at the peak varies between steps: longer data needs more";
    found.extend(share_warning(device.varying_ratio, WARN_UNMATCHED_RATIO, Code::VaryingShapes, text));
    let text = "of requested bytes grow along an unknown curve: record one more size";
    found.extend(share_warning(device.guessed_ratio, WARN_UNMATCHED_RATIO, Code::GuessedGrowth, text));
    let text = "of the memory at a peak is freed earlier in another recording: gradients off?";
    found.extend(share_warning(device.freed_elsewhere_ratio, WARN_ERROR_RATIO, Code::UnlikeRecordings, text));
    if let Some((largest, times)) = device.distant_size() {
        let trusted_sizes = device.trusted_sizes();
        let evidence = if trusted_sizes[0] == device.largest_recorded { "recorded" } else { "checked" };
        let largest = count(largest);
        let [checked, trusted] = trusted_sizes.map(count);
        let is_likely = !device.has_doubtful_recordings();
        let trust = if is_likely { format!(", likely up to {trusted}") } else { String::new() };
        let text = format!("{largest} is {times} times the largest recorded size: {evidence} up to {checked}{trust}");
        found.push((Code::FarAway, text));
    }
    let off = device.checked.iter().filter(|check| check.is_off());
    let all_off = off.clone().count();
    if let Some(worst) = off.max_by(|a, b| a.allocated_error_ratio.abs().total_cmp(&b.allocated_error_ratio.abs())) {
        let error = worst.allocated_error_ratio;
        let others = if all_off == 1 { String::new() } else { format!(", {all_off} of {} off", device.checked.len()) };
        let (size, share) = (count(worst.size), percent(error.abs()));
        let side = if error > 0.0 { "high" } else { "low" };
        let text = format!("predicted from the other recordings, the peak at {size} is {share} too {side}{others}");
        found.push((Code::PredictionOff, text));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::whatif::fit::prediction::LeaveOneOutCheck;

    /// The warnings about an answer from two like recordings, once `change` has changed it.
    fn warnings_after(change: impl FnOnce(&mut FitDevice)) -> Vec<(Code, String)> {
        let mut device = FitDevice::at_every_limit();
        change(&mut device);
        let found = warnings_about_device(&device);
        assert_eq!(device.is_doubtful(), !found.is_empty());
        found
    }

    fn checked(size: u64, allocated_error_ratio: f64) -> LeaveOneOutCheck {
        LeaveOneOutCheck {
            size,
            recorded_allocated_bytes: 0,
            predicted_allocated_bytes: 0,
            allocated_error_ratio,
            recorded_reserved_bytes: 0,
            predicted_reserved_bytes: 0,
            reserved_error_ratio: 0.0,
        }
    }

    #[test]
    fn only_what_exceeds_a_limit_is_warned_of() {
        assert_eq!(warnings_after(|device| device.stacks_paired_ratio = 0.5), []);
        for (change, code, words) in [
            (
                (|device| device.paired_ratio = 0.5) as fn(&mut FitDevice),
                Code::Unpaired,
                "50% of the memory at the peak is in",
            ),
            (
                |device| (device.paired_ratio, device.requests) = (0.5, vec![9, 10]),
                Code::Unpaired,
                "larger sizes may need more",
            ),
            (
                |device| device.asked_paired_ratio = 0.5,
                Code::Unpaired,
                "50% of requested bytes are in one recording only",
            ),
            (|device| device.shrinking_ratio = 0.5, Code::UnlikeRecordings, "shrinks with the size"),
            (|device| device.varying_ratio = 0.5, Code::VaryingShapes, "varies between steps"),
            (|device| device.guessed_ratio = 0.5, Code::GuessedGrowth, "grow along an unknown curve"),
            (|device| device.freed_elsewhere_ratio = 0.5, Code::UnlikeRecordings, "is freed earlier"),
        ] {
            let found = warnings_after(change);
            assert!(found.len() == 1 && found[0].0 == code && found[0].1.contains(words), "{found:?}");
        }
    }

    #[test]
    fn the_worst_prediction_is_warned_of() {
        for (ratios, message) in [
            (&[0.01, -0.01][..], None),
            (&[0.0, 0.25], Some("the peak at 2 is 25% too high")),
            (&[0.25, -0.5, 0.0], Some("the peak at 2 is 50% too low, 2 of 3 off")),
        ] {
            let checks = (1..).zip(ratios).map(|(size, ratio)| checked(size, *ratio)).collect();
            let found = warnings_after(|device| device.checked = checks);
            let message = message.map(|text| format!("predicted from the other recordings, {text}"));
            assert_eq!(found.into_iter().map(|(_, text)| text).collect::<Vec<_>>(), Vec::from_iter(message));
        }
    }
}
