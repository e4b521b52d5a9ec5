//! Block counts of a forward pass, which show whether it kept a graph, and of a phase run.

use crate::base::ids::to_u32;
use crate::stacks::phases::{Phase, PhaseRun};

/// A pass with a graph keeps at least 1/this of its allocations.
const MIN_KEPT_FRACTION: u32 = 4;
/// If modules allocate fewer blocks in a pass, blocks of the code around them count as well.
const MIN_MODULE_BLOCKS: u32 = 3;

/// Blocks that one forward pass allocated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ForwardPass {
    all: BlockCounts,
    /// Blocks that modules allocated. The code around modules also keeps results, which need no graph.
    by_modules: BlockCounts,
    /// Number of blocks that code before the pass allocated, and the backward pass freed.
    older: u32,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockCounts {
    pub(super) allocated: u32,
    /// Freed within the pass.
    pub(super) freed: u32,
    /// Freed by a backward pass.
    pub(super) freed_by_backward: u32,
}

impl ForwardPass {
    /// Adds a block to one of the counts.
    pub(super) fn count(&mut self, is_module_block: bool, field: impl Fn(&mut BlockCounts) -> &mut u32) {
        *field(&mut self.all) += 1;
        if is_module_block {
            *field(&mut self.by_modules) += 1;
        }
    }

    pub(super) fn count_older(&mut self) {
        self.older += 1;
    }

    /// Whether code before the pass made at least half of the graph, as in programs without modules.
    pub(super) fn ends_graph(self) -> bool {
        self.older > 1 && self.older >= self.all.freed_by_backward
    }

    fn counts(self) -> BlockCounts {
        if self.by_modules.allocated < MIN_MODULE_BLOCKS { self.all } else { self.by_modules }
    }

    /// Whether it kept what a backward pass needs. Without a graph, a pass frees nearly everything that it allocates,
    /// except its result.
    pub(super) fn keeps_graph(self) -> bool {
        let counts = self.counts();
        let results = u32::from(counts.allocated >= MIN_MODULE_BLOCKS);
        counts.outliving() >= (counts.allocated / MIN_KEPT_FRACTION).max(results + 1)
    }

    /// Whether its graph outlived its backward pass (`retain_graph=True`), or never had one. Otherwise the blocks that
    /// stay are outputs that the program keeps.
    pub(super) fn retains_graph(self) -> bool {
        let counts = self.counts();
        counts.freed_by_backward < counts.outliving().div_ceil(2)
    }

    /// Whether it allocated too little to show whether it keeps a graph.
    pub(super) fn is_tiny(self) -> bool {
        self.all.allocated < MIN_MODULE_BLOCKS
    }
}

impl BlockCounts {
    /// Number of blocks that outlived the pass.
    fn outliving(self) -> u32 {
        self.allocated.saturating_sub(self.freed)
    }
}

/// When the freed blocks of one stack were freed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FreeCounts {
    /// Freed in the phase run that allocated them.
    pub(super) in_run: u32,
    /// Freed later, before a backward pass started.
    pub(super) before_backward: u32,
    /// Blocks of `in_run` and `before_backward` that were freed after the next forward pass began.
    pub(super) after_next_forward: u32,
    /// Freed after a backward pass started.
    pub(super) after_backward_start: u32,
    /// Blocks of `after_backward_start` that a backward pass freed, as it frees saved tensors.
    pub(super) in_backward: u32,
    /// Maximum number of backward passes that started during a block's lifetime.
    pub(super) max_passes: u32,
    /// Maximum lifetime, in entries, of a block that was freed before a backward pass started.
    pub(super) max_early_lifetime: u32,
}

impl FreeCounts {
    /// Whether backward passes freed all blocks that were live when one started.
    pub(super) fn are_saved_for_backward(self) -> bool {
        self.after_backward_start > 0 && self.in_backward == self.after_backward_start
    }

    /// Number of blocks freed before a backward pass started.
    pub(super) fn before_any_backward(self) -> u32 {
        self.in_run.saturating_add(self.before_backward)
    }
}

/// Counts of one phase run. A trace has millions: what only backward runs have is in tables of their own.
pub(super) struct RunCounts {
    /// Number of backward passes that have started.
    pub(super) backward_passes: u32,
    /// The entry of its last allocation so far.
    pub(super) last_alloc: u32,
    /// Index of its [`OutlivedBytes`]; 0 if it is no backward run.
    pub(super) outlived: u32,
}

/// Bytes that outlived a backward run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OutlivedBytes {
    pub(super) all: u64,
    /// Those that no backward pass freed.
    pub(super) left_for_optimizer: u64,
}

impl OutlivedBytes {
    pub(super) fn add(&mut self, bytes: u64, is_left_for_optimizer: bool) {
        self.all = self.all.saturating_add(bytes);
        self.left_for_optimizer = self.left_for_optimizer.saturating_add(if is_left_for_optimizer { bytes } else { 0 });
    }
}

/// The backward passes that have started in each of `runs`, and a row for the bytes that outlive each backward run.
pub(super) fn count_passes(runs: &[PhaseRun]) -> (Vec<RunCounts>, Vec<OutlivedBytes>) {
    let (mut backward_passes, mut last_phase) = (0, Phase::Other);
    let mut outlived = vec![OutlivedBytes::default()];
    let counts = runs.iter().map(|run| {
        let is_backward = run.phase == Phase::Backward;
        // An optimizer may step during a backward pass, which then continues.
        backward_passes += u32::from(is_backward && last_phase != Phase::Backward);
        last_phase = if run.phase == Phase::Optimizer { last_phase } else { run.phase };
        let row = if is_backward { to_u32(outlived.len()) } else { 0 };
        outlived.extend(is_backward.then(OutlivedBytes::default));
        RunCounts { backward_passes, last_alloc: 0, outlived: row }
    });
    (counts.collect(), outlived)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(allocated: u32, freed: u32, freed_by_backward: u32) -> ForwardPass {
        let by_modules = BlockCounts { allocated, freed, freed_by_backward };
        ForwardPass { all: by_modules, by_modules, older: 0 }
    }

    #[test]
    fn a_graph_is_most_of_what_modules_allocate() {
        assert!(pass(20, 8, 0).keeps_graph());
        assert!(!pass(20, 19, 0).keeps_graph() && !pass(3, 2, 0).keeps_graph(), "a result");
        assert!(pass(3, 1, 0).keeps_graph() && pass(1, 0, 0).keeps_graph());
        let mut with_results = pass(4, 4, 0);
        (0..6).for_each(|_| with_results.count(false, |counts| &mut counts.allocated));
        assert!(!with_results.keeps_graph(), "results that the code around the model makes");
    }

    #[test]
    fn a_loss_ends_the_graph_of_code_without_modules() {
        let mut loss = pass(3, 1, 2);
        loss.count_older();
        assert!(!loss.ends_graph(), "an input");
        loss.count_older();
        assert!(loss.ends_graph());
    }

    #[test]
    fn a_backward_pass_frees_the_graph_but_no_kept_output() {
        assert!(pass(20, 8, 0).retains_graph());
        assert!(!pass(20, 8, 11).retains_graph(), "one output is kept");
    }
}
