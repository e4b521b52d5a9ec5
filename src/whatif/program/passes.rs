//! Pairs of a forward pass and its backward pass.

use std::ops::Range;

use super::recorded_program::RecordedProgram;
use crate::base::ids::to_u32;
use crate::replay::ops::ScriptOpKind;
use crate::stacks::phases::Phase;

/// A forward pass and its backward pass, as ranges of operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pass {
    /// Starts with the loading of its data.
    pub(super) forward: Range<u32>,
    /// Ends at the first request after the pass, so the frees in between belong to it. Empty if the recording ends in
    /// the forward pass.
    pub(super) backward: Range<u32>,
    /// The recording may end before the pass does: no request follows.
    pub(super) is_truncated: bool,
}

/// The passes of `recording`, in order. A forward pass without a backward pass counts only if it is the last one.
pub(super) fn find_passes(recording: &RecordedProgram<'_, '_>) -> Vec<Pass> {
    let requests = recording.script.ops.iter().filter(|op| matches!(op.kind, ScriptOpKind::Alloc(_)));
    let requests = requests.map(|op| (op.source, recording.phase_at(op.source)));
    split_into_passes(requests, to_u32(recording.script.ops.len()))
}

/// Splits a program of `end` operations into passes by its `requests` and their phases.
fn split_into_passes(requests: impl Iterator<Item = (u32, Phase)>, end: u32) -> Vec<Pass> {
    let mut passes: Vec<Pass> = Vec::new();
    let (mut forward, mut backward, mut data_start) = (None, None, None);
    // The end of the program ends a backward pass, as a request of another phase does.
    for (op, phase) in requests.chain([(end, Phase::Other)]) {
        if let (Some(first), Some(start)) = (forward, backward)
            && phase != Phase::Backward
        {
            passes.push(Pass { forward: first..start, backward: start..op, is_truncated: false });
            (forward, backward) = (None, None);
        }
        match phase {
            Phase::Forward => forward = forward.or(data_start.take()).or(Some(op)),
            Phase::Data => _ = data_start.get_or_insert(op),
            Phase::Backward => {
                // Data loaded before a backward pass ends does not start the next forward pass.
                data_start = None;
                backward = backward.or(forward.map(|_| op));
            }
            _ => data_start = None,
        }
    }
    if let Some(first) = forward {
        passes.push(Pass { forward: first..end, backward: end..end, is_truncated: true });
    }
    if let Some(last) = passes.last_mut() {
        last.is_truncated |= last.backward.end == end;
    }
    passes
}

/// The index of the pass that has `op` in its forward pass.
pub(super) fn forward_pass_of(passes: &[Pass], op: u32) -> Option<usize> {
    let after = passes.partition_point(|pass| pass.forward.start <= op);
    let pass = after.checked_sub(1)?;
    passes[pass].forward.contains(&op).then_some(pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(phases: &[Phase]) -> Vec<(Range<u32>, Range<u32>, bool)> {
        let requests = phases.iter().enumerate().map(|(at, phase)| (to_u32(at), *phase));
        let passes = split_into_passes(requests, to_u32(phases.len()));
        passes.into_iter().map(|pass| (pass.forward, pass.backward, pass.is_truncated)).collect()
    }

    #[test]
    fn passes_follow_one_another() {
        use Phase::{Backward, Data, Forward, Optimizer};
        let two = [Data, Forward, Backward, Optimizer, Forward, Backward];
        assert_eq!(ranges(&two), [(0..2, 2..3, false), (4..5, 5..6, true)]);
        // The next batch is prefetched in the middle of a pass.
        let ahead = [Forward, Data, Backward, Forward, Backward, Optimizer];
        assert_eq!(ranges(&ahead), [(0..2, 2..3, false), (3..4, 4..5, false)]);
        assert_eq!(ranges(&[Forward, Backward, Forward]), [(0..1, 1..2, false), (2..3, 3..3, true)]);
        assert_eq!(ranges(&[Backward, Optimizer]), []);
    }
}
