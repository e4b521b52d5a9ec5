//! Determines the phase and the training step of each entry of a device's trace.
//!
//! The phase of an allocation comes from its stack (`stack_traits`), else from annotated ranges that PyTorch or the
//! program recorded (`annotations`), else from the neighbouring phases. A training step ends with its optimizer step
//! (`steps`). Without evidence the phase is [`Phase::Other`] and there is no step.

mod annotations;
mod frame_role;
mod stack_traits;
mod steps;

use std::ops::Range;

use self::annotations::AnnotatedRanges;
pub use self::frame_role::{KnownPurpose, Phase};
use self::stack_traits::{Caller, TraitReader};
pub use self::stack_traits::{Routine, StackTraits};
pub use self::steps::{PhaseRun, StepMarker, Steps};
use crate::base::ids::{StackId, SymbolId, to_u32};
use crate::snapshot::{Action, Device, Stacks};
use crate::stacks::frames::StackReader;

/// Entries from one count of runs to the next.
const RUNS_STRIDE: usize = 256;

/// Phases and steps of one device's trace.
#[derive(Debug)]
pub struct Phases {
    runs: Vec<PhaseRun>,
    /// The number of runs before every [`RUNS_STRIDE`]th entry: a long trace has a million, searched for each block.
    runs_before: Vec<u32>,
    /// Entries at which forward passes start: the stack names one, and the previous stack did not.
    pub(crate) forward_starts: Vec<u32>,
    annotations: AnnotatedRanges,
    /// The training steps.
    pub steps: Steps,
    /// By stack; `None` if the device does not use the stack.
    traits: Vec<Option<StackTraits>>,
}

impl Phases {
    /// Reads the trace of `device`.
    pub fn from_trace(device: Device<'_>, stacks: &StackReader<'_>) -> Self {
        let snapshot = device.snapshot();
        let annotations = AnnotatedRanges::from_annotations(device);
        let reader = TraitReader::new(snapshot, stacks);
        // Frees count too: their stacks classify the freed block. Final blocks may be older than the first trace entry.
        let mut is_used = vec![false; snapshot.stacks.len()];
        let of_entries = (0..device.len()).filter_map(|index| device.stack(index));
        let stacks_used = of_entries.chain(device.blocks().map(|block| block.stack));
        stacks_used.chain([Stacks::EMPTY]).for_each(|stack| is_used[stack.index()] = true);
        let traits = is_used.into_iter().enumerate();
        let traits = traits.map(|(stack, is_used)| is_used.then(|| reader.read(StackId::from_index(stack))));
        let traits: Vec<Option<StackTraits>> = traits.collect();
        let hints = phase_hints(device, &annotations, &traits);
        let runs = resolve_hints(&hints);
        let forward_starts =
            hints.iter().filter(|(_, hint)| hint.phase == Some(Phase::Forward)).map(|(start, _)| *start).collect();
        let mut runs_before = vec![0];
        for (before, run) in runs.iter().enumerate() {
            runs_before.resize(runs_before.len().max(run.start as usize / RUNS_STRIDE + 1), to_u32(before));
        }
        let steps = Steps::from_runs(&runs, &annotations, device.len());
        Self { runs, runs_before, forward_starts, annotations, steps, traits }
    }

    /// The phase of the last allocation up to `entry`; [`Phase::Other`] before the first.
    pub fn phase_at(&self, entry: usize) -> Phase {
        self.runs_begun(entry).checked_sub(1).map_or(Phase::Other, |run| self.runs[run].phase)
    }

    /// The number of runs that have started at `entry`.
    pub(crate) fn runs_begun(&self, entry: usize) -> usize {
        let stride = entry / RUNS_STRIDE;
        let [start, end] = [stride, stride + 1]
            .map(|stride| self.runs_before.get(stride).map_or(self.runs.len(), |runs| *runs as usize));
        start + self.runs[start..end].partition_point(|run| run.start as usize <= entry)
    }

    /// The innermost annotated range (`record_function`, `Optimizer.step#...`) that contains `entry`.
    pub fn range_at(&self, entry: usize) -> Option<SymbolId> {
        self.annotations.innermost_at(entry).map(|(name, _)| name)
    }

    /// Number of forward passes that start at or before `entry`.
    pub fn forwards_begun(&self, entry: usize) -> usize {
        self.forward_starts.partition_point(|start| *start as usize <= entry)
    }

    /// Whether PyTorch annotated optimizer steps.
    pub(crate) fn has_marked_steps(&self) -> bool {
        !self.annotations.step_ends.is_empty()
    }

    /// Whether the trace shows an optimizer step.
    pub(crate) fn has_optimizer(&self) -> bool {
        self.has_marked_steps() || self.runs.iter().any(|run| run.phase == Phase::Optimizer)
    }

    /// Whether the program has a `step` of its own that PyTorch's optimizer code calls.
    pub(crate) fn has_custom_optimizer(&self) -> bool {
        self.traits.iter().flatten().any(|traits| traits.routine == Some(Routine::OptimizerStep))
    }

    /// The first entry after each `Optimizer.zero_grad`.
    pub(crate) fn zero_grad_ends(&self) -> &[u32] {
        &self.annotations.zero_grad_ends
    }

    /// Oldest first.
    pub fn runs(&self) -> &[PhaseRun] {
        &self.runs
    }

