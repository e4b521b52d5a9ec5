//! Classifies sets of blocks that have the sizes of the parameters: state of custom optimizers, copies of weights or
//! gradients. Their stacks do not show the purpose, but no other memory has these sizes.

use rustc_hash::FxHashMap;

use super::block_lives::BlockLives;
use super::live_set::{LiveBlock, LiveSet, TracePoint};
use super::named::NamedBlocks;
use super::trace_counts::TraceCounts;
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::snapshot::Stacks;
use crate::stacks::phases::{KnownPurpose, Phase, Phases, Routine};
use crate::study::category::Category::{self, Gradients, OptimizerState, Parameters, Temporaries};
use crate::study::category::Classification;
use crate::study::category::Confidence::{self, Low, Medium};

/// Possible sizes of a parameter and of its copy, in the same or another precision, as a ratio.
const PRECISION_SCALES: [(u64, u64); 5] = [(1, 1), (1, 2), (1, 4), (2, 1), (4, 1)];
/// Minimum number of blocks of a set that copies less than half of the parameters.
const MIN_BLOCKS: u64 = 8;

/// Maximum number of copies that one line makes. A checkpoint may have weights, their average and two moments.
const MAX_COPIES: u64 = 4;

fn total_bytes(sizes: &SizeCounts) -> u64 {
    sizes.iter().fold(0, |all, (size, blocks)| all.saturating_add(size.saturating_mul(*blocks)))
}

/// Whether `set` consists of one or more copies of `parameters`, or of a large part of them.
fn is_copy(set: &SizeCounts, parameters: &SizeCounts) -> bool {
    let blocks: u64 = set.values().sum();
    PRECISION_SCALES.iter().any(|(parameter_scale, copy_scale)| {
        let (mut matched, mut matched_sizes, mut copied) = (0_u64, 0_u64, 0_u64);
        for (size, blocks) in set {
            let scaled = size.checked_mul(*parameter_scale);
            let Some(scaled) = scaled.filter(|size| size % copy_scale == 0) else { continue }; // no whole elements
            let parameter_size = scaled / copy_scale;
            let Some(available) = parameters.get(&parameter_size) else { continue }; // no such parameter
            matched = matched.saturating_add(size.saturating_mul((*blocks).min(available * MAX_COPIES)));
            matched_sizes += 1;
            copied = copied.saturating_add(parameter_size.saturating_mul((*blocks).min(*available)));
        }
        // One block may have a parameter's size by chance, such as a batch.
        matched_sizes > 1
            && matched >= total_bytes(set) / 20 * 19
            && (copied >= total_bytes(parameters) / 2 || blocks >= MIN_BLOCKS && set.len() > 2)
    })
}

/// The parameters of one of several equal models, such as a model and its average: only one has `gradients`.
fn one_model(parameters: &SizeCounts, gradients: &SizeCounts) -> SizeCounts {
    let with_gradients = parameters.iter().filter(|(size, _)| gradients.contains_key(*size));
    let with_gradients: SizeCounts = with_gradients.map(|(size, count)| (*size, *count)).collect();
    let models = total_bytes(&with_gradients).saturating_mul(2) / total_bytes(gradients).max(1);
    let models = models.div_ceil(2).max(1);
    parameters.iter().map(|(size, count)| (*size, count.div_ceil(models))).collect()
}

/// Reclassifies the blocks that form copies of the parameters, unless their own stacks and lifetimes are conclusive.
pub(super) fn classify_copies(live_set: &LiveSet, classified: &mut [Classification], lifetimes: &BlockLives<'_>) {
    let counts = &lifetimes.counts;
    let parameters = count_parameters(live_set, classified, counts.phases);
    let left = counts.sizes.gradients.iter().map(|(size, blocks)| (*size, u64::from(*blocks)));
    let gradients: SizeCounts = left.collect();
    let program = ProgramTraits {
        counts,
        named: &lifetimes.named,
        has_state: classified.contains(&(OptimizerState, Confidence::High)),
        has_custom_optimizer: counts.phases.has_custom_optimizer(),
    };
    let mut unmatched: Vec<Vec<usize>> = Vec::new();
    for (sizes, mut places) in possible_copies(live_set, classified, counts).into_values() {
        let copies_model = is_copy(&sizes, &parameters);
        if !copies_model && !is_copy(&sizes, &gradients) {
            continue;
        }
        places.sort_unstable_by_key(|at| live_set.blocks[*at].allocated_at);
        if places.iter().all(|at| program.is_loaded(&live_set.blocks[*at])) {
            let copied = if copies_model { one_model(&parameters, &gradients) } else { gradients.clone() };
            // Loaded weights are copied into an existing model; without one, they become the model.
            let weights = if copies_model { Category::Other } else { Parameters };
            for (at, is_weight) in places.iter().zip(program.find_weights(live_set, &places, &copied)) {
                classified[*at] = (if is_weight { weights } else { OptimizerState }, Low);
            }
            continue;
        }
        for at in &places {
            classified[*at] = program.classify(&live_set.blocks[*at]);
        }
        if !copies_model {
            unmatched.push(places);
        }
    }
    // If no module has the parameters, the first copy counts as them.
    if lifetimes.starts_empty
        && total_bytes(&parameters) < total_bytes(&gradients) / 2
        && let Some(places) = unmatched.into_iter().min_by_key(|places| live_set.blocks[places[0]].allocated_at)
    {
        let copied = weights_len(places.iter().map(|at| &live_set.blocks[*at].requested_bytes), &gradients);
        for at in places.into_iter().take(copied.unwrap_or(0)) {
            if classified[at].0 == OptimizerState {
                classified[at] = (Parameters, Low);
            }
        }
    }
}

