//! The model in half precision.

use super::recorded_program::{RecordedProgram, find_passes};
use super::report::{ChangedProgram, ProgramChange};
use crate::base::intern::SeededMap;
use crate::snapshot::Snapshot;
use crate::study::attribution::Category;
use crate::whatif::Sureness;

/// A stack with one of these functions shows that the program already computes in half precision.
const HALF_PRECISION_FUNCTIONS: [&str; 6] =
    ["half", "bfloat16", "to_half", "autocast_decorator", "decorate_autocast", "_unscale_grads_"];

/// The type of elements that half precision replaces.
const FULL_PRECISION: &str = "float32";

/// With fewer distinct parameter sizes, copies of half the size may be coincidence.
const MIN_PARAMETER_SIZES: usize = 3;

/// Halves parameters, gradients, optimizer state, activations and temporaries, unless the program already computes in
/// half precision.
pub(super) fn halve_precision(recording: &RecordedProgram<'_, '_>) -> Option<ChangedProgram> {
    let categories = recording.categories();
    let parameters = (0..).zip(categories).filter(|(_, category)| **category == Category::Parameters);
    let parameters: Vec<u32> = parameters.map(|(block, _)| block).collect();
    if parameters.is_empty() {
        return None;
    }
    // If the recorder saw the parameters, functions that convert something are no evidence.
    let (is_half, description) = match bytes_by_precision(recording, &parameters) {
        [0, 0] => (converts_to_half(recording.device.snapshot()), "run the model in bfloat16"),
        [full, others] => (full < others, "run the model in bfloat16 where it is float32"),
    };
    if is_half || casts_parameters(recording) {
        return None;
    }
    let is_halved: Vec<bool> = (0..)
        .zip(categories)
        .map(|(block, category)| {
            !matches!(category, Category::Inputs | Category::Other)
                && recording.dtype(block).is_none_or(|dtype| dtype == FULL_PRECISION)
                && !recording.is_cublas_workspace(block)
        })
        .collect();
    let line = recording.largest_line(parameters.into_iter());
    let change = (ProgramChange::HalfPrecision, Sureness::Estimate);
    let changed =
        recording.resized_by(change, description, |block| is_halved[block as usize], |bytes| bytes.div_ceil(2));
    Some(ChangedProgram { line, ..changed })
}

fn converts_to_half(snapshot: &Snapshot) -> bool {
    snapshot.stacks.all_frames().any(|frame| HALF_PRECISION_FUNCTIONS.contains(&snapshot.text(frame.name)))
}

/// Bytes of the `parameters` whose type the recorder saw: those in full precision, and the others.
fn bytes_by_precision(recording: &RecordedProgram<'_, '_>, parameters: &[u32]) -> [u64; 2] {
    let mut sums = [0u64; 2];
    for block in parameters {
        if let Some(dtype) = recording.dtype(*block) {
            let sum = &mut sums[usize::from(dtype != FULL_PRECISION)];
            *sum = sum.saturating_add(recording.rounded_bytes(*block));
        }
    }
    sums
}

/// Whether a forward pass allocates blocks of half the size of nearly all parameters, as autocast does; or of three sizes of
/// four and as many as there are parameters of each, since autocast leaves norms in full precision. Fewer may be
/// coincidence: activations have half the size of some parameters.
fn casts_parameters(recording: &RecordedProgram<'_, '_>) -> bool {
    let categories = recording.categories();
    let (mut parameters, mut allocated_in_forward) = (SeededMap::default(), SeededMap::default());
    let passes = find_passes(recording);
    // The longest pass, because the last one may be truncated.
    let longest = passes.iter().max_by_key(|pass| pass.forward.len());
    for (block, category) in recording.script.blocks.iter().zip(categories) {
        if *category == Category::Parameters {
            *parameters.entry(block.bytes).or_insert(0u64) += 1;
        } else if longest.is_some_and(|pass| block.allocated_at.is_some_and(|op| pass.forward.contains(&op))) {
            *allocated_in_forward.entry(block.bytes).or_insert(0u64) += 1;
        }
    }
    let casts = parameters.iter().map(|(size, count)| (*count, allocated_in_forward.get(&(size / 2)).copied()));
    let any = casts.clone().filter(|(_, casts)| casts.is_some()).count();
    let each = casts.filter(|(count, casts)| *casts >= Some(*count)).count();
    parameters.len() >= MIN_PARAMETER_SIZES && (any * 5 >= parameters.len() * 4 || each * 4 >= parameters.len() * 3)
}
