//! The JSON of `oomscope fit`, and what it is made from.

use serde::Serialize;

use super::device::FitDevice;
use super::device_recordings::DeviceRecordings;
use super::input::{FitInput, FitOptions};
use super::prediction::MIN_PAIRED_RATIO;
use super::warnings::{warn_about_device, warn_about_recordings};
use crate::base::units::percent;
use crate::base::warning::{Warning, Warnings, words};
use crate::study::DeviceStudy;
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
    let ids: Vec<u64> = first_input.study.devices().map(DeviceStudy::id).collect();
    let mut warnings = Warnings::default();
    let mut devices = Vec::new();
    for id in ids {
        let all_recordings = DeviceRecordings::from_inputs(&recordings, id);
        if all_recordings.recordings.len() < recordings.len() {
            continue;
        }
        let has_recording_warnings = warn_about_recordings(&all_recordings, &mut warnings);
        let device = all_recordings.fit(options, has_recording_warnings);
        let device = device.map_err(|sentence| FitRefusal::new(RefusalCode::InvalidOption, sentence))?;
        let paired_ratio = device.paired_ratio.min(device.stacks_paired_ratio);
        if paired_ratio < MIN_PAIRED_RATIO {
            let sentence = too_little_paired(&device, paired_ratio);
            let refusal = FitRefusal::new(RefusalCode::DifferentPrograms, sentence);
            return Err(FitRefusal { paired_ratio: Some(paired_ratio), ..refusal });
        }
        warn_about_device(&device, &mut warnings);
        devices.push(device);
    }
    if devices.is_empty() {
        let sentence = "no device has a trace in all of these recordings: record each with the same devices";
        return Err(FitRefusal::new(RefusalCode::NoCommonDevice, sentence));
    }
    Ok(FitReport {
        recordings: recordings.iter().map(RecordingReport::from_input).collect(),
        torch_version: torch_version(&recordings),
        devices,
        settings_string: recordings
            .last()
            .and_then(|input| input.study.snapshot().settings_string())
            .map(str::to_owned),
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
