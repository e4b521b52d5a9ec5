//! Memory that comes in the sizes of the parameters, one block for each: what an optimizer of the program's own
//! keeps, copies of the weights and of the gradients. No name says so, but no other memory has those sizes.

use rustc_hash::FxHashMap;

use super::kinds::{Category, Confidence, Judged};
use super::lives::{LiveBlock, LiveSet, Lives, Point};
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::stacks::phases::{KnownPurpose, Routine, Phase, Phases};

/// How many times as large as the parameters a copy of other precision may be: `.1 / .0`.
const SCALES: [(u64, u64); 5] = [(1, 1), (1, 2), (1, 4), (2, 1), (4, 1)];
/// Blocks that must match where they are not a copy of half of the parameters at least.
const FEW: u64 = 8;

/// How many blocks there are of each requested size.
type Sizes = SeededMap<u64, u64>;

fn bytes(sizes: &Sizes) -> u64 {
    sizes.iter().fold(0, |all, (size, blocks)| all.saturating_add(size.saturating_mul(*blocks)))
}

/// Whether `set` has the sizes of `parameters`, or of a good part of them: one copy, or several.
fn is_copy(set: &Sizes, parameters: &Sizes) -> bool {
    let blocks: u64 = set.values().sum();
    if blocks < 2 || parameters.len() < 2 {
        return false;
    }
    SCALES.iter().any(|(of, to)| {
        let (mut matched, mut found) = (0_u64, 0_u64);
        for (size, blocks) in set {
            let Some(one) = size.checked_mul(*of).filter(|size| size % to == 0) else { continue };
            let Some(there) = parameters.get(&(one / to)) else { continue };
            // Up to three copies from one line: moments and a master weight.
            matched = matched.saturating_add(size.saturating_mul((*blocks).min(there * 3)));
            found = found.saturating_add((one / to).saturating_mul((*blocks).min(*there)));
        }
        matched >= bytes(set) / 20 * 19
            && (found >= bytes(parameters) / 2 || blocks >= FEW && set.len() > 2)
    })
}

/// Gives the blocks of `moment` that come in the parameters' sizes what they are for, where their stacks and
/// lives alone did not tell.
pub(super) fn tell(moment: &LiveSet, judged: &mut [Judged], lives: &Lives<'_>, phases: &Phases) {
    let mut parameters = Sizes::default();
    for (block, (category, confidence)) in moment.blocks.iter().zip(judged.iter()) {
        if (*category, *confidence) == (Category::Parameters, Confidence::High)
            && phases.stack_traits(block.stack).purpose != Some(KnownPurpose::GatheredParameters)
        {
            *parameters.entry(block.requested).or_default() += 1;
        }
    }
    let left = lives.kept_by_backward.iter().map(|(size, blocks)| (*size, u64::from(*blocks)));
    let gradients: Sizes = left.collect();
    let mut sets: FxHashMap<StackId, (Sizes, Vec<usize>)> = FxHashMap::default();
    for (at, block) in moment.blocks.iter().enumerate() {
        if is_open(block, judged[at], phases.stack_traits(block.stack).purpose, lives) {
            let (sizes, places) = sets.entry(block.stack).or_default();
            *sizes.entry(block.requested).or_default() += 1;
            places.push(at);
        }
    }
    let program = Program {
        lives,
        phases,
        has_state: judged.contains(&(Category::OptimizerState, Confidence::High)),
        has_own_optimizer: phases.has_custom_optimizer(),
    };
    for (sizes, places) in sets.into_values() {
        if is_copy(&sizes, &parameters) || is_copy(&sizes, &gradients) {
            for at in places {
                judged[at] = program.of_set(&moment.blocks[at]);
            }
        }
    }
}

/// Whether nothing certain is known of a block that may be one of a set.
fn is_open(
    block: &LiveBlock,
    (_, confidence): Judged,
    makes: Option<KnownPurpose>,
    lives: &Lives<'_>,
) -> bool {
    let may_be = |born| !matches!(lives.phase(born), Phase::Forward | Phase::Backward);
    confidence != Confidence::High && makes != Some(KnownPurpose::OptimizerStep) && block.born.is_some_and(may_be)
}

