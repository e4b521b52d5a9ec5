//! Assigns a category to a block, by its stack, its lifetime, and the lifetimes of other blocks of that stack.
//! docs/where.md describes the same rules.

use rustc_hash::FxHashMap;

use super::block_lives::BlockLives;
use super::doubts::doubt;
use super::forward_pass::{ForwardPass, FreeCounts};
use super::gradient_buckets::GradientBuckets;
use super::live_set::{LiveBlock, LiveSet, TracePoint};
use super::older_blocks::classify_older_blocks;
use super::parameter_copies;
use super::pass_sizes::GatherEvidence;
use super::trace_counts::TraceCounts;
use crate::allocator::device::GpuModel;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::SeededSet;
use crate::stacks::phases::{KnownPurpose, Phase, Routine, StackTraits};
use crate::study::category::Category::{
    self, Activations, Communication, Gradients, Inputs, OptimizerState, Other, Parameters, Temporaries,
};
use crate::study::category::Classification;
use crate::study::category::Confidence::{High, Low, Medium};

/// The category of each block of `live_set`, in order.
pub(super) fn classify(live_set: &LiveSet, lifetimes: &BlockLives<'_>) -> Vec<Classification> {
    let phases = lifetimes.counts.phases;
    let mut classifier = Classifier {
        lifetimes,
        counts: &lifetimes.counts,
        point: live_set.point,
        observed_until: live_set.observed_until,
        parameters: SeededSet::default(),
        knows_parameters: false,
        buckets: GradientBuckets::infer(live_set, &lifetimes.counts),
        never_freed: FxHashMap::default(),
    };
    for block in &live_set.blocks {
        classifier.count_never_freed(block);
    }
    let blocks = live_set.blocks.iter().map(|block| (block, phases.stack_traits(block.stack)));
    let mut classified: Vec<_> = blocks.clone().map(|(block, traits)| classifier.classify(block, traits)).collect();
    if !lifetimes.has_trace {
        // The rules below need lifetimes, which only a trace shows.
        lifetimes.named.correct(&live_set.blocks, &mut classified, true);
        return classified;
    }
    classifier.knows_parameters = classified.iter().any(|(category, _)| *category == Parameters);
    classify_older_blocks(live_set, &mut classified, &lifetimes.counts);
    let parameters = live_set.blocks.iter().zip(&classified).filter(|(_, (category, _))| *category == Parameters);
    classifier.parameters = parameters.map(|(block, _)| block.requested_bytes).collect();
    for ((block, traits), classification) in blocks.zip(&mut classified) {
        // Gradients and copies are recognized by the sizes of parameters, which are known now.
        let Some(allocated_at) = block.allocated_at else { continue }; // its phase is unknown
        match lifetimes.counts.phase(allocated_at) {
            Phase::Backward | Phase::Data => *classification = classifier.classify(block, traits),
            Phase::Forward if *classification == (Other, Low) && classifier.is_cast(block, allocated_at) => {
                *classification = (Parameters, Low);
            }
            _ => {}
        }
    }
    classifier.buckets.yield_to_gradients(live_set, &mut classified, phases);
    parameter_copies::classify_copies(live_set, &mut classified, lifetimes);
    for (block, classification) in live_set.blocks.iter().zip(&mut classified) {
        // Memory that code outside the model adds to in each iteration is kept data, not a graph or a model.
        let is_guess = matches!(*classification, (Activations | Parameters, Low));
        if is_guess && lifetimes.grows(block.extended_stack) && !phases.stack_traits(block.stack).has_forward_frame {
            *classification = (Other, Low);
        }
    }
    let is_last_run = live_set.point.run as usize == phases.runs().len();
    lifetimes.named.correct(&live_set.blocks, &mut classified, is_last_run);
    let bytes: Vec<u64> = live_set.blocks.iter().map(|block| block.bytes).collect();
    doubt(&bytes, &mut classified, lifetimes.counts.phase(live_set.point) == Phase::Forward);
    classified
}

/// Maximum number of backward passes during the lifetime of an input, which may wait in a queue.
const MAX_INPUT_PASSES: u32 = 4;

/// Minimum number of tensors of a model that one line allocates.
const MIN_MODEL_TENSORS: u32 = 8;
/// Minimum number of tensors of optimizer state that one line allocates and keeps.
const MIN_STATE_TENSORS: u32 = 3;

