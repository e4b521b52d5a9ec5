//! The answer: `oomscope/fit/1`.

use std::collections::BTreeSet;

use serde::Serialize;

use super::asked::FitOptions;
use super::checked::LEAST_PAIRED;
use super::device::{Family, FitDevice};
use super::doubts::{doubt, remark};
use super::recording::{Recording, Sized};
use super::size::{Size, lacking};
use super::summary::summary;
use crate::base::summary::Summary;
use crate::base::units::percent;
use crate::base::warning::{Warning, Warnings};
use crate::study::DeviceStudy;

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
    #[serde(flatten)]
    pub size: Size,
    /// The file.
    pub path: String,
}

/// Learns from `recordings` and tells of other sizes.
///
/// # Errors
/// One sentence: too few recordings, of one size, of no device in common, of programs that are not the same, or an
/// option that cannot be.
pub fn fit(recordings: &[Sized<'_, '_>], options: &FitOptions<'_>) -> Result<FitReport, String> {
    let mut recordings = recordings.to_vec();
    recordings.sort_by_key(|one| (one.size.extent(), one.size));
    let first = can_tell(&recordings, options)?;
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
        let is_remarked = remark(&family, &mut warnings);
        let device = FitDevice { is_remarked, ..family.fit(options)? };
        if device.paired_ratio.min(device.stacks_paired_ratio) < LEAST_PAIRED {
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
        summary: summary(&devices, recordings.last(), options.multiple),
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

/// The first of `recordings`, if they are enough, and of as many numbers as what is asked for.
fn can_tell<'r, 's, 'a>(
    recordings: &'r [Sized<'s, 'a>],
    options: &FitOptions<'_>,
) -> Result<&'r Sized<'s, 'a>, String> {
    let sizes: Vec<Size> = recordings.iter().map(|one| one.size).collect();
    if sizes.iter().collect::<BTreeSet<_>>().len() < sizes.len() {
        return Err("two recordings are of the same size: give one of each size".to_owned());
    }
    let few = "one recording does not tell how a program grows: give two, of different \
               sizes, such as 4=small.pickle 8=larger.pickle";
    let first = recordings.first().ok_or(few)?;
    let variables = first.size.variables();
    if let Some(other) = sizes.iter().find(|size| size.variables() != variables) {
        return Err(format!(
            "a size of one number does not stand beside one of two: {} and {other}",
            first.size
        ));
    }
    let told = |sizes: &[Size]| sizes.iter().map(Size::to_string).collect::<Vec<_>>().join(", ");
    match (variables, lacking(&sizes).as_slice()) {
        (_, []) => {}
        (1, _) => return Err(few.to_owned()),
        (_, lacking) => {
            return Err(format!(
                "{} do not tell how a program grows with both numbers: record {} as well",
                told(&sizes),
                told(lacking)
            ));
        }
    }
    if let Some(at) = options.at.iter().find(|size| size.variables() != variables) {
        return Err(format!(
            "--at {at}: give as many numbers as the recordings have: {}",
            told(&sizes)
        ));
    }
    match (variables, options.at_second) {
        (1, [second, ..]) => {
            Err(format!("--at x{second}: the sizes recorded have no second number"))
        }
        _ => Ok(first),
    }
}

fn refused(device: &FitDevice) -> String {
    let line = device.unpaired.first();
    let example = line.map_or_else(String::new, |line| {
        format!(", and most of the rest by {}", line.location.label())
    });
    format!(
        "device {}: these recordings tell nothing of other sizes: only {} of the memory at the peak is asked for by \
         the same stacks in both{example}; were they of different programs, or does it work otherwise at another size?",
        device.device,
        percent(device.paired_ratio.min(device.stacks_paired_ratio))
    )
}
