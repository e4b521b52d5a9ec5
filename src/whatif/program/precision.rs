//! Numbers of half the size: the model with all that follows from it, or what is kept for the backward pass.

use super::change::{ChangedProgram, ProgramChange, ChangeCertainty};
use super::passes::{Pass, find_passes};
use super::recorded_program::RecordedProgram;
use crate::base::ids::to_u32;
use crate::base::intern::SeededSet;
use crate::study::attribution::Category;

/// What is called where a program computes in half precision already.
const HALF_PRECISION_FUNCTIONS: [&str; 6] =
    ["half", "bfloat16", "to_half", "autocast_decorator", "decorate_autocast", "_unscale_grads_"];

/// Sizes of parameters that tell.
const MIN_PARAMETER_SIZES: usize = 3;

/// The model in half precision, where no stack shows that it is.
pub(super) fn halve_precision(recording: &RecordedProgram<'_, '_>) -> Vec<ChangedProgram> {
    changed(recording).into_iter().collect()
}

fn changed(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let snapshot = recording.device.snapshot();
    let is_half =
        || snapshot.stacks.all_frames().any(|frame| HALF_PRECISION_FUNCTIONS.contains(&snapshot.text(frame.name)));
    let purposes = recording.categories();
    if !purposes.contains(&Category::Parameters) || is_half() || casts_parameters(recording) {
        return None;
    }
    let is_one = |block: u32| {
        !matches!(purposes[block as usize], Category::Inputs | Category::Other)
            && !recording.is_cublas_workspace(block)
    };
    let mut script = recording.script.clone();
    for (number, block) in script.blocks.iter_mut().enumerate() {
        if is_one(to_u32(number)) {
            block.bytes = block.bytes.div_ceil(2);
        }
    }
    let parameters = |block: &u32| purposes[*block as usize] == Category::Parameters;
    Some(ChangedProgram {
        change: ProgramChange::HalfPrecision,
        certainty: ChangeCertainty::Guess,
        description: "the model in bfloat16, if it is not".to_owned(),
        line: recording.largest_line((0..to_u32(script.blocks.len())).filter(parameters)),
        bytes_at_peak: recording.bytes_at_peak(is_one),
        script,
    })
}

/// Whether a forward pass makes copies of half the size of nearly all parameters, as autocast does: activations have
/// the half of some by chance.
fn casts_parameters(recording: &RecordedProgram<'_, '_>) -> bool {
    let purposes = recording.categories();
    let (mut parameters, mut made) = (SeededSet::default(), SeededSet::default());
    let passes = find_passes(recording);
    // The longest pass: the first may be the last.
    let longest = passes.iter().max_by_key(|pass| pass.forward.len());
    for (block, purpose) in recording.script.blocks.iter().zip(purposes) {
        let is_made = |pass: &Pass| block.allocated_at.is_some_and(|call| pass.forward.contains(&call));
        if *purpose == Category::Parameters {
            parameters.insert(block.bytes);
        } else if longest.is_some_and(is_made) {
            made.insert(block.bytes);
        }
    }
    let cast = parameters.iter().filter(|size| made.contains(&(*size / 2))).count();
    parameters.len() >= MIN_PARAMETER_SIZES && cast * 5 >= parameters.len() * 4
}
