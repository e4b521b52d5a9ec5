//! What is looked at.

use crate::study::attribution::CategoryRule;
use crate::study::{PositionSelector, Scope, Window};

/// What to look at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Only this device.
    pub device: Option<u64>,
    /// How many stacks and lines to list.
    pub top: usize,
    /// Which part of each device's trace.
    pub window: Window,
    /// The moment whose memory is shown; the snapshot if not given.
    pub at: Option<PositionSelector>,
    /// Bytes of device memory, which no snapshot records.
    pub capacity: Option<u64>,
    /// Bytes to ask for at the snapshot.
    pub request: Option<u64>,
    /// Categories of the reader's own, beside those that are built in.
    pub rules: &'a [CategoryRule],
    /// Whether to tell memory over time by category as well, which is drawn where there is colour.
    pub layers: bool,
    /// The minor release of PyTorch 2 that recorded it; found out as far as the file tells if not given.
    pub minor: Option<u32>,
    /// Whether files of source are told without their directories.
    pub strip_paths: bool,
}

impl Options<'_> {
    /// What is known, and looked at, whatever is asked.
    pub fn scope(self) -> Scope {
        let Self { device, window, capacity, minor, strip_paths, .. } = self;
        Scope { device, window, capacity, minor, strip_paths }
    }
}
