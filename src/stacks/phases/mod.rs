//! What a program was doing at each entry of a device's trace: phases and training steps.
//!
//! A phase is read from the stack of each allocation (`signs`), and where the stack says nothing from
//! the named ranges that PyTorch or the program recorded (`named`), else from the phases around it.
//! A training step ends where its optimizer's step does (`steps`). All of it is read from what was
//! recorded; what cannot be told is [`Phase::Other`], or no step at all.

mod clock;
mod frame_sign;
mod named;
mod phase;
mod signs;
mod steps;

use std::ops::Range;

pub(crate) use self::clock::Clock;
pub(crate) use self::frame_sign::Makes;
use self::named::Named;
pub use self::phase::Phase;
pub(crate) use self::phase::PhaseRun;
use self::signs::{Caller, SignReader};
pub(crate) use self::signs::{Own, Signs};
use self::steps::Steps;
pub use self::steps::StepsFrom;
use crate::base::ids::{StackId, SymbolId, row};
use crate::snapshot::{Action, Device, Stacks};
use crate::stacks::frames::StackReader;

/// Phases and steps of one device's trace. An entry is named by its index in that trace.
#[derive(Debug)]
pub struct Phases {
    runs: Vec<PhaseRun>,
    /// The entries at which forward passes begin: where a stack is of one, and the one before was not.
    forwards: Vec<u32>,
    named: Named,
    steps: Steps,
    /// Of each stack that was read.
    signs: Vec<Option<Signs>>,
}

impl Phases {
    /// Reads the trace of `device`.
    pub fn of(device: Device<'_>, stacks: &StackReader<'_>) -> Self {
        let snapshot = device.snapshot();
        let named = Named::of(device);
        let reader = SignReader::new(snapshot, stacks);
        let mut signs: Vec<Option<Signs>> = vec![None; snapshot.stacks.len()];
        let mut read =
            |stack: StackId| *signs[stack.index()].get_or_insert_with(|| reader.read(stack));
        let hints = hints(device, &named, &mut read);
        // What the trace only frees has none.
        read(Stacks::EMPTY);
        // Blocks at the end may be older than the trace, which forgets, while they do not.
        for block in device.blocks() {
            read(block.stack);
        }
        let runs = resolve(&hints);
        let is_forward = |(_, hint): &&(u32, Hint)| *hint == Hint::Is(Phase::Forward);
        let forwards = hints.iter().filter(is_forward).map(|(start, _)| *start).collect();
        let steps = Steps::of(&runs, &named, device.len());
        Self { runs, forwards, named, steps, signs }
    }

    /// The phase of the last allocation up to `entry`; [`Phase::Other`] before the first.
    pub fn phase_of(&self, entry: usize) -> Phase {
        self.run_of(entry).and_then(|run| self.runs.get(run)).map_or(Phase::Other, |run| run.phase)
    }

    /// The training step that `entry` belongs to, counted from 0 at the start of the recording; `None`
    /// before the first, and where no steps can be told apart.
    pub fn step_of(&self, entry: usize) -> Option<u32> {
        self.steps.of_entry(entry)
    }

    /// How many steps came to their end.
    pub fn completed_steps(&self) -> usize {
        self.steps.ends().len()
    }

    /// The entries of `step`; the last step may be one that never came to its end.
    pub fn entries_of(&self, step: u32) -> Option<Range<usize>> {
        self.steps.entries(step)
    }

    /// What the steps were told apart by.
    pub fn steps_from(&self) -> Option<StepsFrom> {
        self.steps.from()
    }

    /// The innermost named range (`record_function`, `Optimizer.step#...`) around `entry`.
    pub fn named_at(&self, entry: usize) -> Option<SymbolId> {
        self.named.at(entry)
    }

    /// How many forward passes have begun up to `entry`.
    pub(crate) fn forwards_until(&self, entry: usize) -> usize {
        self.forwards.partition_point(|start| *start as usize <= entry)
    }

    /// Whether the trace has PyTorch's own marks of optimizer steps.
    pub(crate) fn has_marked_steps(&self) -> bool {
        self.named.has_optimizer()
    }

    /// Whether an optimizer's step is in the trace.
    pub(crate) fn has_optimizer(&self) -> bool {
        self.named.has_optimizer() || self.runs.iter().any(|run| run.phase == Phase::Optimizer)
    }

    /// Whether code of the program's own steps as an optimizer of PyTorch's kind.
    pub(crate) fn has_own_optimizer(&self) -> bool {
        self.signs.iter().flatten().any(|signs| signs.own == Some(Own::Step))
    }

    /// The first entry after each `Optimizer.zero_grad`.
    pub(crate) fn zero_grad_ends(&self) -> &[u32] {
        &self.named.zero_grad_ends
    }

    /// The runs of phases, oldest first.
    pub(crate) fn runs(&self) -> &[PhaseRun] {
        &self.runs
    }

    /// The entries at which steps end: the first entry after each.
    pub(crate) fn step_ends(&self) -> &[u32] {
        self.steps.ends()
    }

