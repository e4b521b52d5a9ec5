//! Plans the operations of training steps: which tensors come and go, in which order and how
//! large. Sizes follow the length of the batch, which changes from step to step.

use std::collections::VecDeque;

use super::random::Random;
use super::stacks::Site;

const LAYERS: usize = 24;
const HIDDEN: u64 = 1024;
const HEADS: u64 = 16;
const VOCABULARY: u64 = 32_000;
/// Bytes of a bfloat16 activation and of a float32 parameter.
const HALF: u64 = 2;
const FULL: u64 = 4;
const STEPS_BETWEEN_EMPTY_CACHE: u64 = 16;
/// The fused optimizer works on lists of so many parameters.
const CHUNK: usize = 48;

const OPTIMIZER_STEP: &str = "Optimizer.step#AdamW.step";
const ZERO_GRAD: &str = "Optimizer.zero_grad#AdamW.zero_grad";

/// A tensor of the plan. Slots are used again after their tensor is freed.
type Slot = usize;

pub enum Operation {
    Allocate { slot: Slot, size: u64, site: Site },
    Free { slot: Slot, site: Site },
    EmptyCache,
    Annotate { stage: &'static str, name: &'static str },
    Pause,
}

pub struct Planner {
    random: Random,
    /// Sequences in a batch.
    batch: u64,
    steps: u64,
    slots: Slot,
    vacant: Vec<Slot>,
    /// Sizes of the parameters in the order of the layers.
    parameters: Vec<u64>,
    gradients: Vec<Slot>,
}

impl Planner {
    pub fn new(random: Random, batch: u64) -> Self {
        Planner { random, batch, steps: 0, slots: 0, vacant: Vec::new(), parameters: Vec::new(), gradients: Vec::new() }
    }