/// A block that has lived for fewer entries may be a temporary, whatever other blocks show.
const MIN_OLD_ENTRIES: u32 = 64;

pub(super) struct Classifier<'a> {
    lifetimes: &'a BlockLives<'a>,
    pub(super) counts: &'a TraceCounts<'a>,
    /// See [`LiveSet::point`].
    pub(super) point: TracePoint,
    /// See [`LiveSet::observed_until`].
    pub(super) observed_until: TracePoint,
    /// Requested sizes of parameters.
    pub(super) parameters: SeededSet<u64>,
    /// Stacks show some parameters.
    knows_parameters: bool,
    /// Contents of DDP's buckets.
    buckets: GradientBuckets,
    /// The blocks of each stack that were never freed.
    never_freed: FxHashMap<StackId, NeverFreed>,
}

/// The blocks of one stack that were never freed.
#[derive(Clone, Copy)]
pub(super) struct NeverFreed {
    blocks: u32,
    /// Number of backward passes that had started when the first block was allocated, and when the last was.
    pub(super) first_pass: u32,
    pub(super) last_pass: u32,
    /// Some blocks are results of an earlier forward pass that kept no graph.
    pub(super) are_results: bool,
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

/// A block allocated within the trace, with the facts that decide its category.
pub(super) struct Case<'a> {
    pub(super) block: &'a LiveBlock,
    pub(super) traits: StackTraits,
    pub(super) allocated_at: TracePoint,
    /// Where it was freed, or [`LiveSet::observed_until`].
    pub(super) end: TracePoint,
    lifetime: Lifetime,
    /// Number of backward passes that started during its lifetime, or of forward passes if none is recorded.
    pub(super) passes_begun: u32,
    /// A backward pass dropped the last reference.
    pub(super) is_freed_by_backward: bool,
    /// The frees of its stack.
    pub(super) frees: FreeCounts,
}

impl Case<'_> {
    /// Whether it was freed in the phase run that allocated it.
    pub(super) fn is_freed_in_run(&self) -> bool {
        self.block.freed_at.is_some_and(|freed| freed.run == self.allocated_at.run)
    }

    /// Whether it lived for longer than any block of its stack that was freed before the next pass.
    pub(super) fn is_old(&self) -> bool {
        self.end.entry - self.allocated_at.entry > self.frees.max_early_lifetime
    }
}

