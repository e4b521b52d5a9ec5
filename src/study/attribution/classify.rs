//! Assigns a category to a block, by its stack, its lifetime, and the lifetimes of other blocks of that stack.
//! docs/where.md describes the same rules.

use rustc_hash::FxHashMap;

use super::category::{Category, Classification, Confidence};
use super::gradient_buckets::GradientBuckets;
use super::lifetimes::{GatherEvidence, Lifetimes};
use super::live_set::{LiveBlock, LiveSet, TracePoint};
use super::parameter_copies;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::{SeededMap, SeededSet};
use crate::stacks::phases::{KnownPurpose, Phase, Phases, StackTraits};

/// The category of each block of `live_set`, in order.
pub(super) fn classify(live_set: &LiveSet, lifetimes: &Lifetimes<'_>, phases: &Phases) -> Vec<Classification> {
    let mut classifier = Classifier {
        lifetimes,
        observed_until: live_set.observed_until.unwrap_or(live_set.point),
        parameters: SeededSet::default(),
        buckets: GradientBuckets::infer(live_set, lifetimes, phases),
        never_freed: FxHashMap::default(),
        phases,
    };
    for block in &live_set.blocks {
        classifier.count_never_freed(block);
    }
    let blocks = live_set.blocks.iter().map(|block| (block, phases.stack_traits(block.stack)));
    let mut classified: Vec<Classification> =
        blocks.clone().map(|(block, traits)| classifier.classify(block, traits)).collect();
    for (block, (category, _)) in live_set.blocks.iter().zip(&classified) {
        if *category == Category::Parameters {
            classifier.parameters.insert(block.requested_bytes);
        }
    }
    let state = parameter_counts_from_state(live_set, &classified);
    let mut unknown = Vec::new();
    for ((block, traits), classification) in blocks.zip(&mut classified) {
        match block.allocated_at {
            // Gradients and copies are recognized by the sizes of parameters, which are known now.
            Some(allocated_at) if matches!(lifetimes.phase(allocated_at), Phase::Backward | Phase::Data) => {
                *classification = classifier.classify(block, traits);
            }
            None if classification.0 == Category::Other => {
                unknown.push((block.requested_bytes, classification));
            }
            _ => {}
        }
    }
    classifier.classify_by_size(unknown, &state);
    classifier.buckets.yield_to_gradients(live_set, &mut classified, phases);
    parameter_copies::classify_copies(live_set, &mut classified, lifetimes, phases);
    classified
}

/// Number of parameters by size, inferred from optimizer state that is older than the recording: the number of tensors
/// of that size from one stack.
fn parameter_counts_from_state(live_set: &LiveSet, classified: &[Classification]) -> SeededMap<u64, u32> {
    let mut of_stacks: SeededMap<(StackId, u64), u32> = SeededMap::default();
    for (block, (category, _)) in live_set.blocks.iter().zip(classified) {
        if *category == Category::OptimizerState && block.allocated_at.is_none() {
            *of_stacks.entry((block.stack, block.requested_bytes)).or_default() += 1;
        }
    }
    let mut sizes: SeededMap<u64, u32> = SeededMap::default();
    for ((_, requested), blocks) in of_stacks {
        let most = sizes.entry(requested).or_default();
        *most = blocks.max(*most);
    }
    sizes
}

/// Maximum number of backward passes during the lifetime of an input, which may wait in a queue.
const MAX_INPUT_PASSES: u32 = 4;

struct Classifier<'a> {
    lifetimes: &'a Lifetimes<'a>,
    /// See [`LiveSet::observed_until`].
    observed_until: TracePoint,
    /// Requested sizes of parameters.
    parameters: SeededSet<u64>,
    /// Contents of DDP's buckets.
    buckets: GradientBuckets,
    /// For the blocks of each stack that were never freed: the number of backward passes that had started when the
    /// first and when the last of them was allocated.
    never_freed: FxHashMap<StackId, (u32, u32)>,
    phases: &'a Phases,
}

/// The lifetime of a block relative to the phase run that allocated it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lifetime {
    /// Freed within the run.
    InRun,
    /// Outlived the run.
    BeyondRun,
    /// The recording ends within the run, or does not show where the run ended.
    Unknown,
}

