//! The answer: `oomscope/fit/1`.

use std::collections::BTreeSet;

use serde::Serialize;

use super::asked::FitOptions;
use super::checked::{OFF, TOLD};
use super::device::{Family, FitDevice};
use super::recording::{Recording, Sized};
use super::summary::summary;
use crate::notice::{Code, Warning, Warnings};
use crate::study::{DeviceStudy, LostHistory};
use crate::summary::Summary;
use crate::units::{count, counted, percent};

/// The JSON of `oomscope fit`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FitReport {
    /// `oomscope/fit/1`
    pub schema: &'static str,
    /// How large it may be.
    pub summary: Summary,
    /// What was given, in the order of size.
    pub recordings: Vec<RecordingGiven>,
    /// The releases whose rules were followed.
    pub torch_version: String,
    /// Every device that has a trace in all of them.
    pub devices: Vec<FitDevice>,
    /// What makes the answer less sure.
    pub warnings: Vec<Warning>,
}

/// A recording that was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordingGiven {
    /// The size of the program.
    pub size: u64,
    /// The file.
    pub path: String,
}

/// Below this share nothing is predicted.
const LEAST_PAIRED: f64 = 0.5;

/// Learns from `recordings` and tells of other sizes.
///
/// # Errors
/// One sentence: too few recordings, of one size, of no device in common, of programs that are not the same, or an
/// option that cannot be.
pub fn fit(recordings: &[Sized<'_, '_>], options: &FitOptions<'_>) -> Result<FitReport, String> {
    let mut recordings = recordings.to_vec();
    recordings.sort_by_key(|one| one.size);
    let sizes: BTreeSet<u64> = recordings.iter().map(|one| one.size).collect();
    if sizes.len() < recordings.len() {
        return Err("two recordings are of the same size: give one of each size".to_owned());
    }
    let [first, _, ..] = recordings.as_slice() else {
        return Err("one recording does not tell how a program grows: give two, of different \
                    sizes, such as 4=small.pickle 8=larger.pickle"
            .to_owned());
    };
    let is_wanted = |id: &u64| options.device.is_none_or(|only| only == *id);
    let ids: Vec<u64> = first.study.devices().map(DeviceStudy::id).filter(is_wanted).collect();
    let mut warnings = Warnings::default();
    let mut devices = Vec::new();
    for id in ids {
        let of_device: Vec<Recording<'_, '_>> =
            recordings.iter().filter_map(|one| Recording::of(one, id)).collect();
        if of_device.len() < recordings.len() {
            continue;
        }
        let family = Family { recordings: of_device };
        remark(&family, &mut warnings);
        let device = family.fit(options)?;
        if device.paired_ratio < LEAST_PAIRED {
            return Err(refused(&device));
        }
        doubt(&device, &mut warnings);
        devices.push(device);
    }
    if devices.is_empty() {
        return Err("no device has a trace in all of these recordings: record each with the same \
                    devices"
            .to_owned());
    }
    let largest = recordings.last().map(|one| one.study.inference());
    let releases = largest.map(|inference| inference.releases.clone());
    Ok(FitReport {
        schema: "oomscope/fit/1",
        summary: summary(&devices, recordings.last()),
        recordings: recordings
            .iter()
            .map(|one| RecordingGiven { size: one.size, path: one.path.to_owned() })
            .collect(),
        torch_version: releases.map_or_else(String::new, |releases| {
            match (*releases.start(), *releases.end()) {
                (first, last) if first == last => format!("2.{first}"),
                (first, last) => format!("2.{first}-2.{last}"),
            }
        }),
        devices,
        warnings: warnings.to_vec(),
    })
}

fn refused(device: &FitDevice) -> String {
    let line = device.unpaired.first();
    let example = line.map_or_else(String::new, |line| {
        format!(": {} is in one of them only", line.around.in_short(line.frame.as_ref()))
    });
    format!(
        "device {}: these are not recordings of one program: only {} of the memory at the peak is \
         asked for by the same stacks{example}",
        device.device,
        percent(device.paired_ratio)
    )
}

/// What about the recordings makes the answer less sure.
fn remark(family: &Family<'_, '_>, warnings: &mut Warnings) {
    let of = |one: &Recording<'_, '_>| (one.size, one.device.id());
    for one in &family.recordings {
        let (size, id) = of(one);
        if one.ends_in_failure() {
            warnings.add(
                Code::EndsInFailure,
                format!(
                    "device {id}: the recording at {size} ends with a failed request: what the \
                     program would have asked for next is not in it"
                ),
            );
        }
        if !one.device.inferred().verification.is_exact() {
            warnings.add(
                Code::ModelParted,
                format!(
                    "device {id}: the model does not reproduce the recording at {size}: every \
                     figure is an estimate"
                ),
            );
        }
        let held = one.device.reserved_before();
        if held > 0 || matches!(one.device.lost_history(), Some(LostHistory::RingOfOne)) {
            warnings.add(
                Code::Truncated,
                format!(
                    "device {id}: the recording at {size} begins late: what was held before it is \
                     known by its blocks alone, and memory that was freed before is not known"
                ),
            );
        }
    }
    let settings = |one: &Recording<'_, '_>| one.device.inferred().hypothesis.settings.clone();
    if let [first, rest @ ..] = family.recordings.as_slice()
        && rest.iter().any(|one| settings(one) != settings(first))
    {
        warnings.add(
            Code::UnlikeRecordings,
            format!(
                "device {}: the recordings were made under different settings: each size is \
                 replayed under those of the nearest",
                first.device.id()
            ),
        );
    }
}

/// What about the answer makes it less sure.
fn doubt(device: &FitDevice, warnings: &mut Warnings) {
    let id = device.device;
    if device.paired_ratio < 1.0 - TOLD {
        let line = device.unpaired.first();
        let example = line.map_or_else(String::new, |line| {
            format!(", most of it by {}", line.around.in_short(line.frame.as_ref()))
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
