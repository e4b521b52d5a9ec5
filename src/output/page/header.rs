//! What a page's data says of itself, before its columns. docs/report.md has the meaning of each key.

use serde::Serialize;

use super::allocations::Moment;

/// The header of the data of one device.
#[derive(Debug, Serialize)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) device: u64,
    /// Entries that are shown: moments are 0 to this.
    pub(super) entries: u32,
    /// The index of the first of them.
    pub(super) first_event: u64,
    pub(super) allocations: usize,
    pub(super) pending_at_start: usize,
    pub(super) kinds: usize,
    pub(super) segments: usize,
    pub(super) nodes: usize,
    pub(super) frames: usize,
    pub(super) lines: usize,
    pub(super) unit: u64,
    /// Of small and of large pools.
    pub(super) granules: [u64; 2],
    pub(super) columns: Vec<(&'static str, usize)>,
    pub(super) regions: Vec<(String, u64)>,
    pub(super) streams: Vec<String>,
    pub(super) pools: Vec<String>,
    pub(super) categories: Vec<&'static str>,
    pub(super) phases: Vec<&'static str>,
    pub(super) failure_count: u64,
    pub(super) failures: Vec<Failure>,
    pub(super) marks: Vec<Mark>,
    pub(super) ranges: Vec<Range>,
    pub(super) steps: Vec<Moment>,
    pub(super) phase_runs: Vec<(Moment, usize)>,
    pub(super) start_us: Option<u64>,
    pub(super) undrawn: Option<Undrawn>,
}

/// A failed request.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    pub(super) moment: Moment,
    pub(super) requested_bytes: u64,
    pub(super) segment_bytes: u64,
    pub(super) stream: usize,
    /// `None` where it is not recorded.
    pub(super) pool: Option<usize>,
    pub(super) node: u32,
    /// Its place among the failures of the analysis.
    pub(super) index: usize,
}

/// Something that happened.
#[derive(Debug, Serialize)]
pub(super) struct Mark {
    pub(super) moment: Moment,
    pub(super) kind: &'static str,
    pub(super) bytes: u64,
}

/// A stretch of entries that the program gave a name.
#[derive(Debug, Serialize)]
pub(super) struct Range {
    pub(super) start: Moment,
    pub(super) end: Moment,
    pub(super) name: String,
}

/// What is not drawn one by one, for want of room.
#[derive(Debug, Serialize)]
pub(super) struct Undrawn {
    pub(super) allocations: usize,
    pub(super) bytes_at_most: u64,
}
