//! Whether forward passes keep what a graph saves, or only what the program keeps itself.

use rustc_hash::FxHashSet;

use super::live_set::{LiveSet, TracePoint};
use crate::base::ids::{StackId, to_u32};
use crate::snapshot::Action;
use crate::stacks::frames::Origin;
use crate::study::DeviceStudy;

/// In a graph, at most one operator in this number has neither operand left: frozen layers save none.
const MAX_UNSAVED_PARTS: usize = 4;

/// Whether operators of PyTorch's modules still have their input or result, in the passes that made blocks at `points`. A
/// graph saves one of the two: that of a linear layer the input, that of a sigmoid the result. Without a graph, only what
/// the program keeps is live.
pub(super) fn has_saved_operands(device: DeviceStudy<'_, '_>, live_set: &LiveSet, points: &[TracePoint]) -> bool {
    let (trace, phases, stacks) = (device.device(), device.phases(), device.stacks());
    let live: FxHashSet<Option<u32>> = live_set.blocks.iter().map(|it| it.allocated_at.map(|at| at.entry)).collect();
    let passes: FxHashSet<usize> = points.iter().map(|at| phases.forwards_begun(at.entry as usize)).collect();
    let end = live_set.point.entry as usize;
    let requests = trace.entries_where(|action| action == Action::Alloc).take_while(|(index, _)| *index < end);
    let requests = requests.map(|(index, entry)| (index, (phases.forwards_begun(index), entry.stack)));
    let requests: Vec<_> = requests.filter(|(_, (pass, _))| passes.contains(pass)).collect();
    let calls = requests.chunk_by(|(last, call), (index, next)| last + 1 == *index && call == next);
    let is_live = |(index, _): &(usize, (usize, StackId))| live.contains(&Some(to_u32(*index)));
    let calls: Vec<_> = calls.map(|blocks| (blocks[0].1, blocks.iter().any(is_live))).collect();
    let is_torch = |stack| stacks.python_frame(stack).map(|frame| stacks.origin(frame)) == Some(Origin::Torch);
    let is_operator = |stack| is_torch(stack) && phases.stack_traits(stack).has_forward_frame;
    let operators = calls.windows(2).filter(|pair| pair[0].0.0 == pair[1].0.0 && is_operator(pair[1].0.1));
    let are_saved: Vec<bool> = operators.map(|pair| pair[0].1 || pair[1].1).collect();
    are_saved.iter().filter(|is_saved| !**is_saved).count() * MAX_UNSAVED_PARTS <= are_saved.len()
}
