//! Forward passes with the backward passes that follow them.

use std::ops::Range;

use super::recorded_program::RecordedProgram;
use crate::base::ids::to_u32;
use crate::replay::ops::ScriptOpKind;
use crate::stacks::phases::Phase;

/// A forward pass, and the backward pass that it was made for. Ranges are of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pass {
    /// With what it is fed.
    pub(super) forward: Range<u32>,
    /// From its first request to the first of what comes after it, with what is freed in between. Empty of a last pass
    /// that the recording ends in.
    pub(super) backward: Range<u32>,
    /// Whether the recording may end before it is over: nothing is asked for after it.
    pub(super) is_cut: bool,
}

/// The passes of `recording`, in order. Of forward passes without a backward pass only the last is one.
pub(super) fn find_passes(recording: &RecordedProgram<'_, '_>) -> Vec<Pass> {
    let asks = recording.script.ops.iter().filter(|act| matches!(act.kind, ScriptOpKind::Alloc(_)));
    let asks = asks.map(|act| (act.source, recording.phase_at(act.source)));
    split_into_passes(asks, to_u32(recording.script.ops.len()))
}

/// The passes of a program of so many calls, which `asks` for memory in these phases.
fn split_into_passes(asks: impl Iterator<Item = (u32, Phase)>, end: u32) -> Vec<Pass> {
    let mut passes: Vec<Pass> = Vec::new();
    let (mut forward, mut backward): (Option<u32>, Option<u32>) = (None, None);
    let mut fed = None;
    let mut close = |forward: &mut Option<u32>, backward: &mut Option<u32>, end: u32| {
        if let (Some(first), Some(turn)) = (*forward, *backward) {
            passes.push(Pass { forward: first..turn, backward: turn..end, is_cut: false });
            (*forward, *backward) = (None, None);
        }
    };
    for (call, phase) in asks {
        match phase {
            Phase::Forward => {
                close(&mut forward, &mut backward, call);
                forward = forward.or(fed.take()).or(Some(call));
            }
            Phase::Data => {
                close(&mut forward, &mut backward, call);
                fed.get_or_insert(call);
            }
            Phase::Backward => {
                // What was fed in the midst of a pass is not of the next.
                fed = None;
                if forward.is_some() {
                    backward.get_or_insert(call);
                }
            }
            _ => {
                close(&mut forward, &mut backward, call);
                fed = None;
            }
        }
    }
    close(&mut forward, &mut backward, end);
    if let (Some(first), None) = (forward, backward) {
        passes.push(Pass { forward: first..end, backward: end..end, is_cut: true });
    }
    if let Some(last) = passes.last_mut() {
        last.is_cut |= last.backward.end == end;
    }
    passes
}

/// Which of `passes` has `call` in its forward pass.
pub(super) fn forward_pass_of(passes: &[Pass], call: u32) -> Option<usize> {
    let after = passes.partition_point(|pass| pass.forward.start <= call);
    let pass = after.checked_sub(1)?;
    passes[pass].forward.contains(&call).then_some(pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(phases: &[Phase]) -> Vec<(Range<u32>, Range<u32>, bool)> {
        let asks = phases.iter().enumerate().map(|(at, phase)| (to_u32(at), *phase));
        let passes = split_into_passes(asks, to_u32(phases.len()));
        passes.into_iter().map(|pass| (pass.forward, pass.backward, pass.is_cut)).collect()
    }

    #[test]
    fn passes_follow_one_another() {
        use Phase::{Backward, Data, Forward, Optimizer};
        let two = [Data, Forward, Backward, Optimizer, Forward, Backward];
        assert_eq!(ranges(&two), [(0..2, 2..3, false), (4..5, 5..6, true)]);
        // A batch that is copied ahead in the midst of a pass.
        let ahead = [Forward, Data, Backward, Forward, Backward, Optimizer];
        assert_eq!(ranges(&ahead), [(0..2, 2..3, false), (3..4, 4..5, false)]);
        assert_eq!(
            ranges(&[Forward, Backward, Forward]),
            [(0..1, 1..2, false), (2..3, 3..3, true)]
        );
        assert_eq!(ranges(&[Backward, Optimizer]), []);
    }
}
