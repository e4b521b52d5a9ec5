//! The recordings step by step: how far they can be compared, and what each phase and step needed at most.
//!
//! A recording that is a step longer than the other has had more time to allocate, and that is no growth:
//! where both show training steps, only those that both have are compared.

use std::collections::BTreeMap;

use serde::Serialize;

use super::options::At;
use crate::base::units::signed_difference;
use crate::replay::literal::{Totals, Tracking};
use crate::snapshot::Action;
use crate::stacks::phases::{Phase, Phases};
use crate::study::{DeviceStudy, MemoryHistory, Peak};

/// The steps that both recordings have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CommonSteps {
    /// Steps that began in the recording before.
    pub before_steps: u64,
    /// Steps that began in the recording after.
    pub after_steps: u64,
    /// The first so many of both are compared.
    pub compared_steps: u64,
    /// The entry before which the comparison ends; `None` where all of the recording is compared.
    pub before_until: Option<u64>,
    /// The same of the recording after.
    pub after_until: Option<u64>,
}

/// The most that was allocated in a phase of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PhaseChange {
    /// Which.
    pub phase: Phase,
    /// Before; 0 where it does not occur.
    pub before_peak_allocated_bytes: u64,
    /// After; 0 where it does not occur.
    pub after_peak_allocated_bytes: u64,
    /// After less before.
    pub delta_peak_allocated_bytes: i64,
}

/// The most that was allocated in a training step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StepChange {
    /// Which, from 0.
    pub step: u64,
    /// Before.
    pub before_peak_allocated_bytes: u64,
    /// After.
    pub after_peak_allocated_bytes: u64,
    /// After less before.
    pub delta_peak_allocated_bytes: i64,
}

/// Steps that began: another one after the last that ended, if anything was allocated in it.
fn begun(device: DeviceStudy<'_, '_>) -> usize {
    let completed = device.phases().completed_steps();
    let open = u32::try_from(completed).ok().and_then(|step| device.phases().step_entries(step));
    let allocates = |entry: usize| {
        let action = device.device().action(entry);
        matches!(action, Some(Action::Alloc | Action::Oom))
    };
    completed + usize::from(open.is_some_and(|mut entries| entries.any(allocates)))
}

/// The entry after the first `steps` steps.
fn end_of(device: DeviceStudy<'_, '_>, steps: usize) -> Option<u64> {
    let last = u32::try_from(steps.checked_sub(1)?).ok()?;
    device.phases().step_entries(last).map(|entries| entries.end as u64)
}

impl CommonSteps {
    /// How far two recordings can be compared at the moment `at`; `None` where they show no steps, or
    /// where only one of them begins late, so that its steps cannot be counted.
    pub(super) fn common(devices: [DeviceStudy<'_, '_>; 2], at: At) -> Option<Self> {
        let [before, after] = devices;
        let completed = devices.map(|device| device.phases().completed_steps());
        let is_late =
            |of: DeviceStudy<'_, '_>| of.history().is_some_and(MemoryHistory::is_truncated);
        if completed.contains(&0) || is_late(before) != is_late(after) {
            return None;
        }
        let begun = devices.map(begun);
        let (compared, cut) = match at {
            // A step that was cut short may have peaked already.
            At::Peak => {
                let common = begun[0].min(begun[1]);
                (common, begun.map(|begun| begun > common))
            }
            // At the end of the last step that both completed, unless both ended at the same place.
            At::Snapshot if completed == [completed[0]; 2] && begun == [begun[0]; 2] => {
                (begun[0], [false; 2])
            }
            At::Snapshot => (completed[0].min(completed[1]), [true; 2]),
        };
        let until = |of, cut: bool| cut.then(|| end_of(of, compared)).flatten();
        Some(Self {
            before_steps: begun[0] as u64,
            after_steps: begun[1] as u64,
            compared_steps: compared as u64,
            before_until: until(before, cut[0]),
            after_until: until(after, cut[1]),
        })
    }
}

/// What a recording needed at most, up to where it is compared.
#[derive(Debug, Default)]
pub(super) struct Maxima {
    peak: Peak,
    by_phase: BTreeMap<Phase, u64>,
    by_step: BTreeMap<u64, u64>,
}

