//! Classifies blocks that are older than the trace and have no stack that shows their purpose.
//!
//! The time of its free shows the purpose of a block that is freed early in the trace. The others stay: parameters,
//! optimizer state, and gradients that are never dropped. A gradient and each tensor of optimizer state have the size
//! of their parameter, so the number of blocks of one size, divided by the number of gradients of that size, is the
//! number of copies.

use super::live_set::{LiveBlock, LiveSet};
use super::trace_counts::TraceCounts;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::{SeededMap, SeededSet};
use crate::stacks::phases::Phase;
use crate::study::category::{Category, Classification, Confidence};

/// Minimum number of tensors of a frozen model, whose parameters have no gradients.
const MIN_FROZEN: usize = 8;
/// Number of tensors of optimizer state per parameter: that of Adam and its variants.
const ADAM_STATES: usize = 2;
/// Buckets exceed the gradients in them by at most their size divided by this.
const MAX_BUCKET_PADDING: u64 = 20;
/// Maximum number of older blocks per parameter: with gradients, state, a master copy and an average.
const MAX_COPIES: usize = 6;

/// Classifies the older blocks among `live_set` that are [`Category::Other`] so far.
pub(super) fn classify_older_blocks(live_set: &LiveSet, classified: &mut [Classification], counts: &TraceCounts<'_>) {
    let unknown: Vec<usize> = (0..live_set.blocks.len())
        .filter(|at| live_set.blocks[*at].allocated_at.is_none() && classified[*at].0 == Category::Other)
        .collect();
    let mut older = OlderBlocks { counts, parameters: ParameterCounts::new(live_set, classified, counts) };
    let mut kept: SeededMap<u64, Vec<usize>> = SeededMap::default();
    for at in unknown {
        let block = &live_set.blocks[at];
        match older.classify_freed(block) {
            Some(classification) => classified[at] = classification,
            None => kept.entry(block.requested_bytes).or_default().push(at),
        }
    }
    older.classify_kept(kept, classified);
}

/// A requested size with the indexes of the blocks that have it.
type SizeGroup = (u64, Vec<usize>);

struct OlderBlocks<'a> {
    counts: &'a TraceCounts<'a>,
    parameters: ParameterCounts,
}

impl OlderBlocks<'_> {
    fn is_trained(&self) -> bool {
        self.counts.has_backward() || self.counts.phases.has_optimizer()
    }

    /// The category of a block that is freed before a second backward pass starts.
    fn classify_freed(&self, block: &LiveBlock) -> Option<Classification> {
        let freed = block.freed_at?;
        let passes = self.counts.backward_passes_at(freed);
        if !self.counts.has_backward() || passes > 1 {
            return None;
        }
        let is_like_gradient = self.counts.sizes.is_gradient(block.requested_bytes);
        if passes == 1 && self.counts.sizes.gradients.contains_key(&block.requested_bytes) {
            // The pass leaves a gradient of its own, so the end of the program frees this block.
            return None;
        }
        let is_in_backward = self.counts.phase(freed) == Phase::Backward && !block.is_freed_by_program();
        Some(match self.counts.phase(freed) {
            // The recording starts between the forward pass and the end of the backward pass.
            _ if is_in_backward && !(is_like_gradient && self.counts.may_have_ended(freed)) => {
                (Category::Activations, Confidence::Medium)
            }
            _ if is_like_gradient => (Category::Gradients, Confidence::Low),
            Phase::Optimizer => (Category::Temporaries, Confidence::Low),
            _ => (Category::Inputs, Confidence::Low),
        })
    }

    /// Classifies the blocks that stay, by requested size; the indexes of each size are in the order of addresses.
    fn classify_kept(&mut self, kept: SeededMap<u64, Vec<usize>>, classified: &mut [Classification]) {
        let mut sizes: Vec<SizeGroup> = kept.into_iter().collect();
        sizes.sort_unstable_by_key(|(size, _)| *size);
        self.parameters.add_computed_gradients(&sizes, self.counts);
        let mut unmatched = Vec::new();
        for (size, blocks) in sizes {
            let parameters = self.parameters.of_size(size);
            if parameters > 0 {
                self.classify_copies(size, parameters, &blocks, classified);
            } else {
                unmatched.push((size, blocks));
            }
        }
        let total = total_bytes(unmatched.iter());
        let gradients = self.parameters.bytes();
        let category = if unmatched.len() > 1 && total.abs_diff(gradients) <= gradients / MAX_BUCKET_PADDING {
            // Together as large as all gradients, which are sent in buckets (DDP) or are views of them.
            let are_separate = self.counts.max_left_for_optimizer() > gradients / 2;
            if are_separate { Category::Communication } else { Category::Gradients }
        } else if self.parameters.match_most(&unmatched, |size| size.is_multiple_of(2).then_some(size / 2)) {
            // Master copies and state in full precision, of parameters in half precision.
            Category::OptimizerState
        } else if self.parameters.match_most(&unmatched, |size| size.checked_mul(2)) {
            Category::Parameters
        } else {
            return self.classify_unmatched(&unmatched, classified);
        };
        for (_, blocks) in &unmatched {
            set_all(classified, blocks, category);
        }
    }

    /// Classifies `blocks` of one size, of which `parameters` are parameters.
    fn classify_copies(&self, size: u64, parameters: usize, blocks: &[usize], classified: &mut [Classification]) {
        let missing = parameters.saturating_sub(self.parameters.known.get(&size).map_or(0, |known| *known as usize));
        let copies = blocks.len().saturating_sub(missing).div_ceil(parameters);
        let has_state = self.parameters.states.contains(&size);
        let states = if has_state || !self.is_trained() { 0 } else { copies.min(ADAM_STATES) };
        // If every backward pass leaves new gradients, none are older than the trace.
        let has_gradients = !self.counts.sizes.gradients.contains_key(&size) && copies > states;
        // Parameters, gradients and state are allocated in this order, so mostly at ascending addresses.
        let gradients = missing + if has_gradients { parameters } else { 0 };
        let first_state = blocks.len().saturating_sub(states * parameters).max(gradients);
        for (nth, at) in blocks.iter().enumerate() {
            let category = match nth {
                n if n < missing => Category::Parameters,
                n if n < gradients => Category::Gradients,
                // More copies than an optimizer has: averages of the parameters.
                n if n < first_state => Category::Parameters,
                _ => Category::OptimizerState,
            };
            classified[*at] = (category, Confidence::Low);
        }
    }

    /// Classifies blocks whose size no gradient has.
    fn classify_unmatched(&self, unmatched: &[SizeGroup], classified: &mut [Classification]) {
        let is_inference = !self.is_trained()
            && self.parameters.states.is_empty()
            && self.counts.phases.forwards_begun(usize::MAX) > 0;
        // Layers repeat, so most sizes of a model occur several times.
        let repeated = unmatched.iter().filter(|(_, blocks)| blocks.len() > 1);
        let is_model = repeated.clone().map(|(_, blocks)| blocks.len()).sum::<usize>() >= MIN_FROZEN;
        let is_most = total_bytes(repeated) >= total_bytes(unmatched.iter()) / 2;
        for (_, blocks) in unmatched {
            // Without training, the model is what stays; with training, its frozen part has no gradients.
            if is_inference || is_model && (is_most || blocks.len() > 1) {
                set_all(classified, blocks, Category::Parameters);
            }
        }
    }
}