/// The parameters of modules, without those that were gathered from shards for a pass.
fn count_parameters(live_set: &LiveSet, classified: &[Classification], phases: &Phases) -> SizeCounts {
    let mut parameters = SizeCounts::default();
    for (block, classification) in live_set.blocks.iter().zip(classified) {
        if *classification == (Parameters, Confidence::High)
            && phases.stack_traits(block.stack).purpose != Some(KnownPurpose::GatheredParameters)
        {
            *parameters.entry(block.requested_bytes).or_default() += 1;
        }
    }
    parameters
}

/// By stack, the blocks that may belong to a copy: their sizes and their indexes in the live set.
type CopySets = FxHashMap<StackId, (SizeCounts, Vec<usize>)>;

fn possible_copies(live_set: &LiveSet, classified: &[Classification], counts: &TraceCounts<'_>) -> CopySets {
    let mut sets = CopySets::default();
    for (at, block) in live_set.blocks.iter().enumerate() {
        if may_be_copy(block, classified[at], counts) {
            let (sizes, places) = sets.entry(block.stack).or_default();
            *sizes.entry(block.requested_bytes).or_default() += 1;
            places.push(at);
        }
    }
    sets
}

/// Whether a block may belong to a copy: its classification is uncertain, and no pass allocated it.
fn may_be_copy(block: &LiveBlock, (_, confidence): Classification, counts: &TraceCounts<'_>) -> bool {
    let traits = counts.phases.stack_traits(block.stack);
    let phase = match block.allocated_at {
        Some(allocated_at) => Some(counts.phase(allocated_at)),
        None if block.stack == Stacks::EMPTY => return false, // its line is unknown
        None => traits.phase,
    };
    confidence != Confidence::High
        && traits.purpose != Some(KnownPurpose::OptimizerStep)
        && !matches!(phase, Some(Phase::Forward | Phase::Backward))
}

/// Facts about the program as a whole.
struct ProgramTraits<'a> {
    counts: &'a TraceCounts<'a>,
    named: &'a NamedBlocks,
    /// A PyTorch optimizer has created its state.
    has_state: bool,
    /// The program has an optimizer of its own.
    has_custom_optimizer: bool,
}

