//! Aligns the training steps of two recordings, and finds the peak of each phase.
//!
//! A recording that runs for a step longer has more time to allocate, which is not growth. So if both recordings show
//! steps, only the steps that both have are compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::base::units::signed_difference;
use crate::base::warning::words;
use crate::replay::literal::{Totals, Tracking};
use crate::snapshot::Action;
use crate::stacks::phases::{Phase, Phases};
use crate::study::{DeviceStudy, MemoryHistory, Peak};

/// The training steps of both recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CommonSteps {
    /// Number of steps that started in the recording before.
    pub before_steps: u64,
    /// Number of steps that started in the recording after.
    pub after_steps: u64,
    /// Number of compared steps, from the first.
    pub compared_steps: u64,
    /// Entry index at which the comparison of the recording before ends; null if all of it is compared.
    pub before_until: Option<u64>,
    /// Entry index at which the comparison of the recording after ends; null if all of it is compared.
    pub after_until: Option<u64>,
}

/// The peak of allocated memory in a phase, before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PeakChange {
    /// The phase.
    pub phase: Phase,
    /// Peak of allocated bytes before.
    pub before_peak_allocated_bytes: u64,
    /// Peak of allocated bytes after.
    pub after_peak_allocated_bytes: u64,
    /// Their difference, positive if it grew.
    pub delta_peak_allocated_bytes: i64,
}

/// Number of steps that started: the completed ones, and the next one if it allocates.
fn steps_started(device: DeviceStudy<'_, '_>) -> usize {
    let completed = device.phases().steps.ends().len();
    let open = u32::try_from(completed).ok().and_then(|step| device.phases().steps.entries(step));
    let mut open = open.into_iter().flatten().map(|entry| device.device().action(entry));
    completed + usize::from(open.any(|action| matches!(action, Some(Action::Alloc | Action::Oom))))
}

/// The entry index after the first `steps` steps.
fn steps_end(device: DeviceStudy<'_, '_>, steps: usize) -> Option<u64> {
    let last = u32::try_from(steps.checked_sub(1)?).ok()?;
    device.phases().steps.entries(last).map(|entries| entries.end as u64)
}

impl CommonSteps {
    /// Aligns the steps of two recordings. `None` if one shows no steps, or if only one starts late, so that its first
    /// step is unknown.
    pub(super) fn common(devices: [DeviceStudy<'_, '_>; 2], at: ComparedMoment) -> Option<Self> {
        let completed = devices.map(|device| device.phases().steps.ends().len());
        let is_late = devices.map(|device| device.history().is_some_and(MemoryHistory::is_truncated));
        if completed.contains(&0) || is_late[0] != is_late[1] {
            return None;
        }
        let started = devices.map(steps_started);
        let (compared, cut) = match at {
            // An incomplete step may have peaked already, so it counts.
            ComparedMoment::Peak => {
                let common = started[0].min(started[1]);
                (common, started.map(|started| started > common))
            }
            // Both recordings end at the same place, so their snapshots can be compared.
            ComparedMoment::Snapshot if completed == [completed[0]; 2] && started == [started[0]; 2] => {
                (started[0], [false; 2])
            }
            ComparedMoment::Snapshot => (completed[0].min(completed[1]), [true; 2]),
        };
        let [before_until, after_until] =
            [0, 1].map(|side| if cut[side] { steps_end(devices[side], compared) } else { None });
        Some(Self {
            before_steps: started[0] as u64,
            after_steps: started[1] as u64,
            compared_steps: compared as u64,
            before_until,
            after_until,
        })
    }
}

/// The peaks of the compared part of a recording.
#[derive(Debug, Default)]
pub(super) struct PeaksByPhase {
    peak: Peak,
    by_phase: BTreeMap<Phase, u64>,
}

impl PeaksByPhase {
    /// The peaks of the entries of `device` before `until`.
    pub(super) fn before_entry(device: DeviceStudy<'_, '_>, until: Option<u64>) -> Self {
        let mut maxima = Self::default();
        device.replay(Tracking::Totals, |step| {
            let entry = step.at.map(|(index, _)| index);
            if entry.is_none() {
                maxima = Self::default();
            }
            if entry.is_none_or(|entry| until.is_none_or(|until| (entry as u64) < until)) {
                maxima.add_step(entry, step.tiling.totals(), device.phases());
            }
        });
        maxima
    }

    fn add_step(&mut self, entry: Option<usize>, totals: Totals, phases: &Phases) {
        let (peak, event) = (&mut self.peak, entry.map(|entry| entry as u64));
        if totals.allocated > peak.allocated_bytes {
            (peak.allocated_bytes, peak.allocated_event) = (totals.allocated, event);
        }
        if totals.reserved > peak.reserved_bytes {
            (peak.reserved_bytes, peak.reserved_event) = (totals.reserved, event);
        }
        let Some(entry) = entry else { return }; // the state before the first entry is in no phase
        let most = self.by_phase.entry(phases.phase_at(entry)).or_default();
        *most = totals.allocated.max(*most);
    }
}

/// The compared parts of both recordings.
pub(super) struct ComparedPart {
    pub(super) steps: Option<CommonSteps>,
    /// Entry index at which the comparison ends; `None` if all of the recording is compared.
    pub(super) until: [Option<u64>; 2],
    /// The peaks of the compared part.
    pub(super) peaks: [Peak; 2],
    maxima: [PeaksByPhase; 2],
}

impl ComparedPart {
    pub(super) fn new(devices: [Option<DeviceStudy<'_, '_>>; 2], at: ComparedMoment) -> Self {
        let steps = match devices {
            [Some(before), Some(after)] => CommonSteps::common([before, after], at),
            _ => None,
        };
        let until = [steps.and_then(|s| s.before_until), steps.and_then(|s| s.after_until)];
        // A snapshot without the device has no peaks.
        let maxima = [0, 1].map(|side| {
            devices[side].map(|device| PeaksByPhase::before_entry(device, until[side])).unwrap_or_default()
        });
        let peaks = [0, 1].map(|side| match until[side] {
            Some(_) => maxima[side].peak,
            None => devices[side].map(DeviceStudy::peak).unwrap_or_default(),
        });
        Self { steps, until, peaks, maxima }
    }

    /// The phases of both recordings; empty without phases.
    pub(super) fn by_phase(&self) -> Vec<PeakChange> {
        let sides = self.maxima.each_ref().map(|maxima| &maxima.by_phase);
        let phases: BTreeSet<Phase> = sides[0].keys().chain(sides[1].keys()).copied().collect();
        if phases == BTreeSet::from([Phase::Other]) {
            return Vec::new();
        }
        let changes = phases.into_iter().map(|phase| {
            let [before, after] = sides.map(|side| side.get(&phase).copied().unwrap_or(0)); // 0 if a side lacks it
            PeakChange {
                phase,
                before_peak_allocated_bytes: before,
                after_peak_allocated_bytes: after,
                delta_peak_allocated_bytes: signed_difference(before, after),
            }
        });
        changes.collect()
    }
}

words! {
    /// The position to compare.
    #[derive(Default)]
    pub enum ComparedMoment {
        /// The peak of allocated memory
        #[default]
        Peak = "peak",
        /// The snapshot
        Snapshot = "snapshot",
    }
}

/// Selects what to compare, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiffOptions {
    /// Only this device.
    pub device: Option<u64>,
    /// The position to compare.
    pub at: ComparedMoment,
    /// Maximum number of lines and stacks in a list.
    pub top: usize,
}
