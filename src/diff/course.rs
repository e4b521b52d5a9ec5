//! The recordings step by step: how far they can be compared, and what each phase and step needed at most.
//!
//! A recording that is a step longer than the other has had more time to allocate, and that is no growth:
//! where both show training steps, only those that both have are compared.

use std::collections::BTreeMap;

use serde::Serialize;

use super::report::At;
use super::side::Of;
use crate::facts::{Keep, Literal};
use crate::phases::{Phase, Phases};
use crate::snapshot::{Action, Device};
use crate::study::Peak;
use crate::units::change;

/// The steps that both recordings have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Steps {
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

/// How long a recording is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length<'a> {
    pub(super) device: Device<'a>,
    pub(super) phases: &'a Phases,
    /// Whether it does not begin with the program.
    pub(super) truncated: bool,
}

impl Length<'_> {
    /// Steps that ended.
    fn completed(&self) -> usize {
        self.phases.completed_steps()
    }

    /// Steps that began: another one after the last that ended, if anything was allocated in it.
    fn begun(&self) -> usize {
        let open =
            u32::try_from(self.completed()).ok().and_then(|step| self.phases.entries_of(step));
        let allocates = |entry: usize| {
            let action = self.device.action(entry);
            matches!(action, Some(Action::Alloc | Action::Oom))
        };
        self.completed() + usize::from(open.is_some_and(|mut entries| entries.any(allocates)))
    }

    /// The entry after the first `steps` steps.
    fn end_of(&self, steps: usize) -> Option<u64> {
        let last = u32::try_from(steps.checked_sub(1)?).ok()?;
        self.phases.entries_of(last).map(|entries| entries.end as u64)
    }
}

impl Steps {
    /// How far two recordings can be compared at the moment `at`; `None` where they show no steps, or
    /// where only one of them begins late, so that its steps cannot be counted.
    pub(super) fn common(sides: [Length<'_>; 2], at: At) -> Option<Self> {
        let [before, after] = sides;
        let begun = sides.map(|side| side.begun());
        let completed = sides.map(|side| side.completed());
        if completed.contains(&0) || before.truncated != after.truncated {
            return None;
        }
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
        let until = |side: Length<'_>, cut: bool| cut.then(|| side.end_of(compared)).flatten();
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
pub(super) struct Course {
    pub(super) peak: Peak,
    by_phase: BTreeMap<Phase, u64>,
    by_step: BTreeMap<u64, u64>,
}

impl Course {
    /// Replays the entries of the device before `until`.
    pub(super) fn new(of: Of<'_>, phases: &Phases, until: Option<u64>) -> Self {
        let mut course = Self::default();
        let literal = Literal { device: of.device, settings: of.settings };
        literal.run(Keep::Sums, |step| {
            let totals = step.tiling.totals();
            let entry = step.entry.map(|(index, _)| index);
            let index = entry.map(|entry| entry as u64);
            if index.is_some_and(|index| until.is_some_and(|until| index >= until)) {
                return;
            }
            let peak = &mut course.peak;
            if totals.allocated > peak.allocated_bytes {
                peak.allocated_bytes = totals.allocated;
                peak.allocated_event = index;
            }
            if totals.reserved > peak.reserved_bytes {
                peak.reserved_bytes = totals.reserved;
                peak.reserved_event = index;
            }
            let Some(entry) = entry else { return };
            let most = course.by_phase.entry(phases.phase_of(entry)).or_default();
            *most = totals.allocated.max(*most);
            if let Some(step) = phases.step_of(entry) {
                let most = course.by_step.entry(step.into()).or_default();
                *most = totals.allocated.max(*most);
            }
        });
        course
    }
}

/// Every phase of either side, where phases can be told at all.
pub(super) fn by_phase(sides: [&Course; 2]) -> Vec<PhaseChange> {
    let [before, after] = sides.map(|course| &course.by_phase);
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
            delta_peak_allocated_bytes: change(of(before), of(after)),
        }
    };
    phases.into_iter().map(change_of).collect()
}

/// Every step that is compared, in order.
pub(super) fn by_step(sides: [&Course; 2], steps: Option<Steps>) -> Vec<StepChange> {
    let Some(steps) = steps else { return Vec::new() };
    let change_of = |step| {
        let [before, after] =
            sides.map(|course| course.by_step.get(&step).copied().unwrap_or_default());
        StepChange {
            step,
            before_peak_allocated_bytes: before,
            after_peak_allocated_bytes: after,
            delta_peak_allocated_bytes: change(before, after),
        }
    };
    (0..steps.compared_steps).map(change_of).collect()
}
