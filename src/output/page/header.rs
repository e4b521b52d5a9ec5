//! The header of a device's data. docs/report-data.md documents its keys.

use serde::Serialize;

use super::proof::Proof;
use crate::study::lifetimes::EntryCount;

#[derive(Debug, Serialize)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) device: u64,
    /// Number of entries shown. Positions are 0 to this number.
    pub(super) entries: u32,
    /// Index of the first entry shown.
    pub(super) first_event: u64,
    pub(super) allocations: usize,
    pub(super) pending_at_start: usize,
    pub(super) kinds: usize,
    pub(super) segments: usize,
    pub(super) nodes: usize,
    pub(super) frames: usize,
    pub(super) lines: usize,
    pub(super) unit: u64,
    /// Mapping granularity of small and of large pools, in bytes.
    pub(super) granules: [u64; 2],
    pub(super) columns: Vec<(&'static str, usize)>,
    pub(super) regions: Vec<(String, u64)>,
    pub(super) streams: Vec<String>,
    pub(super) pools: Vec<String>,
    pub(super) categories: Vec<&'static str>,
    /// The first is for allocations that were freed before the snapshot; empty if the recorder named none.
    pub(super) variables: Vec<PageVariable>,
    pub(super) phases: Vec<&'static str>,
    pub(super) proof: Proof,
    pub(super) failure_count: u64,
    pub(super) failures: Vec<PageFailure>,
    pub(super) marks: Vec<PageMark>,
    pub(super) ranges: Vec<PageRange>,
    pub(super) steps: Vec<EntryCount>,
    /// Number of the step of which `steps` has the first end.
    pub(super) first_step: usize,
    pub(super) phase_runs: Vec<(EntryCount, usize)>,
    pub(super) start_us: Option<u64>,
    pub(super) undrawn: Option<Undrawn>,
}

/// A variable that keeps allocations.
#[derive(Debug, Serialize)]
pub(super) struct PageVariable {
    pub(super) name: String,
    /// More about it.
    pub(super) about: String,
}

/// A failed request.
#[derive(Debug, Serialize)]
pub(super) struct PageFailure {
    pub(super) moment: EntryCount,
    pub(super) requested_bytes: u64,
    pub(super) segment_bytes: u64,
    pub(super) stream: usize,
    /// `None` if not recorded.
    pub(super) pool: Option<usize>,
    pub(super) node: u32,
    /// Index into the failures of the analysis.
    pub(super) index: usize,
}

/// An event that is drawn as a mark.
#[derive(Debug, Serialize)]
pub(super) struct PageMark {
    pub(super) moment: EntryCount,
    pub(super) kind: &'static str,
    pub(super) bytes: u64,
}

/// A range of entries that the program named.
#[derive(Debug, Serialize)]
pub(super) struct PageRange {
    pub(super) start: EntryCount,
    pub(super) end: EntryCount,
    pub(super) name: String,
    /// `annotation` or `user_metadata`.
    pub(super) source: &'static str,
}

/// Allocations omitted to limit the size of the page.
#[derive(Debug, Serialize)]
pub(super) struct Undrawn {
    pub(super) allocations: usize,
    pub(super) bytes_at_most: u64,
}