    /// The first step comes after the making of the model and makes the optimizer's state.
    pub fn plan_step(&mut self, plan: &mut VecDeque<Operation>) {
        if self.steps == 0 {
            self.make_model(plan);
        }
        let tokens = self.batch * (256 + 8 * self.random.below(97));
        let batch =
            [self.allocate(plan, tokens * 8, Site::MallocInMain), self.allocate(plan, tokens * 8, Site::MallocInMain)];
        let saved = self.forward(plan, tokens);
        self.backward(plan, tokens, saved);
        self.optimize(plan);
        self.zero_grad(plan);
        for slot in batch {
            self.free(plan, slot, Site::FreeInMain);
        }
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS_BETWEEN_EMPTY_CACHE) {
            plan.push_back(Operation::EmptyCache);
        }
        plan.push_back(Operation::Pause);
    }

    fn make_model(&mut self, plan: &mut VecDeque<Operation>) {
        let matrix = |rows: u64, columns: u64| rows * columns * FULL;
        let vector = |length: u64| length * FULL;
        self.parameters.push(matrix(VOCABULARY, HIDDEN));
        for _ in 0..LAYERS {
            for (inputs, outputs) in [(1, 3), (1, 1), (1, 4), (4, 1)] {
                let (inputs, outputs) = (inputs * HIDDEN, outputs * HIDDEN);
                self.parameters.extend([matrix(inputs, outputs), vector(outputs)]);
            }
            // Two layer norms, a weight and a bias each.
            self.parameters.extend([vector(HIDDEN); 4]);
        }
        for index in 0..self.parameters.len() {
            self.allocate(plan, self.parameters[index], Site::MallocInMain);
        }
    }

    /// Returns the activations that each layer keeps for backward, then those of the loss.
    fn forward(&mut self, plan: &mut VecDeque<Operation>, tokens: u64) -> Vec<Vec<Slot>> {
        let hidden = tokens * HIDDEN * HALF;
        let statistics = tokens * FULL;
        let mut saved = Vec::new();
        for _ in 0..LAYERS {
            let kept = [
                hidden,
                statistics,
                statistics,
                3 * hidden,
                hidden,
                tokens * HEADS * FULL,
                8,
                hidden,
                tokens * HIDDEN,
                hidden,
                statistics,
                statistics,
                4 * hidden,
                4 * hidden,
                hidden,
            ];
            saved.push(self.allocate_between_temporaries(plan, &kept, hidden));
        }
        let logits = tokens * VOCABULARY;
        let kept = [hidden, logits * HALF, logits * FULL, 4];
        saved.push(self.allocate_between_temporaries(plan, &kept, hidden));
        saved
    }

    /// Every few kept tensors, one is made and dropped again: a cast weight, a workspace, a copy.
    fn allocate_between_temporaries(&mut self, plan: &mut VecDeque<Operation>, kept: &[u64], hidden: u64) -> Vec<Slot> {
        let mut slots = Vec::new();
        for &size in kept {
            let temporary = self.random.one_in(3).then(|| {
                let size = self.temporary_size(hidden);
                self.allocate(plan, size, Site::MallocInMain)
            });
            slots.push(self.allocate(plan, size, Site::MallocInMain));
            if let Some(temporary) = temporary {
                self.free(plan, temporary, Site::FreeInMain);
            }
        }
        slots
    }

    /// The layers backwards. Each activation gets a gradient that lives until the next one is
    /// there; activations go mostly in reverse order, some stay until their layer is done.
    fn backward(&mut self, plan: &mut VecDeque<Operation>, tokens: u64, mut saved: Vec<Vec<Slot>>) {
        let hidden = tokens * HIDDEN * HALF;
        let mut flowing = None;
        let mut parameters: VecDeque<_> = self.parameters.iter().rev().copied().collect();
        let per_layer = parameters.len().div_ceil(saved.len());
        while let Some(layer) = saved.pop() {
            let mut late = Vec::new();
            for slot in layer.into_iter().rev() {
                let size = self.temporary_size(hidden);
                let gradient = self.allocate(plan, size, Site::MallocInBackward);
                if let Some(previous) = flowing.replace(gradient) {
                    self.free(plan, previous, Site::FreeInBackward);
                }
                if self.random.one_in(8) {
                    late.push(slot);
                } else {
                    self.free(plan, slot, Site::FreeInBackward);
                }
            }
            for size in parameters.drain(..per_layer.min(parameters.len())) {
                let gradient = self.allocate(plan, size, Site::MallocInBackward);
                self.gradients.push(gradient);
            }
            for slot in late {
                self.free(plan, slot, Site::FreeInBackward);
            }
        }
        if let Some(last) = flowing {
            self.free(plan, last, Site::FreeInBackward);
        }
    }

    fn optimize(&mut self, plan: &mut VecDeque<Operation>) {
        annotate(plan, "START", OPTIMIZER_STEP);
        let parameters = self.parameters.clone();
        if self.steps == 0 {
            for &size in &parameters {
                for state in [4, size, size] {
                    self.allocate(plan, state, Site::MallocInMain);
                }
            }
        }
        for chunk in parameters.chunks(CHUNK) {
            let temporaries: Vec<_> = chunk.iter().map(|&size| self.allocate(plan, size, Site::MallocInMain)).collect();
            for slot in temporaries {
                self.free(plan, slot, Site::FreeInMain);
            }
        }
        annotate(plan, "END", OPTIMIZER_STEP);
    }

    fn zero_grad(&mut self, plan: &mut VecDeque<Operation>) {
        annotate(plan, "START", ZERO_GRAD);
        for slot in std::mem::take(&mut self.gradients) {
            self.free(plan, slot, Site::FreeInMain);
        }
        annotate(plan, "END", ZERO_GRAD);
    }

    fn temporary_size(&mut self, hidden: u64) -> u64 {
        match self.random.below(6) {
            0 => 4 * (1 + self.random.below(2_000)),
            1 => HIDDEN * HIDDEN * HALF * (1 + self.random.below(4)),
            2 => 4 * hidden,
            3 => 3 * hidden,
            _ => hidden,
        }
    }

    fn allocate(&mut self, plan: &mut VecDeque<Operation>, size: u64, site: Site) -> Slot {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        plan.push_back(Operation::Allocate { slot, size, site });
        slot
    }

    fn free(&mut self, plan: &mut VecDeque<Operation>, slot: Slot, site: Site) {
        plan.push_back(Operation::Free { slot, site });
        self.vacant.push(slot);
    }
}

fn annotate(plan: &mut VecDeque<Operation>, stage: &'static str, name: &'static str) {
    plan.push_back(Operation::Annotate { stage, name });
}
