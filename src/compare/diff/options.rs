//! What to compare.

use serde::Serialize;

/// The moment compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum At {
    /// When most was allocated.
    #[default]
    Peak,
    /// When the snapshot was taken.
    Snapshot,
}

/// What to compare.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiffOptions {
    /// Only this device.
    pub device: Option<u64>,
    /// The moment.
    pub at: At,
    /// How many lines and stacks to list.
    pub top: usize,
    /// The minor release of PyTorch 2 that recorded both; found out as far as each file tells if not given.
    pub minor: Option<u32>,
    /// Whether every stack is wanted, for a flame graph.
    pub all_stacks: bool,
}
