//! Forward passes with the backward passes that follow them.

use std::ops::Range;

use super::recording::Recording;
use crate::calls::What;
use crate::ids::row;
use crate::phases::Phase;

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
pub(super) fn passes(recording: &Recording<'_, '_>) -> Vec<Pass> {
    let mut passes: Vec<Pass> = Vec::new();
    let (mut forward, mut backward): (Option<u32>, Option<u32>) = (None, None);
    let mut fed = None;
    let mut close = |forward: &mut Option<u32>, backward: &mut Option<u32>, end: u32| {
        if let (Some(first), Some(turn)) = (*forward, *backward) {
            passes.push(Pass { forward: first..turn, backward: turn..end, is_cut: false });
            (*forward, *backward) = (None, None);
        }
    };
    for act in &recording.script.acts {
        let What::Ask(_) = act.what else { continue };
        match recording.phase_of(act.like) {
            Phase::Forward => {
                close(&mut forward, &mut backward, act.like);
                forward = forward.or(fed.take()).or(Some(act.like));
            }
            Phase::Data => {
                close(&mut forward, &mut backward, act.like);
                fed.get_or_insert(act.like);
            }
            Phase::Backward if forward.is_some() => _ = backward.get_or_insert(act.like),
            Phase::Backward => {}
            _ => {
                close(&mut forward, &mut backward, act.like);
                fed = None;
            }
        }
    }
    let end = row(recording.script.acts.len());
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
pub(super) fn forward_of(passes: &[Pass], call: u32) -> Option<usize> {
    let after = passes.partition_point(|pass| pass.forward.start <= call);
    let pass = after.checked_sub(1)?;
    passes[pass].forward.contains(&call).then_some(pass)
}