impl Maxima {
    /// Of the entries of `device` before `until`.
    pub(super) fn of(device: DeviceStudy<'_, '_>, until: Option<u64>) -> Self {
        let mut maxima = Self::default();
        device.replay(Tracking::Totals, |step| {
            let entry = step.entry.map(|(index, _)| index);
            if entry.is_none() {
                maxima = Self::default();
            }
            let is_beyond = |entry| until.is_some_and(|until| entry as u64 >= until);
            if !entry.is_some_and(is_beyond) {
                maxima.see(entry, step.tiling.totals(), device.phases());
            }
        });
        maxima
    }

    fn see(&mut self, entry: Option<usize>, totals: Totals, phases: &Phases) {
        let (peak, event) = (&mut self.peak, entry.map(|entry| entry as u64));
        if totals.allocated > peak.allocated_bytes {
            (peak.allocated_bytes, peak.allocated_event) = (totals.allocated, event);
        }
        if totals.reserved > peak.reserved_bytes {
            (peak.reserved_bytes, peak.reserved_event) = (totals.reserved, event);
        }
        let Some(entry) = entry else { return };
        let most = self.by_phase.entry(phases.phase_at(entry)).or_default();
        *most = totals.allocated.max(*most);
        if let Some(step) = phases.step_at(entry) {
            let most = self.by_step.entry(step.into()).or_default();
            *most = totals.allocated.max(*most);
        }
    }
}

/// How far the recordings of a device are compared at the moment `at`, and what each needed at most until
/// there.
pub(super) struct ComparedPart {
    pub(super) steps: Option<CommonSteps>,
    /// The entry before which the comparison ends; `None` where all of the recording is compared.
    pub(super) until: [Option<u64>; 2],
    /// The highest totals of what is compared.
    pub(super) peaks: [Peak; 2],
    maxima: [Maxima; 2],
}

impl ComparedPart {
    pub(super) fn of(devices: [Option<DeviceStudy<'_, '_>>; 2], at: At) -> Self {
        let whole = |device: Option<DeviceStudy<'_, '_>>| {
            device.map(|device| Maxima::of(device, None)).unwrap_or_default()
        };
        let mut maxima = devices.map(whole);
        let steps = match devices {
            [Some(before), Some(after)] => CommonSteps::common([before, after], at),
            _ => None,
        };
        let until = [steps.and_then(|s| s.before_until), steps.and_then(|s| s.after_until)];
        let mut peaks = devices.map(|of| of.map(DeviceStudy::peak).unwrap_or_default());
        for side in [0, 1] {
            if let (Some(device), Some(_)) = (devices[side], until[side]) {
                maxima[side] = Maxima::of(device, until[side]);
                peaks[side] = maxima[side].peak;
            }
        }
        Self { steps, until, peaks, maxima }
    }

    /// Every phase of either side, where phases can be told at all.
    pub(super) fn by_phase(&self) -> Vec<PhaseChange> {
        by_phase(self.maxima.each_ref())
    }

    /// Every step that is compared, in order.
    pub(super) fn by_step(&self) -> Vec<StepChange> {
        by_step(self.maxima.each_ref(), self.steps)
    }
}

/// Every phase of either side, where phases can be told at all.
fn by_phase(sides: [&Maxima; 2]) -> Vec<PhaseChange> {
    let [before, after] = sides.map(|maxima| &maxima.by_phase);
    let mut phases: Vec<Phase> = before.keys().chain(after.keys()).copied().collect();
    phases.sort_unstable();
    phases.dedup();
    if phases == [Phase::Other] {
        return Vec::new();
    }
    let change_of = |phase: Phase| {
        let of = |side: &BTreeMap<Phase, u64>| side.get(&phase).copied().unwrap_or(0);
        PhaseChange {
            phase,
            before_peak_allocated_bytes: of(before),
            after_peak_allocated_bytes: of(after),
            delta_peak_allocated_bytes: signed_difference(of(before), of(after)),
        }
    };
    phases.into_iter().map(change_of).collect()
}

/// Every step that is compared, in order.
fn by_step(sides: [&Maxima; 2], steps: Option<CommonSteps>) -> Vec<StepChange> {
    let Some(steps) = steps else { return Vec::new() };
    let change_of = |step| {
        let [before, after] =
            sides.map(|maxima| maxima.by_step.get(&step).copied().unwrap_or_default());
        StepChange {
            step,
            before_peak_allocated_bytes: before,
            after_peak_allocated_bytes: after,
            delta_peak_allocated_bytes: signed_difference(before, after),
        }
    };
    (0..steps.compared_steps).map(change_of).collect()
}