impl Classifier<'_> {
    fn classify(&self, block: &LiveBlock, traits: StackTraits) -> Classification {
        use Category::{Communication, Gradients, OptimizerState, Other, Parameters};
        use Confidence::High;
        match traits.purpose {
            Some(KnownPurpose::Workspace) => return (Other, High),
            Some(KnownPurpose::OptimizerState) => return (OptimizerState, High),
            Some(KnownPurpose::Parameters | KnownPurpose::GatheredParameters) => {
                return (Parameters, High);
            }
            Some(KnownPurpose::Communication) => return (Communication, High),
            Some(KnownPurpose::GradientBuckets) => return self.buckets.classification(),
            _ => {}
        }
        if block.freed_by.is_zero_grad && traits.purpose != Some(KnownPurpose::ReducedGradients) {
            // `zero_grad` drops gradients, whatever allocated them.
            return (Gradients, High);
        }
        let Some(allocated_at) = block.allocated_at else { return Self::classify_older(traits) };
        let lifetime = self.lifetime(block, allocated_at);
        if traits.purpose == Some(KnownPurpose::ReducedGradients) {
            return self.classify_reduced(block, lifetime);
        }
        match self.lifetimes.phase(allocated_at) {
            Phase::Init => self.classify_init(block, allocated_at, traits, lifetime),
            Phase::Data => self.classify_data(block, allocated_at),
            Phase::Forward => self.classify_forward(block, allocated_at),
            Phase::Backward => self.classify_backward(block, traits, lifetime),
            Phase::Optimizer => self.classify_optimizer(block, allocated_at, traits, lifetime),
            Phase::Other => self.classify_other(block, allocated_at),
        }
    }

    fn count_never_freed(&mut self, block: &LiveBlock) {
        if let (Some(allocated_at), None) = (block.allocated_at, block.freed_at) {
            let pass = self.lifetimes.backward_passes_at(allocated_at);
            let kept = self.never_freed.entry(block.stack).or_insert((pass, pass));
            *kept = (kept.0.min(pass), kept.1.max(pass));
        }
    }

    fn lifetime(&self, block: &LiveBlock, allocated_at: TracePoint) -> Lifetime {
        let in_backward = self.lifetimes.phase(allocated_at) == Phase::Backward;
        match block.freed_at {
            // User code runs after the pass.
            Some(_) if in_backward && block.is_freed_by_program() => Lifetime::BeyondRun,
            // The trace does not show the end of a backward pass if the optimizer neither allocates nor is annotated.
            Some(freed)
                if freed.run == allocated_at.run
                    && in_backward
                    && self.lifetimes.may_have_ended(freed)
                    && !self.phases.has_marked_steps() =>
            {
                Lifetime::Unknown
            }
            Some(freed) if freed.run == allocated_at.run => Lifetime::InRun,
            Some(_) => Lifetime::BeyondRun,
            None if self.observed_until.run != allocated_at.run => Lifetime::BeyondRun,
            None => Lifetime::Unknown,
        }
    }

    /// Classifies a block that is older than the trace by its stack alone.
    fn classify_older(traits: StackTraits) -> Classification {
        use Category::{Activations, Gradients, OptimizerState, Other, Parameters};
        use Confidence::{High, Low, Medium};
        match traits.phase {
            _ if traits.purpose == Some(KnownPurpose::ReducedGradients) => (Gradients, Low),
            Some(Phase::Init) if traits.purpose == Some(KnownPurpose::Model) => (Parameters, High),
            Some(Phase::Init) if traits.is_phase_weak => (Parameters, Low),
            Some(Phase::Init) => (Parameters, Medium),
            Some(Phase::Optimizer) => (OptimizerState, Medium),
            Some(Phase::Forward) => (Activations, Low),
            _ => (Other, Low),
        }
    }

    /// Classifies blocks that are older than the trace and have no stack by their sizes. Each gradient that backward
    /// passes left has a parameter of its size, which has up to two tensors of optimizer state. Optimizer state with
    /// stacks (`state`) gives the sizes too. In a program that only runs forward passes, older blocks are the model.
    fn classify_by_size(&self, unknown: Vec<(u64, &mut Classification)>, state: &SeededMap<u64, u32>) {
        use Category::{Gradients, OptimizerState, Parameters};
        let gradients = &self.lifetimes.gradient_sizes;
        let is_trained = self.lifetimes.has_backward() || self.phases.has_optimizer();
        let only_runs = !is_trained && state.is_empty() && self.phases.forwards_begun(usize::MAX) > 0;
        let mut seen: SeededMap<u64, u32> = SeededMap::default();
        for (requested, classified) in unknown {
            let parameters = gradients.get(&requested).or(state.get(&requested));
            let Some(&parameters) = parameters else {
                if only_runs {
                    *classified = (Parameters, Confidence::Low);
                }
                continue;
            };
            let seen = seen.entry(requested).or_default();
            *seen += 1;
            // Parameters were allocated first, so they have the lower addresses.
            let category = match *seen {
                n if n <= parameters => Parameters,
                n if !state.is_empty() && n <= parameters.saturating_mul(2) => Gradients,
                n if state.is_empty() && self.phases.has_optimizer() && n <= parameters.saturating_mul(3) => {
                    OptimizerState
                }
                _ => continue,
            };
            *classified = (category, Confidence::Low);
        }
    }

    fn classify_init(
        &self,
        block: &LiveBlock,
        allocated_at: TracePoint,
        traits: StackTraits,
        lifetime: Lifetime,
    ) -> Classification {
        use Category::{Parameters, Temporaries};
        use Confidence::{High, Low, Medium};
        let counts = self.lifetimes.free_counts(block.stack);
        match lifetime {
            Lifetime::InRun => (Temporaries, High),
            Lifetime::BeyondRun if traits.purpose == Some(KnownPurpose::Model) => (Parameters, High),
            // Blocks allocated anew for each pass are no model.
            _ if traits.is_phase_weak
                && self.passes_begun(block, allocated_at) <= 1
                && counts.after_backward_start > 0 =>
            {
                self.classify_data(block, allocated_at)
            }
            Lifetime::BeyondRun | Lifetime::Unknown if traits.is_phase_weak => (Parameters, Low),
            Lifetime::BeyondRun | Lifetime::Unknown => (Parameters, Medium),
        }
    }

    /// Classifies a block of user code in an unknown phase.
    fn classify_other(&self, block: &LiveBlock, allocated_at: TracePoint) -> Classification {
        if self.is_freed_by_backward(block) && self.passes_begun(block, allocated_at) == 1 {
            return (Category::Activations, Confidence::Medium);
        }
        if self.is_queued(block, allocated_at) && !self.lifetimes.leaks.grows(block.extended_stack) {
            return (Category::Inputs, Confidence::Low);
        }
        (Category::Other, Confidence::Low)
    }

    /// Classifies a block allocated before the forward pass.
    fn classify_data(&self, block: &LiveBlock, allocated_at: TracePoint) -> Classification {
        use Category::{Inputs, Other, Temporaries};
        use Confidence::{High, Low, Medium};
        match block.freed_at {
            Some(freed) if freed.run == allocated_at.run => (Temporaries, High),
            _ if self.lifetimes.leaks.grows(block.extended_stack) => (Other, Low),
            // No input serves many passes, but some wait in a queue.
            _ if self.passes_begun(block, allocated_at) > 1 && !self.is_queued(block, allocated_at) => (Other, Low),
            _ if self.passes_begun(block, allocated_at) > 1 => (Inputs, Low),
            // Or a copy of a parameter, allocated in every step.
            Some(_) if self.parameters.contains(&block.requested_bytes) => (Inputs, Low),
            Some(_) => (Inputs, Medium),
            None => (Inputs, Low),
        }
    }

    /// Whether a block is one of several of its stack that each live for a few passes.
    fn is_queued(&self, block: &LiveBlock, allocated_at: TracePoint) -> bool {
        let counts = self.lifetimes.free_counts(block.stack);
        let passes = self.passes_begun(block, allocated_at);
        counts.max_passes <= MAX_INPUT_PASSES && passes <= counts.max_passes && counts.after_backward_start > 1
    }

    /// Whether a backward pass dropped the last reference.
    fn is_freed_by_backward(&self, block: &LiveBlock) -> bool {
        let is_backward = |point| self.lifetimes.phase(point) == Phase::Backward;
        !block.is_freed_by_program() && block.freed_at.is_some_and(is_backward)
    }

    /// Number of backward passes that started during a block's lifetime; without any recorded, of forward passes.
    fn passes_begun(&self, block: &LiveBlock, allocated_at: TracePoint) -> u32 {
        let end = block.freed_at.unwrap_or(self.observed_until);
        if self.lifetimes.has_backward() {
            self.lifetimes.backward_passes_at(end).saturating_sub(self.lifetimes.backward_passes_at(allocated_at))
        } else {
            self.forwards_begun(allocated_at, end)
        }
    }

    /// Number of forward passes that started after `start`, up to `end`.
    fn forwards_begun(&self, start: TracePoint, end: TracePoint) -> u32 {
        let until = |point: TracePoint| self.phases.forwards_begun(point.entry as usize);
        to_u32(until(end).saturating_sub(until(start)))
    }

    fn classify_forward(&self, block: &LiveBlock, allocated_at: TracePoint) -> Classification {
        use Category::{Activations, Other, Temporaries};
        use Confidence::{High, Low, Medium};
        if !self.lifetimes.has_backward() {
            return self.classify_without_backward(block, allocated_at);
        }
        let passes = self.passes_begun(block, allocated_at);
        let Some(freed) = block.freed_at else {
            let end = self.observed_until;
            let counts = self.lifetimes.free_counts(block.stack);
            let is_old = end.entry - allocated_at.entry > counts.max_early_lifetime;
            return match passes {
                // The recording ends in this forward pass, or in the backward pass after it.
                0 if end.run == allocated_at.run
                    && !is_old
                    && counts.before_any_backward() > counts.after_backward_start =>
                {
                    (Temporaries, Medium)
                }
                0 | 1 if counts.are_saved_for_backward() && is_old => (Activations, High),
                0 | 1 if counts.after_backward_start > 0 && is_old => (Activations, Medium),
                0 if end.run == allocated_at.run => (Activations, Medium),
                1 if self.lifetimes.phase(end) == Phase::Backward => (Activations, Medium),
                // Never freed. From several passes: autograd graphs without a backward pass, or results. From one
                // pass: a buffer, or a workspace of a library.
                _ if self.never_freed.get(&block.stack).is_some_and(|(first, last)| first < last) => (Activations, Low),
                _ => (Other, Low),
            };
        };
        match passes {
            0 if freed.run == allocated_at.run && self.forwards_begun(allocated_at, freed) == 0 => (Temporaries, High),
            0 => (Temporaries, Medium),
            1 if self.is_freed_by_backward(block) => (Activations, High),
            // Live beyond the pass that it may have been saved for.
            _ => (Activations, Medium),
        }
    }

    /// Classifies a block of a forward pass in a recording without a backward pass: inference, or an end within the
    /// first step.
    fn classify_without_backward(&self, block: &LiveBlock, allocated_at: TracePoint) -> Classification {
        use Category::{Activations, Other, Temporaries};
        use Confidence::{High, Low, Medium};
        let end = block.freed_at.unwrap_or(self.observed_until);
        if self.forwards_begun(allocated_at, end) > 0 {
            // A result, or a cache.
            return (Other, Low);
        }
        let counts = self.lifetimes.free_counts(block.stack);
        let is_old = end.entry - allocated_at.entry > counts.max_early_lifetime;
        match block.freed_at {
            Some(freed) if freed.run == allocated_at.run => (Temporaries, High),
            Some(_) => (Temporaries, Medium),
            None if !is_old && counts.before_any_backward() > 0 => (Temporaries, Medium),
            None => (Activations, Low),
        }
    }

    fn classify_backward(&self, block: &LiveBlock, traits: StackTraits, lifetime: Lifetime) -> Classification {
        use Category::{Activations, Gradients, Other, Temporaries};
        use Confidence::{High, Low, Medium};
        let is_like_gradient = if self.parameters.is_empty() {
            self.lifetimes.gradient_sizes.contains_key(&block.requested_bytes)
        } else {
            self.parameters.contains(&block.requested_bytes)
                || self.lifetimes.parameter_sizes.contains(&block.requested_bytes)
        };
        let gathered = self.lifetimes.gather_evidence(block.requested_bytes);
        let is_gathered = gathered == GatherEvidence::Yes;
        match lifetime {
            // Freed after its shard was reduced.
            _ if block.freed_by.purpose == Some(KnownPurpose::ReducedGradients) => (Gradients, High),
            Lifetime::InRun if is_gathered && !traits.has_forward_frame => (Gradients, Medium),
            // Waits for the end of the pass, which copies it into a bucket.
            Lifetime::InRun
                if self.buckets == GradientBuckets::GradientsAtEnd
                    && is_like_gradient
                    && !traits.has_forward_frame
                    && block.freed_at.is_some_and(|freed| self.lifetimes.is_after_last_allocation(freed)) =>
            {
                (Gradients, Medium)
            }
            _ if traits.purpose == Some(KnownPurpose::Gradients) => (Gradients, High),
            // Activation checkpointing runs the forward pass again.
            Lifetime::InRun if traits.has_forward_frame => (Activations, High),
            Lifetime::Unknown if traits.has_forward_frame => (Activations, Medium),
            Lifetime::InRun if gathered == GatherEvidence::Possible => (Temporaries, Medium),
            Lifetime::InRun => (Temporaries, High),
            Lifetime::Unknown if is_like_gradient => (Gradients, Medium),
            Lifetime::Unknown => (Temporaries, Medium),
            // A backward pass frees no gradients, so an earlier pass saved it, as for a gradient penalty. After its
            // last allocation, though, the pass may have ended.
            Lifetime::BeyondRun if self.is_freed_by_backward(block) => {
                let may_be_over = block.freed_at.is_some_and(|at| self.lifetimes.may_have_ended(at));
                // Or gradients of a pass without communication (`no_sync`), until the next pass added its own.
                let is_added = self.buckets != GradientBuckets::None;
                if is_like_gradient && (may_be_over || is_added) || is_gathered {
                    (Gradients, Low)
                } else {
                    (Activations, Medium)
                }
            }
            Lifetime::BeyondRun if is_like_gradient && self.parameters.is_empty() => (Gradients, Medium),
            Lifetime::BeyondRun if is_like_gradient => (Gradients, High),
            // No parameter has its size, but something freed it later.
            Lifetime::BeyondRun if block.freed_at.is_some() => (Gradients, Low),
            Lifetime::BeyondRun => (Other, Low),
        }
    }

    /// Sharded training frees the input of a reduction within the pass; the output is for the optimizer.
    fn classify_reduced(&self, block: &LiveBlock, lifetime: Lifetime) -> Classification {
        use Category::{Communication, Gradients};
        use Confidence::{High, Low, Medium};
        let counts = self.lifetimes.free_counts(block.stack);
        match lifetime {
            Lifetime::InRun => (Communication, High),
            Lifetime::BeyondRun => (Gradients, High),
            Lifetime::Unknown if counts.in_run > 0 => (Communication, Medium),
            Lifetime::Unknown if counts.after_backward_start > 0 => (Gradients, Medium),
            Lifetime::Unknown => (Gradients, Low),
        }
    }

    fn classify_optimizer(
        &self,
        block: &LiveBlock,
        allocated_at: TracePoint,
        traits: StackTraits,
        lifetime: Lifetime,
    ) -> Classification {
        use Category::{OptimizerState, Temporaries};
        use Confidence::{High, Low, Medium};
        let counts = self.lifetimes.free_counts(block.stack);
        let step_of = |point: TracePoint| self.phases.step_at(point.entry as usize);
        match lifetime {
            Lifetime::InRun => (Temporaries, High),
            // The optimizer may run the model within its step, which ends the run.
            Lifetime::BeyondRun
                if self.phases.has_marked_steps()
                    && block.freed_at.is_some_and(|freed| step_of(freed) == step_of(allocated_at)) =>
            {
                (Temporaries, Medium)
            }
            Lifetime::BeyondRun => (OptimizerState, Medium),
            Lifetime::Unknown if counts.in_run > 0 || traits.purpose == Some(KnownPurpose::OptimizerStep) => {
                (Temporaries, Medium)
            }
            Lifetime::Unknown => (Temporaries, Low),
        }
    }
}