impl ProgramTraits<'_> {
    fn is_loaded(&self, block: &LiveBlock) -> bool {
        block.allocated_at.is_some()
            && self.counts.phases.stack_traits(block.stack).routine == Some(Routine::FileLoader)
    }

    /// Whether each of the loaded blocks at `places` of `live_set`, in the order of allocation, belongs to weights rather
    /// than to optimizer state.
    fn find_weights(&self, live_set: &LiveSet, places: &[usize], copied: &SizeCounts) -> Vec<bool> {
        if self.has_state {
            return vec![true; places.len()];
        }
        let mut blocks = places.iter().map(|at| &live_set.blocks[*at]);
        if blocks.clone().any(|block| self.named.is_optimizer_state(block)) {
            return blocks.clone().map(|block| !self.named.is_optimizer_state(block)).collect();
        }
        let sizes: Vec<u64> = blocks.clone().map(|block| block.requested_bytes).collect();
        let freed = blocks.next().map_or(0, |block| self.counts.free_counts(block.stack).before_any_backward());
        find_weights(&sizes, copied, freed as usize > sizes.len() / 2)
    }

    /// Whether `point` is after a backward pass and before the optimizer step of the same training step.
    fn waits_for_optimizer(&self, point: TracePoint) -> bool {
        let step = self.counts.step_at(point).and_then(|step| self.counts.phases.steps.entries(step));
        step.is_some_and(|step| self.counts.backward_passes_before(step.start) < self.counts.backward_passes_at(point))
    }

    /// The category of a block of a copy that is older than the trace.
    fn classify_older(&self, block: &LiveBlock) -> Classification {
        let traits = self.counts.phases.stack_traits(block.stack);
        let is_state = match traits.routine {
            Some(Routine::OptimizerConstructor | Routine::OptimizerStep) => true,
            Some(Routine::Constructor) => self.has_custom_optimizer,
            _ => traits.phase == Some(Phase::Optimizer),
        };
        (if is_state { OptimizerState } else { Parameters }, Low)
    }

    /// The category of a block of a copy.
    fn classify(&self, block: &LiveBlock) -> Classification {
        // Older than the recording.
        let Some(allocated_at) = block.allocated_at else { return self.classify_older(block) };
        let is_trained = self.counts.backward_passes_at(allocated_at) > 0;
        let counts = self.counts.free_counts(block.stack);
        let in_optimizer = self.counts.phase(allocated_at) == Phase::Optimizer;
        let passes = match block.freed_at {
            Some(freed) if freed.run == allocated_at.run && in_optimizer => return (Temporaries, Medium),
            None if counts.in_run > 0 && in_optimizer => return (Temporaries, Medium),
            Some(freed) => Some(self.counts.backward_passes_at(freed) - self.counts.backward_passes_at(allocated_at)),
            None if counts.before_any_backward() + counts.after_backward_start > 0 => Some(counts.max_passes),
            None => None,
        };
        // A copy of gradients is made before the optimizer step and freed before the next pass ends. State that each step
        // replaces lives as long, but is allocated within the step.
        let is_short = passes.is_some_and(|passes| passes <= u32::from(!in_optimizer));
        if is_short && self.waits_for_optimizer(allocated_at) {
            return (Gradients, Medium);
        }
        let routine = self.counts.phases.stack_traits(block.stack).routine;
        match (is_trained, self.counts.phases.has_optimizer()) {
            _ if routine == Some(Routine::OptimizerConstructor) || in_optimizer => (OptimizerState, Medium),
            // Copied from parameters or gradients for the following step, such as the weights that SAM restores.
            (true, true) if self.waits_for_optimizer(allocated_at) => (OptimizerState, Low),
            (true, false) => (OptimizerState, Medium),
            (false, _) if routine == Some(Routine::Constructor) && self.has_custom_optimizer => {
                (OptimizerState, Medium)
            }
            (false, true) => (Parameters, Medium),
            (false, false) if self.counts.has_backward() => (OptimizerState, Low),
            // An average of the weights, if training has begun: the optimizer's state is classified already.
            (true, true) | (false, false) => (Parameters, Low),
        }
    }
}

/// Number of blocks by requested size.
pub(super) type SizeCounts = SeededMap<u64, u64>;

/// Number of tensors of state that an optimizer has for each parameter: Adam, and Adam with the maximum (`amsgrad`).
const STATES: [usize; 2] = [2, 3];

/// Whether each tensor of a checkpoint belongs to weights. `sizes` are in the order of allocation, `parameters` counts
/// the parameters of each size. `is_partly_freed`: other tensors of the checkpoint were freed before the first step.
pub(super) fn find_weights(sizes: &[u64], parameters: &SizeCounts, is_partly_freed: bool) -> Vec<bool> {
    // Tensors of other sizes, such as step counters, belong to the next tensor of a parameter's size.
    let like_parameters: Vec<usize> = (0..sizes.len()).filter(|at| parameters.contains_key(&sizes[*at])).collect();
    let loaded: Vec<u64> = like_parameters.iter().map(|at| sizes[*at]).collect();
    let (mut is_weight, mut last_run) = (Vec::new(), 0);
    while is_weight.len() < loaded.len() {
        let rest = &loaded[is_weight.len()..];
        let present = present_in(rest.iter(), parameters);
        let blocks: u64 = present.values().sum();
        let state = STATES.map(|states| state_len(rest, states, present.clone())).into_iter().max().unwrap_or(0);
        let is_state = state == rest.len() || state as u64 >= blocks;
        let weights = if is_state { None } else { weights_len(rest.iter(), parameters) };
        last_run = weights.unwrap_or(0);
        // Tensors that match neither are weights if the state was found before.
        let run = weights.unwrap_or(if is_state { state } else { rest.len() });
        let are_weights = weights.is_some() || !is_state && is_weight.contains(&false);
        is_weight.extend(std::iter::repeat_n(are_weights, run));
    }
    // One tensor for each parameter may also be state that follows the weights, such as momentum.
    let others = is_weight.len() - last_run;
    if is_weight.iter().all(|is_weight| *is_weight) && (others > 0 || is_partly_freed) {
        is_weight[others..].fill(false);
    }
    let last = loaded.len().saturating_sub(1);
    let next = (0..sizes.len()).map(|at| like_parameters.partition_point(|like| *like < at).min(last));
    next.map(|next| is_weight.get(next).copied().unwrap_or(false)).collect()
}

