//! What became of the blocks of one stack, counted.

/// What became of the blocks of one stack that were freed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fates {
    /// Freed in the run of the phase that allocated them.
    pub(super) in_run: u32,
    /// Freed later, before a backward pass began.
    pub(super) before_backward: u32,
    /// Freed after one began.
    pub(super) after: u32,
    /// Of these, freed while one went on, as what is kept for it is.
    pub(super) in_backward: u32,
    /// The most backward passes that began in the life of one.
    pub(super) most_passes: u32,
    /// The most entries that one lived through which was freed before.
    pub(super) longest_early: u32,
}

impl Fates {
    /// Whether those that were there when a backward pass began were all kept for it.
    pub(super) fn are_kept_for_backward(self) -> bool {
        self.after > 0 && self.in_backward == self.after
    }

    /// How many were freed before a backward pass began.
    pub(super) fn early(self) -> u32 {
        self.in_run.saturating_add(self.before_backward)
    }
}
