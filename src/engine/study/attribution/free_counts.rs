//! Counts of when the blocks of one stack were freed.

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