/// The number of parameters in `sizes`, by size.
fn present_in<'s>(sizes: impl Iterator<Item = &'s u64>, parameters: &SizeCounts) -> SizeCounts {
    let mut present = SizeCounts::default();
    for size in sizes {
        let count = present.entry(*size).or_default();
        *count = (*count + 1).min(parameters.get(size).copied().unwrap_or(0));
    }
    present
}

/// Length of the prefix of `sizes` that has each parameter once; parameters whose size does not occur are ignored.
pub(super) fn weights_len<'s>(sizes: impl Iterator<Item = &'s u64> + Clone, parameters: &SizeCounts) -> Option<usize> {
    let mut missing = present_in(sizes.clone(), parameters);
    let total: u64 = missing.values().sum();
    let total = usize::try_from(total).ok().filter(|total| *total > 0)?;
    sizes.take(total).all(|size| take_one(&mut missing, *size)).then_some(total)
}

/// Length of the prefix of `sizes` that has `states` tensors in a row for each of the `missing` parameters.
fn state_len(sizes: &[u64], states: usize, mut missing: SizeCounts) -> usize {
    let groups = sizes.chunks_exact(states);
    groups.take_while(|group| group.iter().all(|size| *size == group[0]) && take_one(&mut missing, group[0])).count()
        * states
}