impl Classifier<'_> {
    fn classify(&self, block: &LiveBlock, traits: StackTraits) -> Classification {
        match traits.purpose {
            Some(KnownPurpose::Workspace) => return (Other, High),
            Some(KnownPurpose::OptimizerState) => return (OptimizerState, High),
            Some(KnownPurpose::Parameters | KnownPurpose::GatheredParameters) => return (Parameters, High),
            Some(KnownPurpose::KvCache) => return (Category::KvCache, High),
            Some(KnownPurpose::GradientBuffer) => return (Gradients, High),
            Some(KnownPurpose::Communication) => return (Communication, High),
            Some(KnownPurpose::GradientBuckets) => return self.buckets.classification(),
            _ => {}
        }
        if block.bytes == GpuModel::CUBLAS_WORKSPACE_BYTES && block.freed_at.is_none() {
            return (Other, Medium);
        }
        if block.freed_by.is_zero_grad && traits.purpose != Some(KnownPurpose::ReducedGradients) {
            // `zero_grad` drops gradients, whatever allocated them.
            return (Gradients, High);
        }
        let Some(allocated_at) = block.allocated_at else { return self.classify_older(block, traits) };
        let case = self.case(block, traits, allocated_at);
        if traits.is_buffer_of_engine() && case.lifetime != Lifetime::InRun {
            return (Other, High);
        }
        match self.counts.phase(allocated_at) {
            _ if traits.purpose == Some(KnownPurpose::ReducedGradients) => classify_reduced(&case),
            Phase::Init => self.classify_init(&case),
            Phase::Data => self.classify_data(&case),
            Phase::Forward => self.classify_forward(&case),
            Phase::Backward => self.classify_backward(&case),
            Phase::Optimizer => self.classify_optimizer(&case),
            Phase::Other => self.classify_other(&case),
        }
    }

    fn case<'b>(&self, block: &'b LiveBlock, traits: StackTraits, allocated_at: TracePoint) -> Case<'b> {
        let end = block.freed_at.unwrap_or(self.observed_until);
        let dropped_in = block.freed_at.filter(|_| !block.is_freed_by_program()).map(|freed| self.counts.phase(freed));
        Case {
            block,
            traits,
            allocated_at,
            end,
            lifetime: self.lifetime(block, allocated_at),
            passes_begun: if self.counts.has_backward() {
                self.counts.backward_passes_at(end).saturating_sub(self.counts.backward_passes_at(allocated_at))
            } else {
                self.forwards_begun(allocated_at, end)
            },
            is_freed_by_backward: dropped_in == Some(Phase::Backward),
            frees: self.counts.free_counts(block.stack),
        }
    }

    fn count_never_freed(&mut self, block: &LiveBlock) {
        if block.freed_at.is_none() {
            let pass = block.allocated_at.map_or(0, |point| self.counts.backward_passes_at(point));
            let is_result = block.allocated_at.is_some_and(|point| self.is_result(point, self.observed_until));
            let new = NeverFreed { blocks: 0, first_pass: pass, last_pass: pass, are_results: false };
            let kept = self.never_freed.entry(block.stack).or_insert(new);
            kept.blocks += 1;
            kept.first_pass = kept.first_pass.min(pass);
            kept.last_pass = kept.last_pass.max(pass);
            kept.are_results |= is_result;
        }
    }

    pub(super) fn never_freed(&self, block: &LiveBlock) -> Option<NeverFreed> {
        self.never_freed.get(&block.stack).copied()
    }

    fn lifetime(&self, block: &LiveBlock, allocated_at: TracePoint) -> Lifetime {
        let in_backward = self.counts.phase(allocated_at) == Phase::Backward;
        // The trace does not show the end of a backward pass if the optimizer neither allocates nor is annotated.
        let is_end_unknown = in_backward && !self.counts.phases.has_marked_steps();
        match block.freed_at {
            // User code runs after the pass.
            Some(_) if in_backward && block.is_freed_by_program() => Lifetime::BeyondRun,
            Some(freed) if freed.run != allocated_at.run => Lifetime::BeyondRun,
            Some(freed) if is_end_unknown && self.counts.may_have_ended(freed) => Lifetime::Unknown,
            Some(_) => Lifetime::InRun,
            None if self.observed_until.run != allocated_at.run => Lifetime::BeyondRun,
            None => Lifetime::Unknown,
        }
    }

    /// Classifies a block that is older than the trace by its stack alone.
    fn classify_older(&self, block: &LiveBlock, traits: StackTraits) -> Classification {
        match traits.phase {
            _ if traits.is_buffer_of_engine() => (Other, High),
            _ if traits.purpose == Some(KnownPurpose::ReducedGradients) => (Gradients, Low),
            Some(Phase::Init) if traits.purpose == Some(KnownPurpose::Model) => (Parameters, High),
            Some(Phase::Init) if traits.routine == Some(Routine::OptimizerConstructor) => (OptimizerState, Medium),
            Some(Phase::Init) if traits.is_phase_weak && self.exceeds_gradients(block) => {
                self.classify_kept_from_start(block)
            }
            Some(Phase::Init) if traits.is_phase_weak => (Parameters, Low),
            Some(Phase::Init) => (Parameters, Medium),
            Some(Phase::Optimizer) => (OptimizerState, Medium),
            Some(Phase::Forward) => (Activations, Low),
            _ => (Other, Low),
        }
    }

    fn classify_init(&self, case: &Case<'_>) -> Classification {
        let Case { block, traits, .. } = *case;
        match case.lifetime {
            Lifetime::InRun => (Temporaries, High),
            Lifetime::BeyondRun if traits.purpose == Some(KnownPurpose::Model) => (Parameters, High),
            // Blocks allocated anew for each pass are no model.
            _ if traits.is_phase_weak && case.passes_begun <= 1 && case.frees.after_backward_start > 0 => {
                self.classify_data(case)
            }
            _ if traits.is_phase_weak && self.exceeds_gradients(block) => self.classify_kept_from_start(block),
            Lifetime::BeyondRun | Lifetime::Unknown if traits.is_phase_weak => (Parameters, Low),
            Lifetime::BeyondRun | Lifetime::Unknown => (Parameters, Medium),
        }
    }

    /// Whether `block` is larger than any parameter with a gradient.
    fn exceeds_gradients(&self, block: &LiveBlock) -> bool {
        self.counts.completes_backward() && self.counts.sizes.gradients.keys().all(|size| *size < block.requested_bytes)
    }

    /// Whether user code made a block, which is never freed, before the first pass of a program that trains.
    fn is_kept_from_start(&self, case: &Case<'_>) -> bool {
        // In the first step, its graph shows that the program trains.
        let has_backward = self.counts.has_backward();
        let is_trained = if has_backward { case.passes_begun > 1 } else { self.is_graph_likely(self.observed_until) };
        self.lifetimes.starts_empty
            && is_trained
            && self.counts.backward_passes_at(case.allocated_at) == 0
            && self.counts.forwards_begun_at(case.allocated_at) == 0
    }

    /// Classifies a block that user code allocated before the first pass and keeps, and that has no gradient.
    fn classify_kept_from_start(&self, block: &LiveBlock) -> Classification {
        let blocks = self.never_freed(block).map_or(0, |kept| kept.blocks);
        // One line that makes many tensors loads a model, which is frozen. Few tensors are data: a data set, a replay
        // buffer.
        (if blocks >= MIN_MODEL_TENSORS { Parameters } else { Inputs }, Low)
    }

    /// Classifies a block of user code in an unknown phase.
    fn classify_other(&self, case: &Case<'_>) -> Classification {
        match case.block.freed_at {
            Some(_) if case.is_freed_by_backward && case.passes_begun == 1 => (Activations, Medium),
            None if self.is_kept_from_start(case) => self.classify_kept_from_start(case.block),
            None if self.is_state_without_optimizer(case) => (OptimizerState, Low),
            _ if is_queued(case) && !self.lifetimes.grows(case.block.extended_stack) => (Inputs, Low),
            _ => (Other, Low),
        }
    }

    /// Classifies a block allocated before the forward pass.
    fn classify_data(&self, case: &Case<'_>) -> Classification {
        match case.block.freed_at {
            _ if case.is_freed_in_run() => (Temporaries, High),
            _ if self.lifetimes.grows(case.block.extended_stack) => (Other, Low),
            None if self.is_kept_from_start(case) => self.classify_kept_from_start(case.block),
            None if self.is_state_without_optimizer(case) => (OptimizerState, Low),
            // No input serves many passes, but some wait in a queue.
            _ if case.passes_begun > 1 => (if is_queued(case) { Inputs } else { Other }, Low),
            // The program computes without modules.
            _ if self.is_computed_before_forward(case) => (Activations, Medium),
            // Or a copy of a parameter, allocated in every step.
            Some(_) if self.parameters.contains(&case.block.requested_bytes) => (Inputs, Low),
            Some(_) => (Inputs, Medium),
            None => (Inputs, Low),
        }
    }

    /// Whether most of the graph is older than the forward pass, and the block belongs to it.
    fn is_computed_before_forward(&self, case: &Case<'_>) -> bool {
        let is_live = case.block.is_kept();
        let is_saved = if is_live { case.frees.are_saved_for_backward() } else { case.is_freed_by_backward };
        is_saved && self.counts.forward_pass_after(case.allocated_at).is_some_and(ForwardPass::ends_graph)
    }

    /// Whether a block is state of a hand-written optimizer: one line made it together with others after a backward
    /// pass, none was freed, and training went on. PyTorch's optimizers have frames of their own.
    fn is_state_without_optimizer(&self, case: &Case<'_>) -> bool {
        case.frees.before_backward + case.frees.after_backward_start == 0
            && !self.counts.phases.has_optimizer()
            && case.passes_begun > 0
            && self.never_freed(case.block).is_some_and(|kept| {
                kept.blocks >= MIN_STATE_TENSORS && kept.first_pass == kept.last_pass && kept.first_pass > 0
            })
    }

    /// Number of forward passes that started after `start`, up to `end`.
    pub(super) fn forwards_begun(&self, start: TracePoint, end: TracePoint) -> u32 {
        to_u32(self.counts.forwards_begun_at(end).saturating_sub(self.counts.forwards_begun_at(start)))
    }

    fn classify_backward(&self, case: &Case<'_>) -> Classification {
        let Case { block, traits, .. } = *case;
        let is_like_gradient = self.parameters.contains(&block.requested_bytes)
            || self.counts.sizes.parameters.contains(&block.requested_bytes)
            || !self.knows_parameters && self.counts.sizes.gradients.contains_key(&block.requested_bytes);
        let gathered = self.counts.sizes.gather_evidence(block.requested_bytes);
        let is_gathered = gathered == GatherEvidence::Yes;
        match case.lifetime {
            // Freed after its shard was reduced.
            _ if block.freed_by.purpose == Some(KnownPurpose::ReducedGradients) => (Gradients, High),
            Lifetime::InRun if is_gathered && !traits.has_forward_frame => (Gradients, Medium),
            // Waits for the end of the pass, which copies it into a bucket.
            Lifetime::InRun
                if self.buckets == GradientBuckets::GradientsAtEnd
                    && is_like_gradient
                    && !traits.has_forward_frame
                    && block.freed_at.is_some_and(|freed| self.counts.is_after_last_allocation(freed)) =>
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
            // Most are freed soon; a pass that is differentiated itself (`create_graph=True`) keeps them.
            Lifetime::Unknown if self.outlives_others(case) => (Other, Low),
            Lifetime::Unknown => (Temporaries, Medium),
            // A backward pass frees no gradients, so an earlier pass saved it, as for a gradient penalty. After its
            // last allocation, though, the pass may have ended.
            Lifetime::BeyondRun if case.is_freed_by_backward => {
                let may_be_over = block.freed_at.is_some_and(|at| self.counts.may_have_ended(at));
                // Or gradients of a pass without communication (`no_sync`), until the next pass added its own.
                let is_added = self.buckets != GradientBuckets::None;
                if is_like_gradient && (may_be_over || is_added) || is_gathered {
                    (Gradients, Low)
                } else {
                    (Activations, Medium)
                }
            }
            Lifetime::BeyondRun if is_like_gradient && !self.knows_parameters => (Gradients, Medium),
            Lifetime::BeyondRun if is_like_gradient => (Gradients, High),
            // No parameter has its size, but something freed it later.
            Lifetime::BeyondRun if block.freed_at.is_some() => (Gradients, Low),
            Lifetime::BeyondRun => (Other, Low),
        }
    }

    /// Whether a block has been live for longer than any block of its stack that was freed before the next pass.
    fn outlives_others(&self, case: &Case<'_>) -> bool {
        let age = self.observed_until.entry - case.allocated_at.entry;
        age > case.frees.max_early_lifetime.max(MIN_OLD_ENTRIES)
    }

    fn classify_optimizer(&self, case: &Case<'_>) -> Classification {
        let Case { block, traits, lifetime, frees, .. } = *case;
        // State needs a frame of an optimizer: code beside one, within its annotated step, may keep anything.
        if traits.phase != Some(Phase::Optimizer) && lifetime != Lifetime::InRun {
            return (Other, Low);
        }
        let step = self.counts.step_at(case.allocated_at);
        match lifetime {
            Lifetime::InRun => (Temporaries, High),
            // The optimizer may run the model within its step, which ends the run.
            Lifetime::BeyondRun
                if self.counts.phases.has_marked_steps()
                    && block.freed_at.is_some_and(|freed| self.counts.step_at(freed) == step) =>
            {
                (Temporaries, Medium)
            }
            Lifetime::BeyondRun => (OptimizerState, Medium),
            Lifetime::Unknown if frees.in_run > 0 || traits.purpose == Some(KnownPurpose::OptimizerStep) => {
                (Temporaries, Medium)
            }
            // The recording ends in this step. Earlier steps, or earlier parameters of this one, show what is kept.
            Lifetime::Unknown
                if frees.before_any_backward() + frees.after_backward_start > 0
                    || self.never_freed(block).is_some_and(|kept| kept.blocks >= MIN_STATE_TENSORS) =>
            {
                (OptimizerState, Low)
            }
            Lifetime::Unknown => (Temporaries, Low),
        }
    }
}

/// Sharded training frees the input of a reduction within the pass; the output is for the optimizer.
fn classify_reduced(case: &Case<'_>) -> Classification {
    match case.lifetime {
        Lifetime::InRun => (Communication, High),
        Lifetime::BeyondRun => (Gradients, High),
        Lifetime::Unknown if case.frees.in_run > 0 => (Communication, Medium),
        Lifetime::Unknown if case.frees.after_backward_start > 0 => (Gradients, Medium),
        Lifetime::Unknown => (Gradients, Low),
    }
}

/// Whether blocks of this stack wait in a queue: several were freed, each after a few passes.
fn is_queued(case: &Case<'_>) -> bool {
    let Case { frees, passes_begun, .. } = *case;
    frees.max_passes <= MAX_INPUT_PASSES && passes_begun <= frees.max_passes && frees.after_backward_start > 1
}