/// What is known of the program as a whole.
struct Program<'a> {
    lives: &'a Lives<'a>,
    phases: &'a Phases,
    /// An optimizer of PyTorch's has made its state.
    has_state: bool,
    /// An optimizer is the program's own.
    has_own_optimizer: bool,
}

impl Program<'_> {
    /// Whether a backward pass has begun in the training step of `point`, and the optimizer's step is to come.
    fn waits_for_optimizer(&self, point: Point) -> bool {
        let step = self.phases.step_at(point.entry as usize);
        let entries = step.and_then(|step| self.phases.step_entries(step));
        entries.is_some_and(|step| {
            self.lives.backwards_until(step.start) < self.lives.backwards(point)
        })
    }

    /// What a block is for that is one of a set.
    fn of_set(&self, block: &LiveBlock) -> Judged {
        use Category::{Gradients, OptimizerState, Other, Parameters, Temporaries};
        use Confidence::{Low, Medium};
        let Some(born) = block.born else { return (Other, Low) };
        let is_trained = self.lives.backwards(born) > 0;
        let fates = self.lives.fates(block.stack);
        let is_short = match block.freed {
            Some(freed) if freed.run == born.run && self.lives.phase(born) == Phase::Optimizer => {
                return (Temporaries, Medium);
            }
            None if fates.in_run > 0 && self.lives.phase(born) == Phase::Optimizer => {
                return (Temporaries, Medium);
            }
            Some(freed) => self.lives.backwards(freed) <= self.lives.backwards(born) + 1,
            None => fates.early() + fates.after > 0 && fates.most_passes <= 1,
        };
        // Made from what a backward pass left for the optimizer, which has not stepped yet, and gone before
        // the next pass is over.
        if is_short && self.waits_for_optimizer(born) {
            return (Gradients, Medium);
        }
        let own = self.phases.stack_traits(block.stack).routine;
        let is_loaded = own == Some(Routine::FileLoader);
        match () {
            () if is_loaded && self.has_state => (Other, Low),
            () if is_loaded => (OptimizerState, Low),
            () if own == Some(Routine::OptimizerConstructor) || self.lives.phase(born) == Phase::Optimizer => {
                (OptimizerState, Medium)
            }
            // The program has an optimizer of PyTorch's, which is over: an average of the weights.
            () if is_trained && self.phases.has_optimizer() => (Parameters, Low),
            () if is_trained => (OptimizerState, Medium),
            () if own == Some(Routine::Constructor) && self.has_own_optimizer => {
                (OptimizerState, Medium)
            }
            () if self.phases.has_optimizer() => (Parameters, Medium),
            () if self.lives.has_backward() => (OptimizerState, Low),
            () => (Parameters, Low),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(of: &[(u64, u64)]) -> Sizes {
        of.iter().copied().collect()
    }

    #[test]
    fn a_copy_has_the_sizes_of_what_it_copies() {
        let parameters = sizes(&[(4096, 3), (1024, 6), (64, 1)]);
        assert!(is_copy(&parameters, &parameters));
        assert!(
            is_copy(&sizes(&[(8192, 3), (2048, 6), (128, 1)]), &parameters),
            "twice as precise"
        );
        assert!(is_copy(&sizes(&[(4096, 6), (1024, 12), (64, 2)]), &parameters), "two copies");
        assert!(is_copy(&sizes(&[(4096, 3), (1024, 2)]), &parameters), "the most of one");
        assert!(!is_copy(&sizes(&[(1024, 2)]), &parameters), "too few");
        assert!(!is_copy(&sizes(&[(4096, 1), (5000, 4)]), &parameters), "other sizes");
        assert!(!is_copy(&sizes(&[(4096, 40)]), &parameters), "many of one size");
    }
}