    /// The entries of each phase, oldest first; the last one ends at `end`.
    pub fn ranges(&self, end: usize) -> impl Iterator<Item = (Phase, Range<usize>)> {
        let ends = self.runs.iter().skip(1).map(|run| run.start as usize).chain([end]);
        self.runs.iter().zip(ends).map(|(run, end)| (run.phase, run.start as usize..end))
    }

    /// The traits of a stack of this device: of a trace entry or a final block.
    pub fn stack_traits(&self, stack: StackId) -> StackTraits {
        debug_assert!(self.traits[stack.index()].is_some(), "every stack of this device was read");
        self.traits[stack.index()].unwrap_or_default()
    }
}

/// The phase of an allocation, as far as its own stack and ranges reveal it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hint {
    phase: Option<Phase>,
    /// User code that names no phase, run by the program itself.
    is_user_code: bool,
}

/// The hints of a device's allocations; one item per change.
fn phase_hints(device: Device<'_>, annotations: &AnnotatedRanges, traits: &[Option<StackTraits>]) -> Vec<(u32, Hint)> {
    let mut hints: Vec<(u32, Hint)> = Vec::new();
    let mut steps = annotations.step_starts.iter().map(|start| *start as usize).peekable();
    for index in 0..device.len() {
        // A failed request was meant to allocate. Frees take the phase of the allocations around them.
        if !matches!(device.action(index), Some(Action::Alloc | Action::Oom)) {
            continue;
        }
        let traits = device.stack(index).and_then(|stack| traits[stack.index()]).unwrap_or_default();
        // A step that allocates nothing still separates later frees from the phase before it.
        while let Some(start) = steps.next_if(|start| *start <= index) {
            if start < index {
                add_hint(&mut hints, start, Hint { phase: Some(Phase::Optimizer), is_user_code: false });
            }
        }
        let phase = traits.phase.or_else(|| {
            let annotated = annotations.innermost_at(index).and_then(|(_, phase)| phase);
            annotated.filter(|phase| traits.caller != Some(Caller::Optimizer) || *phase != Phase::Optimizer)
        });
        add_hint(&mut hints, index, Hint { phase, is_user_code: phase.is_none() && traits.caller.is_some() });
    }
    hints
}

fn add_hint(hints: &mut Vec<(u32, Hint)>, index: usize, hint: Hint) {
    if hints.last().is_none_or(|(_, last)| *last != hint) {
        hints.push((to_u32(index), hint));
    }
}

/// Fills in the phases of allocations without a hint from the phases before and after.
fn resolve_hints(hints: &[(u32, Hint)]) -> Vec<PhaseRun> {
    let mut runs: Vec<PhaseRun> = Vec::new();
    let (mut before, mut after) = (None, None);
    // For each hint, the last first, the next known phase.
    let mut afters: Vec<Option<Phase>> = Vec::with_capacity(hints.len());
    for (_, hint) in hints.iter().rev() {
        afters.push(after);
        after = hint.phase.or(after);
    }
    for ((start, hint), after) in hints.iter().zip(afters.into_iter().rev()) {
        let phase = hint.phase.unwrap_or_else(|| match phase_between(before, after) {
            // The engine, not the program, calls code of a backward pass.
            Phase::Backward if hint.is_user_code => Phase::Other,
            phase => phase,
        });
        before = hint.phase.or(before);
        if runs.last().is_none_or(|last| last.phase != phase) {
            runs.push(PhaseRun { start: *start, phase });
        }
    }
    runs
}

/// The phase of user code between two known phases.
fn phase_between(before: Option<Phase>, after: Option<Phase>) -> Phase {
    match (before, after) {
        (Some(a @ (Phase::Init | Phase::Forward | Phase::Backward)), Some(b)) if a == b => a,
        (Some(Phase::Forward), _) => Phase::Forward,
        (_, Some(Phase::Forward)) => Phase::Data,
        _ => Phase::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_phases_come_from_their_neighbours() {
        use Phase::{Backward, Data, Forward, Init, Optimizer, Other};
        for (before, after, between) in [
            (Some(Init), Some(Forward), Data),
            (Some(Optimizer), Some(Forward), Data),
            (Some(Forward), Some(Backward), Forward), // the loss
            (Some(Forward), None, Forward),
            (Some(Backward), Some(Backward), Backward),
            (Some(Backward), Some(Optimizer), Other),
            (Some(Optimizer), Some(Optimizer), Other),
            (None, None, Other),
        ] {
            assert_eq!(phase_between(before, after), between, "{before:?}, {after:?}");
        }
    }

    #[test]
    fn merges_equal_neighbours() {
        use Phase::{Backward, Forward, Other};
        let hints = [
            (0, Some(Forward), false),
            (4, None, true),
            (5, Some(Forward), false),
            (9, Some(Backward), false),
            (12, None, false),
            (14, Some(Backward), false),
            (15, None, true),
            (18, Some(Backward), false),
        ]
        .map(|(start, phase, is_user_code)| (start, Hint { phase, is_user_code }));
        let starts: Vec<(u32, Phase)> = resolve_hints(&hints).iter().map(|run| (run.start, run.phase)).collect();
        assert_eq!(starts, [(0, Forward), (9, Backward), (15, Other), (18, Backward)]);
    }
}