/// Removes one parameter of `size` from `missing`; returns whether there was one.
fn take_one(missing: &mut SizeCounts, size: u64) -> bool {
    let count = missing.get_mut(&size).filter(|count| **count > 0);
    count.map(|count| *count -= 1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(of: &[(u64, u64)]) -> SizeCounts {
        of.iter().copied().collect()
    }

    #[test]
    fn a_copy_has_the_sizes_of_the_parameters() {
        let parameters = sizes(&[(4096, 3), (1024, 6), (64, 1)]);
        assert!(is_copy(&parameters, &parameters));
        assert!(is_copy(&sizes(&[(8192, 3), (2048, 6), (128, 1)]), &parameters), "twice as precise");
        assert!(is_copy(&sizes(&[(4096, 6), (1024, 12), (64, 2)]), &parameters), "two copies");
        assert!(is_copy(&sizes(&[(4096, 3), (1024, 2)]), &parameters), "most of one copy");
        assert!(!is_copy(&sizes(&[(1024, 2)]), &parameters), "too few");
        assert!(!is_copy(&sizes(&[(4096, 1), (5000, 4)]), &parameters), "other sizes");
        assert!(!is_copy(&sizes(&[(4096, 40)]), &parameters), "many of one size");
        assert!(!is_copy(&sizes(&[(1024, 6), (64, 2)]), &parameters), "two small sizes");
        let small = sizes(&[(90_000, 2), (1024, 6), (64, 4), (32, 4)]);
        assert!(is_copy(&sizes(&[(1024, 5), (64, 2), (32, 1)]), &small), "many of three small sizes");
        assert!(!is_copy(&sizes(&[(1024, 4), (64, 2), (32, 1)]), &small), "few");
    }

    #[test]
    fn a_copy_has_19_of_20_bytes_in_parameter_sizes_and_half_of_all_parameters() {
        let parameters = sizes(&[(1000, 10), (100, 2)]);
        for (set, expected) in [
            (&[(1000, 5), (100, 1), (279, 1)][..], true), // 279 of 5,379
            (&[(1000, 5), (100, 1), (280, 1)], false),    // 280 of 5,380
            (&[(1000, 5), (100, 1)], true),               // half of 10,200
            (&[(1000, 4), (100, 1)], false),
            (&[(1000, 10)], false), // one size
        ] {
            assert_eq!(is_copy(&sizes(set), &parameters), expected, "{set:?}");
        }
        assert!(!is_copy(&sizes(&[(1000, 5), (100, 1)]), &sizes(&[(1000, 5)])), "of parameters of one size");
        assert_eq!(total_bytes(&sizes(&[(7, 3), (5, 2), (u64::MAX, 0)])), 31);
        assert_eq!(total_bytes(&sizes(&[(u64::MAX, 2)])), u64::MAX);
    }

    #[test]
    fn gradients_show_how_many_models_share_the_sizes() {
        let parameters = sizes(&[(1000, 4), (100, 3)]);
        let half = one_model(&parameters, &sizes(&[(1000, 2), (100, 2)]));
        assert_eq!(half.into_values().collect::<Vec<u64>>(), [2, 2]);
        for (gradients, count) in [
            ((1000, 1), 2), // four models
            ((5, 1), 7),    // no gradients
        ] {
            assert_eq!(one_model(&parameters, &sizes(&[gradients])).into_values().sum::<u64>(), count);
        }
        assert_eq!(one_model(&parameters, &parameters).into_values().sum::<u64>(), 7);
    }

    const MODEL: [u64; 4] = [800, 40, 300, 40];

    fn weights(checkpoint: &[&[u64]], is_partly_freed: bool) -> Vec<bool> {
        let parameters: SizeCounts = [(800, 1), (40, 2), (300, 1), (7, 1)].into_iter().collect();
        find_weights(&checkpoint.concat(), &parameters, is_partly_freed)
    }

    fn expected(parts: &[(bool, usize)]) -> Vec<bool> {
        parts.iter().flat_map(|(is_weight, count)| vec![*is_weight; *count]).collect()
    }

    #[test]
    fn adam_has_two_tensors_for_each_parameter() {
        let adam = [4, 800, 800, 4, 40, 40, 4, 300, 300, 4, 40, 40];
        assert_eq!(weights(&[&MODEL, &adam], false), expected(&[(true, 4), (false, 12)]));
        assert_eq!(weights(&[&adam, &MODEL], false), expected(&[(false, 12), (true, 4)]));
        assert_eq!(weights(&[&MODEL, &MODEL, &adam], false), expected(&[(true, 8), (false, 12)]), "and an average");
        assert_eq!(weights(&[&MODEL, &adam, &MODEL], false), expected(&[(true, 4), (false, 12), (true, 4)]));
        assert_eq!(weights(&[&adam], false), expected(&[(false, 12)]));
        let after_pairs = [&[800, 800, 40, 40, 40, 40, 300, 300][..], &[40, 40, 800, 300]];
        assert_eq!(weights(&after_pairs, false), expected(&[(false, 8), (true, 4)]), "two pairs of 40 are all");
    }

    #[test]
    fn layers_repeat() {
        let parameters: SizeCounts = [(800, 2), (300, 2), (40, 2)].into_iter().collect();
        let model = [800, 300, 40, 300, 40, 800];
        let adam = [800, 800, 300, 300, 40, 40, 300, 300, 40, 40, 800, 800];
        let is_weight = find_weights(&[&adam[..], &model, &model].concat(), &parameters, false);
        assert_eq!(is_weight, expected(&[(false, 12), (true, 12)]));
        let amsgrad: Vec<u64> = model.iter().flat_map(|size| [*size; 3]).collect();
        let is_weight = find_weights(&[&model[..], &amsgrad].concat(), &parameters, false);
        assert_eq!(is_weight, expected(&[(true, 6), (false, 18)]));
    }

    #[test]
    fn buffers_are_no_state() {
        let parameters: SizeCounts = [(800, 1), (40, 1), (300, 1)].into_iter().collect();
        let model = [800, 40, 40, 40, 300];
        let adam = [800, 800, 40, 40, 300, 300];
        let is_weight = find_weights(&[&adam[..], &model].concat(), &parameters, false);
        assert_eq!(is_weight, expected(&[(false, 6), (true, 5)]));
    }

    #[test]
    fn momentum_follows_the_weights() {
        assert_eq!(weights(&[&MODEL, &MODEL], false), expected(&[(true, 4), (false, 4)]));
        assert_eq!(weights(&[&MODEL], false), expected(&[(true, 4)]));
        assert_eq!(weights(&[&MODEL], true), expected(&[(false, 4)]), "the weights are gone");
    }

    #[test]
    fn frozen_parameters_have_no_state() {
        assert_eq!(weights(&[&MODEL, &[300, 300, 40, 40]], false), expected(&[(true, 4), (false, 4)]));
    }
}
