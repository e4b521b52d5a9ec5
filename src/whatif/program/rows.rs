//! Every row: `oomscope/whatif-program/1`.

use std::cmp::Reverse;

use rayon::prelude::*;

use super::answer::{ProgramDevice, ProgramReport, ProgramRow};
use super::batch::halves;
use super::change::{Changed, ProgramChange, Sure};
use super::checkpoint::{checkpointed, checkpointed_most};
use super::gradients::gradients;
use super::left::left_behind;
use super::lines::Lines;
use super::optimizer::{offloaded, smaller_state, without_temporaries};
use super::precision::half;
use super::recording::Recording;
use super::replayed::Replays;
use super::summary::summary;
use crate::base::warning::Warnings;
use crate::study::{DeviceStudy, Study};
use crate::whatif::{one_entry, parted, reconfigured, verified};

/// Every change to the program on each device of `study`, on a device of `capacity` bytes if that is given; and the
/// `top` lines that hold most.
pub fn program(study: &Study<'_>, path: &str, capacity: Option<u64>, top: usize) -> ProgramReport {
    let verified = verified(study, path);
    let mut warnings = Warnings::default();
    // What the figures are worth comes before them.
    warnings.extend(study.devices().filter_map(one_entry));
    warnings.extend(study.devices().filter_map(parted));
    warnings.extend(study.devices().filter_map(reconfigured));
    warnings.extend(verified.warnings);
    let traced = study.devices().filter(|device| !device.device().is_empty());
    let devices: Vec<ProgramDevice> =
        traced.map(|device| of_device(device, capacity, top)).collect();
    ProgramReport {
        schema: "oomscope/whatif-program/1",
        summary: summary(&devices),
        path: path.to_owned(),
        torch_version: verified.torch_version,
        warnings: warnings.to_vec(),
        devices,
    }
}

fn of_device(device: DeviceStudy<'_, '_>, capacity: Option<u64>, top: usize) -> ProgramDevice {
    let recording = Recording::of(device);
    let replays = Replays::of(&recording, capacity);
    // Each is a copy of the program: they are made and replayed one after the other, as many at once as there are threads.
    let changed = makers(&recording).flat_map_iter(|maker| (maker.make)(&recording));
    let replayed = changed.map(|row| replays.row(row));
    let mut rows: Vec<ProgramRow> = replayed.collect();
    rows.sort_by_key(|row| {
        (Reverse(row.fits), Reverse(row.serves_failed), Reverse(row.reserved_gain_bytes))
    });
    // A module in another may come to the same: the outer one stands for both.
    rows.dedup_by(|inner, outer| {
        let peaks =
            |row: &ProgramRow| (row.change, row.peak_allocated_bytes, row.peak_reserved_bytes);
        peaks(inner) == peaks(outer)
    });
    let lines = Lines::of(&recording, top);
    let without = lines.largest.par_iter();
    let without = without.map(|line| replays.row(lines.without(&recording, *line))).collect();
    ProgramDevice {
        device: device.id(),
        capacity_bytes: replays.capacity(),
        exact: device.inferred().verification.is_exact(),
        lost: device.lost_history(),
        reserved_before_bytes: device.reserved_before(),
        ends_in_failure: device.ends_with_failure(),
        goes_on: recording.goes_on(),
        as_recorded: replays.as_recorded(as_recorded(&recording)),
        rows,
        without,
    }
}

/// What makes rows of one kind.
pub(super) struct Maker {
    /// Whether they are about training steps.
    needs_steps: bool,
    make: Make,
    /// What makes those that are worth trying unasked.
    pub(super) unasked: Option<Make>,
}

type Make = fn(&Recording<'_, '_>) -> Vec<Changed>;

/// Every change that a recording may give reason for.
static CHANGES: [Maker; 8] = [
    Maker { needs_steps: false, make: checkpointed, unasked: Some(checkpointed_most) },
    of_steps(without_temporaries, true),
    of_steps(smaller_state, false),
    of_steps(offloaded, true),
    of_steps(gradients, true),
    of_steps(left_behind, true),
    of_steps(halves, true),
    of_steps(half, true),
];

const fn of_steps(make: Make, is_unasked: bool) -> Maker {
    Maker { needs_steps: true, make, unasked: if is_unasked { Some(make) } else { None } }
}

/// What makes rows of `recording`.
pub(super) fn makers(
    recording: &Recording<'_, '_>,
) -> impl IndexedParallelIterator<Item = &'static Maker> {
    let has_steps = recording.has_steps();
    let given: Vec<&Maker> =
        CHANGES.iter().filter(|maker| has_steps || !maker.needs_steps).collect();
    given.into_par_iter()
}

fn as_recorded(recording: &Recording<'_, '_>) -> Changed {
    Changed {
        change: ProgramChange::AsRecorded,
        sure: Sure::Exact,
        what: "as recorded".to_owned(),
        line: None,
        bytes_at_peak: recording.peak.bytes,
        script: recording.script.clone(),
    }
}