    /// What a stack says that an entry of this trace has, or a block at its end.
    pub(crate) fn signs_of(&self, stack: StackId) -> Signs {
        debug_assert!(self.signs[stack.index()].is_some(), "a stack of this trace was read");
        self.signs[stack.index()].unwrap_or_default()
    }

    fn run_of(&self, entry: usize) -> Option<usize> {
        self.runs.partition_point(|run| run.start as usize <= entry).checked_sub(1)
    }
}

/// What is known of an allocation's phase before those around it are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hint {
    Is(Phase),
    /// The program's own code, called by no engine.
    Program,
    None,
}

impl Hint {
    fn phase(self) -> Option<Phase> {
        match self {
            Self::Is(phase) => Some(phase),
            Self::Program | Self::None => None,
        }
    }
}

/// What is known of the phase of each allocation of `device`, from where it changes on.
fn hints(
    device: Device<'_>,
    named: &Named,
    read: &mut impl FnMut(StackId) -> Signs,
) -> Vec<(u32, Hint)> {
    let mut hints: Vec<(u32, Hint)> = Vec::new();
    let mut hinted = |index: usize, hint: Hint| {
        if hints.last().is_none_or(|(_, last)| *last != hint) {
            hints.push((row(index), hint));
        }
    };
    let mut steps = named.step_starts.iter().map(|start| *start as usize).peekable();
    for index in 0..device.len() {
        // What frees a block tells as well, of the block.
        let signs = device.stack(index).map(&mut *read).unwrap_or_default();
        // A failed request is an allocation that was tried; frees follow what is allocated around them.
        if !matches!(device.action(index), Some(Action::Alloc | Action::Oom)) {
            continue;
        }
        // A step that allocates nothing parts what is freed after it from the phase before it.
        while let Some(start) = steps.next_if(|start| *start <= index) {
            if start < index {
                hinted(start, Hint::Is(Phase::Optimizer));
            }
        }
        let can_be =
            |phase: &Phase| signs.caller != Some(Caller::Optimizer) || *phase != Phase::Optimizer;
        hinted(
            index,
            match signs.phase.or_else(|| named.phase_at(index).filter(can_be)) {
                Some(phase) => Hint::Is(phase),
                None if signs.caller.is_some() => Hint::Program,
                None => Hint::None,
            },
        );
    }
    hints
}

/// Gives phases to allocations whose own stacks name none, by the phases around them.
fn resolve(hints: &[(u32, Hint)]) -> Vec<PhaseRun> {
    let mut runs: Vec<PhaseRun> = Vec::new();
    let mut before = None;
    // Of each, the next that names a phase.
    let mut next = None;
    let mut nexts: Vec<Option<Phase>> = hints
        .iter()
        .rev()
        .map(|(_, hint)| {
            let after = next;
            next = hint.phase().or(next);
            after
        })
        .collect();
    nexts.reverse();
    for ((start, hint), after) in hints.iter().zip(nexts) {
        let phase = hint.phase().unwrap_or_else(|| match between(before, after) {
            // What a backward pass calls is not called from the top.
            Phase::Backward if *hint == Hint::Program => Phase::Other,
            phase => phase,
        });
        before = hint.phase().or(before);
        if runs.last().is_none_or(|last| last.phase != phase) {
            runs.push(PhaseRun { start: *start, phase });
        }
    }
    runs
}

/// What the program's own code does between two phases.
fn between(before: Option<Phase>, after: Option<Phase>) -> Phase {
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
    fn silent_code_takes_its_phase_from_around_it() {
        use Phase::{Backward, Data, Forward, Init, Optimizer, Other};
        let of = |before, after| between(before, after);
        assert_eq!(of(Some(Init), Some(Forward)), Data);
        assert_eq!(of(Some(Optimizer), Some(Forward)), Data);
        assert_eq!(of(Some(Forward), Some(Backward)), Forward, "the loss");
        assert_eq!(of(Some(Forward), None), Forward);
        assert_eq!(of(Some(Backward), Some(Backward)), Backward);
        assert_eq!(of(Some(Backward), Some(Optimizer)), Other);
        assert_eq!(of(Some(Optimizer), Some(Optimizer)), Other);
        assert_eq!(of(None, None), Other);
    }

    #[test]
    fn runs_are_joined() {
        use Phase::{Backward, Forward, Other};
        let hints = [
            (0, Hint::Is(Forward)),
            (4, Hint::Program),
            (5, Hint::Is(Forward)),
            (9, Hint::Is(Backward)),
            (12, Hint::None),
            (14, Hint::Is(Backward)),
            (15, Hint::Program),
            (18, Hint::Is(Backward)),
        ];
        let starts: Vec<(u32, Phase)> =
            resolve(&hints).iter().map(|run| (run.start, run.phase)).collect();
        assert_eq!(starts, [(0, Forward), (9, Backward), (15, Other), (18, Backward)]);
    }
}
