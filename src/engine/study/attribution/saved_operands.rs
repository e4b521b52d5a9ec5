//! Whether forward passes keep what a graph saves, or only what the program keeps itself.

use rustc_hash::FxHashSet;

use super::live_set::{LiveSet, TracePoint};
use crate::base::ids::to_u32;
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
    let calls = calls.map(|blocks| (blocks[0].1, blocks.iter().any(|(index, _)| live.contains(&Some(to_u32(*index))))));
    let calls: Vec<_> = calls.collect();
    let (mut operators, mut unsaved) = (0, 0);
    for pair in calls.windows(2) {
        let [((last_pass, _), is_operand_live), ((pass, stack), is_result_live)] = *pair else { continue };
        let frame = stacks.python_frame(stack);
        if last_pass == pass
            && frame.is_some_and(|frame| stacks.origin(frame) == Origin::Torch)
            && phases.stack_traits(stack).has_forward_frame
        {
            operators += 1;
            unsaved += usize::from(!is_operand_live && !is_result_live);
        }
    }
    unsaved * MAX_UNSAVED_PARTS <= operators
}
