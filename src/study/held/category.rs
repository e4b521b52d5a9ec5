//! What a block is for, from the stack that allocated it, how long it lived, and what became of other
//! blocks of that stack. docs/where.md says the same rules in words.

use rustc_hash::FxHashMap;

use super::buckets::Buckets;
use super::kinds::{Category, Confidence, Judged};
use super::lives::{Gathered, LiveBlock, LiveSet, Lives, Point};
use super::sets;
use crate::base::ids::{StackId, to_u32};
use crate::base::intern::{SeededMap, SeededSet};
use crate::stacks::phases::{KnownPurpose, Phase, Phases, StackTraits};

/// What each block of `moment` is for, in their order.
pub(super) fn sort_out(moment: &LiveSet, lives: &Lives<'_>, phases: &Phases) -> Vec<Judged> {
    let mut judge = Judge {
        lives,
        end: moment.end.unwrap_or(moment.at),
        parameters: SeededSet::default(),
        buckets: Buckets::at(moment, lives, phases),
        kept: FxHashMap::default(),
        phases,
    };
    for block in &moment.blocks {
        judge.note_kept(block);
    }
    let blocks = moment.blocks.iter().map(|block| (block, phases.stack_traits(block.stack)));
    let mut judged: Vec<Judged> =
        blocks.clone().map(|(block, signs)| judge.of(block, signs)).collect();
    for (block, (category, _)) in moment.blocks.iter().zip(&judged) {
        if *category == Category::Parameters {
            judge.parameters.insert(block.requested);
        }
    }
    let state = sizes_of_state(moment, &judged);
    let mut unknown = Vec::new();
    for ((block, signs), found) in blocks.zip(&mut judged) {
        match block.born {
            // Gradients and copies have the sizes of parameters, which are known now.
            Some(born) if matches!(lives.phase(born), Phase::Backward | Phase::Data) => {
                *found = judge.of(block, signs);
            }
            None if found.0 == Category::Other => unknown.push((block.requested, found)),
            _ => {}
        }
    }
    judge.by_size(unknown, &state);
    judge.buckets.give_way(moment, &mut judged, phases);
    sets::tell(moment, &mut judged, lives, phases);
    judged
}

/// How many parameters of each size the state tells that an optimizer made before the recording began: as many
/// as one line made tensors of that size.
fn sizes_of_state(moment: &LiveSet, judged: &[Judged]) -> SeededMap<u64, u32> {
    let mut of_stacks: SeededMap<(StackId, u64), u32> = SeededMap::default();
    for (block, (category, _)) in moment.blocks.iter().zip(judged) {
        if *category == Category::OptimizerState && block.born.is_none() {
            *of_stacks.entry((block.stack, block.requested)).or_default() += 1;
        }
    }
    let mut sizes: SeededMap<u64, u32> = SeededMap::default();
    for ((_, requested), blocks) in of_stacks {
        let most = sizes.entry(requested).or_default();
        *most = blocks.max(*most);
    }
    sizes
}

/// Training steps that a batch may wait for its turn, and be used in.
const FEW_PASSES: u32 = 4;

struct Judge<'a> {
    lives: &'a Lives<'a>,
    /// Up to where it is seen what becomes of the blocks.
    end: Point,
    /// Requested sizes of parameters.
    parameters: SeededSet<u64>,
    /// What the buckets of replicated training hold.
    buckets: Buckets,
    /// Of the blocks of each stack that were never freed: how many backward passes had begun before the
    /// first of them, and before the last.
    kept: FxHashMap<StackId, (u32, u32)>,
    phases: &'a Phases,
}

/// How long a block lived, as far as it is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// It was freed in the run of the phase that made it.
    InRun,
    /// It outlived that run.
    Beyond,
    /// The recording ends within the run, or does not tell when the run ended.
    Unknown,
}

