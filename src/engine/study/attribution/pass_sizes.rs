//! Requested sizes of blocks that show their use: of parameters, and of what backward passes compute and leave.

use std::collections::BTreeSet;

use crate::base::intern::{SeededMap, SeededSet};

/// Evidence that parameters of some size were gathered for a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GatherEvidence {
    Yes,
    Possible,
    No,
}

/// Padding of shards to equal size is at most the gathered size divided by this.
const MAX_PADDING_FRACTION: u64 = 8;

/// Requested sizes of the blocks of passes.
#[derive(Default)]
pub(super) struct PassSizes {
    /// Backward runs that blocks of a size outlived, each with the number of these blocks. A run may occur several times.
    outlived_runs: SeededMap<u64, Vec<(u32, u32)>>,
    /// The maximum number of blocks of a size that outlived the backward run that allocated them.
    pub(super) gradients: SeededMap<u64, u32>,
    /// The maximum number of blocks of a size that one backward pass allocated, recomputation aside.
    pub(super) computed: SeededMap<u64, u32>,
    /// The number of the current backward pass, and the same counts for it.
    computed_in_pass: (u32, SeededMap<u64, u32>),
    /// Those that PyTorch allocated for parameters.
    pub(super) parameters: SeededSet<u64>,
    /// Those of gathered parameters.
    pub(super) gathered: BTreeSet<u64>,
}

impl PassSizes {
    /// Counts a block that backward pass `pass` allocates, other than for recomputation.
    pub(super) fn add_computed(&mut self, pass: u32, requested_bytes: u64) {
        if self.computed_in_pass.0 != pass {
            self.end_pass();
            self.computed_in_pass.0 = pass;
        }
        *self.computed_in_pass.1.entry(requested_bytes).or_default() += 1;
    }

    fn end_pass(&mut self) {
        for (requested, blocks) in self.computed_in_pass.1.drain() {
            let most = self.computed.entry(requested).or_default();
            *most = blocks.max(*most);
        }
    }

    /// Counts a block that outlived backward run `run`, which allocated it.
    pub(super) fn add_outliving(&mut self, run: u32, requested_bytes: u64) {
        let runs = self.outlived_runs.entry(requested_bytes).or_default();
        match runs.last_mut().filter(|(last, _)| *last == run) {
            Some((_, blocks)) => *blocks += 1,
            None => runs.push((run, 1)),
        }
    }

    /// Ends the last pass.
    pub(super) fn finish(&mut self) {
        self.end_pass();
        for (requested, mut runs) in self.outlived_runs.drain() {
            runs.sort_unstable();
            let by_run = runs.chunk_by(|(run, _), (next, _)| run == next);
            let most = by_run.map(|run| run.iter().map(|(_, blocks)| blocks).sum()).max();
            self.gradients.extend(most.map(|most| (requested, most)));
        }
    }

    /// Whether gradients have this size: backward passes leave or compute blocks of this size.
    pub(super) fn is_gradient(&self, requested_bytes: u64) -> bool {
        self.gradients.contains_key(&requested_bytes) || self.computed.contains_key(&requested_bytes)
    }

    /// Evidence that parameters of `bytes`, in full or half precision, were gathered for a pass, with or without
    /// padding.
    pub(super) fn gather_evidence(&self, bytes: u64) -> GatherEvidence {
        let max_padded = bytes.saturating_add(bytes / MAX_PADDING_FRACTION);
        let mut precisions = [Some(bytes), bytes.checked_mul(2)].into_iter().flatten();
        match self.gathered.range(bytes..=max_padded).next() {
            Some(size) if *size == bytes => GatherEvidence::Yes,
            Some(_) if precisions.any(|bytes| self.parameters.contains(&bytes)) => GatherEvidence::Yes,
            Some(_) => GatherEvidence::Possible,
            None => GatherEvidence::No,
        }
    }
}
