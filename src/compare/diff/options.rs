//! Options of a comparison.

use serde::Serialize;

/// The position to compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ComparedMoment {
    /// The peak of allocated memory.
    #[default]
    Peak,
    /// The snapshot.
    Snapshot,
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