impl Judge<'_> {
    fn of(&self, block: &LiveBlock, signs: StackTraits) -> Judged {
        use Category::{Communication, Gradients, OptimizerState, Other, Parameters};
        use Confidence::High;
        match signs.purpose {
            Some(KnownPurpose::Workspace) => return (Other, High),
            Some(KnownPurpose::OptimizerState) => return (OptimizerState, High),
            Some(KnownPurpose::Parameters | KnownPurpose::GatheredParameters) => return (Parameters, High),
            Some(KnownPurpose::Communication) => return (Communication, High),
            Some(KnownPurpose::GradientBuckets) => return self.buckets.judged(),
            _ => {}
        }
        if block.freed_by.is_zero_grad && signs.purpose != Some(KnownPurpose::ReducedGradients) {
            // What is dropped by that was there for the optimizer, wherever it came from.
            return (Gradients, High);
        }
        let Some(born) = block.born else { return Self::older(signs) };
        let life = self.life(block, born);
        if signs.purpose == Some(KnownPurpose::ReducedGradients) {
            return self.reduced(block, life);
        }
        match self.lives.phase(born) {
            Phase::Init => self.built(block, born, signs, life),
            Phase::Data => self.fed(block, born),
            Phase::Forward => self.forward(block, born),
            Phase::Backward => self.backward(block, signs, life),
            Phase::Optimizer => self.optimizer(block, born, signs, life),
            Phase::Other => self.unnamed(block, born),
        }
    }

    fn note_kept(&mut self, block: &LiveBlock) {
        if let (Some(born), None) = (block.born, block.freed) {
            let pass = self.lives.backwards(born);
            let kept = self.kept.entry(block.stack).or_insert((pass, pass));
            *kept = (kept.0.min(pass), kept.1.max(pass));
        }
    }

    fn life(&self, block: &LiveBlock, born: Point) -> Life {
        let is_of_backward = self.lives.phase(born) == Phase::Backward;
        match block.freed {
            // The program's code goes on when the pass is over.
            Some(_) if is_of_backward && block.is_freed_by_program() => Life::Beyond,
            // A backward pass ends unseen where the optimizer neither allocates nor is marked.
            Some(freed)
                if freed.run == born.run
                    && is_of_backward
                    && self.lives.may_be_over(freed)
                    && !self.phases.has_marked_steps() =>
            {
                Life::Unknown
            }
            Some(freed) if freed.run == born.run => Life::InRun,
            Some(_) => Life::Beyond,
            None if self.end.run != born.run => Life::Beyond,
            None => Life::Unknown,
        }
    }

    /// What the stack alone tells of a block that is older than the trace.
    fn older(signs: StackTraits) -> Judged {
        use Category::{Activations, Gradients, OptimizerState, Other, Parameters};
        use Confidence::{High, Low, Medium};
        match signs.phase {
            _ if signs.purpose == Some(KnownPurpose::ReducedGradients) => (Gradients, Low),
            Some(Phase::Init) if signs.purpose == Some(KnownPurpose::Model) => (Parameters, High),
            Some(Phase::Init) if signs.is_phase_weak => (Parameters, Low),
            Some(Phase::Init) => (Parameters, Medium),
            Some(Phase::Optimizer) => (OptimizerState, Medium),
            Some(Phase::Forward) => (Activations, Low),
            _ => (Other, Low),
        }
    }

    /// Tells blocks that are older than the trace and have no stack by their sizes. To each gradient
    /// that backward passes left belongs one parameter of its size, and to that up to two tensors of
    /// optimizer state. Where an optimizer's state has stacks, it tells the sizes. What only serves forward
    /// passes is a model.
    fn by_size(&self, unknown: Vec<(u64, &mut Judged)>, state: &SeededMap<u64, u32>) {
        use Category::{Gradients, OptimizerState, Parameters};
        let gradients = &self.lives.kept_by_backward;
        let is_trained = self.lives.has_backward() || self.phases.has_optimizer();
        let only_runs =
            !is_trained && state.is_empty() && self.phases.forwards_begun(usize::MAX) > 0;
        let mut seen: SeededMap<u64, u32> = SeededMap::default();
        for (requested, judged) in unknown {
            let parameters = gradients.get(&requested).or(state.get(&requested));
            let Some(&parameters) = parameters else {
                if only_runs {
                    *judged = (Parameters, Confidence::Low);
                }
                continue;
            };
            let seen = seen.entry(requested).or_default();
            *seen += 1;
            // Parameters come first by address, since they were made first.
            let category = match *seen {
                n if n <= parameters => Parameters,
                n if !state.is_empty() && n <= parameters.saturating_mul(2) => Gradients,
                n if state.is_empty()
                    && self.phases.has_optimizer()
                    && n <= parameters.saturating_mul(3) =>
                {
                    OptimizerState
                }
                _ => continue,
            };
            *judged = (category, Confidence::Low);
        }
    }

    fn built(&self, block: &LiveBlock, born: Point, signs: StackTraits, life: Life) -> Judged {
        use Category::{Parameters, Temporaries};
        use Confidence::{High, Low, Medium};
        let fates = self.lives.fates(block.stack);
        match life {
            Life::InRun => (Temporaries, High),
            Life::Beyond if signs.purpose == Some(KnownPurpose::Model) => (Parameters, High),
            // What is made anew for each pass is no model.
            _ if signs.is_phase_weak && self.passes(block, born) <= 1 && fates.after > 0 => {
                self.fed(block, born)
            }
            Life::Beyond | Life::Unknown if signs.is_phase_weak => (Parameters, Low),
            Life::Beyond | Life::Unknown => (Parameters, Medium),
        }
    }

    /// What the program's own code made at a time that nothing names.
    fn unnamed(&self, block: &LiveBlock, born: Point) -> Judged {
        if self.is_freed_by_backward(block) && self.passes(block, born) == 1 {
            return (Category::Activations, Confidence::Medium);
        }
        if self.waits(block, born) && !self.lives.leaks.grows(block.made_by) {
            return (Category::Inputs, Confidence::Low);
        }
        (Category::Other, Confidence::Low)
    }

    /// What the program's own code made before the forward pass.
    fn fed(&self, block: &LiveBlock, born: Point) -> Judged {
        use Category::{Inputs, Other, Temporaries};
        use Confidence::{High, Low, Medium};
        match block.freed {
            Some(freed) if freed.run == born.run => (Temporaries, High),
            _ if self.lives.leaks.grows(block.made_by) => (Other, Low),
            // No input serves many passes, but some are there before it is their turn.
            _ if self.passes(block, born) > 1 && !self.waits(block, born) => (Other, Low),
            _ if self.passes(block, born) > 1 => (Inputs, Low),
            // Or a copy of a parameter, made anew in every step.
            Some(_) if self.parameters.contains(&block.requested) => (Inputs, Low),
            Some(_) => (Inputs, Medium),
            None => (Inputs, Low),
        }
    }

    /// Whether a block is one of several from one place that each live through a few passes.
    fn waits(&self, block: &LiveBlock, born: Point) -> bool {
        let fates = self.lives.fates(block.stack);
        let passes = self.passes(block, born);
        fates.most_passes <= FEW_PASSES && passes <= fates.most_passes && fates.after > 1
    }

    /// Whether a backward pass held its last reference.
    fn is_freed_by_backward(&self, block: &LiveBlock) -> bool {
        let is_backward = |point| self.lives.phase(point) == Phase::Backward;
        !block.is_freed_by_program() && block.freed.is_some_and(is_backward)
    }

    /// How many backward passes began in a block's life; where none was recorded, forward passes.
    fn passes(&self, block: &LiveBlock, born: Point) -> u32 {
        let end = block.freed.unwrap_or(self.end);
        if self.lives.has_backward() {
            self.lives.backwards(end).saturating_sub(self.lives.backwards(born))
        } else {
            self.forwards(born, end)
        }
    }

    /// How many forward passes began after `born`, up to `end`.
    fn forwards(&self, born: Point, end: Point) -> u32 {
        let until = |point: Point| self.phases.forwards_begun(point.entry as usize);
        to_u32(until(end).saturating_sub(until(born)))
    }

    fn forward(&self, block: &LiveBlock, born: Point) -> Judged {
        use Category::{Activations, Other, Temporaries};
        use Confidence::{High, Low, Medium};
        if !self.lives.has_backward() {
            return self.forward_alone(block, born);
        }
        let passes = self.passes(block, born);
        let Some(freed) = block.freed else {
            let end = self.end;
            let fates = self.lives.fates(block.stack);
            let is_old = end.entry - born.entry > fates.longest_early;
            return match passes {
                // The recording ends in this forward pass, or in the backward pass after it.
                0 if end.run == born.run && !is_old && fates.early() > fates.after => {
                    (Temporaries, Medium)
                }
                0 | 1 if fates.are_kept_for_backward() && is_old => (Activations, High),
                0 | 1 if fates.after > 0 && is_old => (Activations, Medium),
                0 if end.run == born.run => (Activations, Medium),
                1 if self.lives.phase(end) == Phase::Backward => (Activations, Medium),
                // Kept for good. Once: a buffer, scratch memory of a library. Pass after pass: graphs
                // that nobody goes through, or results.
                _ if self.kept.get(&block.stack).is_some_and(|(first, last)| first < last) => {
                    (Activations, Low)
                }
                _ => (Other, Low),
            };
        };
        match passes {
            0 if freed.run == born.run && self.forwards(born, freed) == 0 => (Temporaries, High),
            0 => (Temporaries, Medium),
            1 if self.is_freed_by_backward(block) => (Activations, High),
            // Held beyond the pass that it may have been made for.
            _ => (Activations, Medium),
        }
    }

    /// What a forward pass made in a recording without a backward pass: of inference, or that ends in
    /// the first step.
    fn forward_alone(&self, block: &LiveBlock, born: Point) -> Judged {
        use Category::{Activations, Other, Temporaries};
        use Confidence::{High, Low, Medium};
        let end = block.freed.unwrap_or(self.end);
        if self.forwards(born, end) > 0 {
            // A result, or a cache.
            return (Other, Low);
        }
        let fates = self.lives.fates(block.stack);
        let is_old = end.entry - born.entry > fates.longest_early;
        match block.freed {
            Some(freed) if freed.run == born.run => (Temporaries, High),
            Some(_) => (Temporaries, Medium),
            None if !is_old && fates.early() > 0 => (Temporaries, Medium),
            None => (Activations, Low),
        }
    }

    fn backward(&self, block: &LiveBlock, signs: StackTraits, life: Life) -> Judged {
        use Category::{Activations, Gradients, Other, Temporaries};
        use Confidence::{High, Low, Medium};
        let like_a_gradient = if self.parameters.is_empty() {
            self.lives.kept_by_backward.contains_key(&block.requested)
        } else {
            self.parameters.contains(&block.requested)
                || self.lives.parameter_sizes.contains(&block.requested)
        };
        let gathered = self.lives.may_be_gathered(block.requested);
        let of_gathered = gathered == Gathered::Yes;
        match life {
            // What a shard of is to be kept.
            _ if block.freed_by.purpose == Some(KnownPurpose::ReducedGradients) => (Gradients, High),
            Life::InRun if of_gathered && !signs.has_forward_frame => (Gradients, Medium),
            // What waits for the end of the pass to be sent.
            Life::InRun
                if self.buckets == Buckets::Late
                    && like_a_gradient
                    && !signs.has_forward_frame
                    && block
                        .freed
                        .is_some_and(|freed| self.lives.is_after_last_allocation(freed)) =>
            {
                (Gradients, Medium)
            }
            _ if signs.purpose == Some(KnownPurpose::Gradients) => (Gradients, High),
            // Activation checkpointing runs the forward pass again.
            Life::InRun if signs.has_forward_frame => (Activations, High),
            Life::Unknown if signs.has_forward_frame => (Activations, Medium),
            Life::InRun if gathered == Gathered::Perhaps => (Temporaries, Medium),
            Life::InRun => (Temporaries, High),
            Life::Unknown if like_a_gradient => (Gradients, Medium),
            Life::Unknown => (Temporaries, Medium),
            // Gradients are no backward pass's to free: the first of two, as for a gradient penalty. After
            // its last allocation, it may be over.
            Life::Beyond if self.is_freed_by_backward(block) => {
                let may_be_over = block.freed.is_some_and(|at| self.lives.may_be_over(at));
                // Or what a pass that sent nothing left, until it was added to what the next one sends.
                let is_added = self.buckets != Buckets::None;
                if like_a_gradient && (may_be_over || is_added) || of_gathered {
                    (Gradients, Low)
                } else {
                    (Activations, Medium)
                }
            }
            Life::Beyond if like_a_gradient && self.parameters.is_empty() => (Gradients, Medium),
            Life::Beyond if like_a_gradient => (Gradients, High),
            // Of another size than any parameter, yet not kept for good.
            Life::Beyond if block.freed.is_some() => (Gradients, Low),
            Life::Beyond => (Other, Low),
        }
    }

    /// What sharded training reduces gradients from is done with in the pass, what it reduces them into
    /// is there for the optimizer.
    fn reduced(&self, block: &LiveBlock, life: Life) -> Judged {
        use Category::{Communication, Gradients};
        use Confidence::{High, Low, Medium};
        let fates = self.lives.fates(block.stack);
        match life {
            Life::InRun => (Communication, High),
            Life::Beyond => (Gradients, High),
            Life::Unknown if fates.in_run > 0 => (Communication, Medium),
            Life::Unknown if fates.after > 0 => (Gradients, Medium),
            Life::Unknown => (Gradients, Low),
        }
    }

    fn optimizer(&self, block: &LiveBlock, born: Point, signs: StackTraits, life: Life) -> Judged {
        use Category::{OptimizerState, Temporaries};
        use Confidence::{High, Low, Medium};
        let fates = self.lives.fates(block.stack);
        let step_of = |point: Point| self.phases.step_at(point.entry as usize);
        match life {
            Life::InRun => (Temporaries, High),
            // An optimizer may run the model on the way.
            Life::Beyond
                if self.phases.has_marked_steps()
                    && block.freed.is_some_and(|freed| step_of(freed) == step_of(born)) =>
            {
                (Temporaries, Medium)
            }
            Life::Beyond => (OptimizerState, Medium),
            Life::Unknown if fates.in_run > 0 || signs.purpose == Some(KnownPurpose::OptimizerStep) => {
                (Temporaries, Medium)
            }
            Life::Unknown => (Temporaries, Low),
        }
    }
}
