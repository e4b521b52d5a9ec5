//! The training of a transformer as the allocator sees it, one operation at a time.

use std::collections::VecDeque;

use oomscope::allocator::BlockId;

use super::Options;
use super::allocator::Allocator;
use super::journal::Journal;
use super::plan::{Operation, Planner};
use super::random::Random;
use super::stacks::{Site, StackSource};

pub struct Workload {
    pub allocator: Allocator,
    pub journal: Journal,
    pub stacks: StackSource,
    planner: Planner,
    planned: VecDeque<Operation>,
    /// The block that each slot of the plan holds.
    slots: Vec<BlockId>,
}

impl Workload {
    /// Two workloads of the same seed do the same, whatever their stacks are; those of another batch with other
    /// sizes.
    pub fn new(options: &Options) -> Self {
        let Options { seed, distinct_stacks, batch, .. } = *options;
        Workload {
            allocator: Allocator::default(),
            journal: Journal::new(Random::new(seed, 1)),
            stacks: StackSource::new(distinct_stacks, Random::new(seed, 2)),
            planner: Planner::new(Random::new(seed, 3), batch),
            planned: VecDeque::new(),
            slots: Vec::new(),
        }
    }

    /// Carries out the next operation; its events are in the journal afterwards.
    pub fn advance(&mut self) {
        let operation = loop {
            match self.planned.pop_front() {
                Some(operation) => break operation,
                None => self.planner.plan_step(&mut self.planned),
            }
        };
        match operation {
            Operation::Allocate { slot, size, site } => {
                let traceback = self.stacks.draw(site);
                let block = self.allocator.allocate(size, traceback, &mut self.journal);
                // A new slot follows those so far.
                match self.slots.get_mut(slot) {
                    Some(place) => *place = block,
                    None => self.slots.push(block),
                }
            }
            Operation::Free { slot, site } => {
                let traceback = self.stacks.draw(site);
                self.allocator.free(self.slots[slot], traceback, &mut self.journal);
            }
            Operation::EmptyCache => {
                let traceback = self.stacks.draw(Site::FreeInMain);
                self.allocator.empty_cache(traceback, &mut self.journal);
            }
            Operation::Annotate { stage, name } => self.journal.annotate(stage, name),
            Operation::Pause => self.journal.pause(),
        }
    }
}
