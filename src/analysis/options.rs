//! Options of an analysis.

use crate::study::attribution::CategoryRule;
use crate::study::{PositionSelector, Scope, Window};

/// Selects what to analyze, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Only this device.
    pub device: Option<u64>,
    /// Maximum number of stacks and lines in a list.
    pub top: usize,
    /// The part of each device's trace to analyze.
    pub window: Window,
    /// The position whose memory is shown; by default the snapshot.
    pub at: Option<PositionSelector>,
    /// Device memory in bytes; snapshots do not record it.
    pub capacity: Option<u64>,
    /// Size of a request to try, in bytes.
    pub request: Option<u64>,
    /// Custom categories, in addition to the built-in ones.
    pub rules: &'a [CategoryRule],
    /// The minor release of PyTorch 2 that wrote the snapshot; by default inferred from the file.
    pub minor: Option<u32>,
    /// Whether to omit the directories of source files.
    pub strip_paths: bool,
}

impl Options<'_> {
    /// The scope of a study for these options.
    pub fn scope(self) -> Scope {
        let Self { device, window, capacity, minor, strip_paths, .. } = self;
        Scope { device, window, capacity, minor, strip_paths }
    }
}
