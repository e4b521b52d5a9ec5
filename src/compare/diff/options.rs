//! Options of a comparison.

use crate::base::warning::words;
words! {
    /// The position to compare.
    pub enum ComparedMoment {
        /// The peak of allocated memory
        Peak = "peak",
        /// The snapshot
        Snapshot = "snapshot",
    }
}

#[expect(clippy::derivable_impls, reason = "`words!` has no default")]
impl Default for ComparedMoment {
    fn default() -> Self {
        Self::Peak
    }
}

/// Selects what to compare, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiffOptions {
    /// Only this device.
    pub device: Option<u64>,
    /// The position to compare.
    pub at: ComparedMoment,
    /// Maximum number of lines and stacks in a list.
    pub top: usize,
}
