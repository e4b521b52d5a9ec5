//! The model in half precision.

use super::recorded_program::{RecordedProgram, find_passes};
use super::report::{ChangedProgram, ProgramChange};
use crate::base::ids::to_u32;
use crate::base::intern::SeededMap;
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
    let snapshot = recording.device.snapshot();
    let is_half =
        || snapshot.stacks.all_frames().any(|frame| HALF_PRECISION_FUNCTIONS.contains(&snapshot.text(frame.name)));
    let categories = recording.categories();
    let seen = parameters_seen(recording);
    // If the recorder saw the parameters, functions that convert something are no evidence.
    let is_half = || seen.map_or_else(is_half, |[full, all]| full < all - full);
    if !categories.contains(&Category::Parameters) || is_half() || casts_parameters(recording) {
        return None;
    }
    let is_halved = |block: u32| {
        !matches!(categories[block as usize], Category::Inputs | Category::Other)
            && recording.dtype(block).is_none_or(|dtype| dtype == FULL_PRECISION)
            && !recording.is_cublas_workspace(block)
    };
    let description = match seen {
        Some(_) => "run the model in bfloat16 where it is float32",
        None => "run the model in bfloat16",
    };
    let is_parameter = |block: &u32| categories[*block as usize] == Category::Parameters;
    let line = recording.largest_line((0..to_u32(categories.len())).filter(is_parameter));
    let change = (ProgramChange::HalfPrecision, Sureness::Estimate);
    let changed = recording.resized_by(change, description, is_halved, |bytes| bytes.div_ceil(2));
    Some(ChangedProgram { line, ..changed })
}

/// Bytes of the parameters whose type the recorder saw: those in full precision, and all; `None` if it saw none.
fn parameters_seen(recording: &RecordedProgram<'_, '_>) -> Option<[u64; 2]> {
    let categories = recording.categories().iter().enumerate();
    let seen = categories.filter(|(_, category)| **category == Category::Parameters).filter_map(|(index, _)| {
        let block = to_u32(index);
        Some((recording.dtype(block)?, recording.rounded_bytes(block)))
    });
    let [full, all] = seen.fold([0u64; 2], |[full, all], (dtype, bytes)| {
        let of_full = if dtype == FULL_PRECISION { bytes } else { 0 };
        [full.saturating_add(of_full), all.saturating_add(bytes)]
    });
    (all > 0).then_some([full, all])
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
    let casts = |size: &u64| allocated_in_forward.get(&(size / 2)).copied().unwrap_or(0);
    let any = parameters.keys().filter(|size| casts(size) > 0).count();
    let each = parameters.iter().filter(|(size, count)| casts(size) >= **count).count();
    parameters.len() >= MIN_PARAMETER_SIZES && (any * 5 >= parameters.len() * 4 || each * 4 >= parameters.len() * 3)
}