fn total_bytes<'g>(groups: impl Iterator<Item = &'g SizeGroup>) -> u64 {
    groups.fold(0, |total, (size, blocks)| total.saturating_add(size.saturating_mul(blocks.len() as u64)))
}

fn set_all(classified: &mut [Classification], blocks: &[usize], category: Category) {
    for at in blocks {
        classified[*at] = (category, Confidence::Low);
    }
}

/// The number of parameters of each requested size.
struct ParameterCounts {
    /// From gradients or optimizer state.
    by_size: SeededMap<u64, u32>,
    /// Parameters that are known by their stacks.
    known: SeededMap<u64, u32>,
    /// The sizes of optimizer state that is known by its stacks.
    states: SeededSet<u64>,
}

impl ParameterCounts {
    fn new(live_set: &LiveSet, classified: &[Classification], counts: &TraceCounts<'_>) -> Self {
        let mut known: SeededMap<u64, u32> = SeededMap::default();
        let mut of_stacks: SeededMap<(StackId, u64), u32> = SeededMap::default();
        let blocks = live_set.blocks.iter().zip(classified);
        for (block, (category, _)) in blocks.filter(|(_, (_, confidence))| *confidence != Confidence::Low) {
            match category {
                Category::Parameters => *known.entry(block.requested_bytes).or_default() += 1,
                Category::OptimizerState => *of_stacks.entry((block.stack, block.requested_bytes)).or_default() += 1,
                _ => {}
            }
        }
        let states = of_stacks.keys().map(|(_, requested)| *requested).collect();
        let mut by_size = counts.sizes.gradients.clone();
        // One line makes a tensor of state for each parameter.
        for ((_, requested), blocks) in of_stacks {
            let most = by_size.entry(requested).or_default();
            *most = blocks.max(*most);
        }
        Self { by_size, known, states }
    }

    /// Adds sizes whose gradients do not outlive a backward pass: it accumulates them into older gradients or buckets,
    /// or an optimizer uses them within the pass. All parameters then have the same number of copies.
    fn add_computed_gradients(&mut self, sizes: &[SizeGroup], counts: &TraceCounts<'_>) {
        let mut bytes_by_copies = [0_u64; MAX_COPIES + 1];
        let mut added: Vec<(u64, usize, usize)> = Vec::new();
        for (size, blocks) in sizes.iter().filter(|(size, _)| !self.by_size.contains_key(size)) {
            let Some(computed) = counts.sizes.computed.get(size) else { continue };
            let (found, computed) = (blocks.len(), *computed as usize);
            added.push((*size, found, computed));
            let copies = found / computed;
            if found % computed == 0 && copies <= MAX_COPIES {
                bytes_by_copies[copies] = bytes_by_copies[copies].saturating_add(size.saturating_mul(found as u64));
            }
        }
        let most = bytes_by_copies.iter().enumerate().max_by_key(|(copies, bytes)| (**bytes, MAX_COPIES - copies));
        let copies = most.filter(|(_, bytes)| **bytes > 0).map_or(1, |(copies, _)| copies);
        for (size, found, computed) in added {
            let parameters = if found % copies == 0 { found / copies } else { computed.min(found) };
            self.by_size.insert(size, to_u32(parameters));
        }
    }

    /// The size of all gradients.
    fn bytes(&self) -> u64 {
        self.by_size.iter().fold(0, |all, (size, blocks)| all.saturating_add(size.saturating_mul(u64::from(*blocks))))
    }

    /// Whether most bytes of `groups` are in blocks for which `parameter_size` gives the size of a parameter.
    fn match_most(&self, groups: &[SizeGroup], parameter_size: impl Fn(u64) -> Option<u64>) -> bool {
        let matched =
            groups.iter().filter(|(size, _)| parameter_size(*size).is_some_and(|size| self.of_size(size) > 0));
        let matched = total_bytes(matched);
        matched > 0 && matched >= total_bytes(groups.iter()) / 10 * 9
    }

    fn of_size(&self, size: u64) -> usize {
        self.by_size.get(&size).map_or(0, |parameters| *parameters as usize)
    }
}
