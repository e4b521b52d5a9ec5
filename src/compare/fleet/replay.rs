//! Replays of all snapshots of a job.

use std::cmp::Reverse;

use serde::Serialize;

use crate::analysis::Unreadable;
use crate::whatif::{JobOutcome, ReplayReport, ReplayedDevice};

/// The JSON of `oomscope replay` for several snapshots.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct FleetReplayReport {
    /// `verify` or `what-if`.
    pub mode: &'static str,
    /// Number of snapshots with a trace.
    pub snapshots: u64,
    /// One row per device with a trace. Those on which the model diverges come first, then those on which requests fail,
    /// then those with the highest peak of reserved memory.
    pub rows: Vec<FleetReplayRow>,
    /// Snapshots without an answer; absent if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

/// The replay of one device of one snapshot.
#[derive(Debug, Clone, Serialize)]
pub struct FleetReplayRow {
    /// Path of the snapshot, as given on the command line.
    pub path: String,
    /// Device index.
    pub device: u64,
    /// Whether the model reproduces the recording; null if one entry shows no decision.
    pub exact: Option<bool>,
    /// Number of recorded entries.
    pub recorded_events: u64,
    /// Number of entries that match before the first difference; null in a what-if.
    pub matched_events: Option<u64>,
    /// The allocator rule in question at the first difference; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Number of requests that failed when recorded.
    pub recorded_ooms: u64,
    /// Number of requests that fail in this replay.
    pub ooms: u64,
    /// The outcome of the job in a what-if; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<JobOutcome>,
    /// Recorded peak of reserved bytes.
    pub recorded_peak_reserved_bytes: u64,
    /// Peak of reserved bytes in this replay.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated bytes in this replay.
    pub peak_allocated_bytes: u64,
}

/// Collects the replays of the snapshots of a job.
#[derive(Debug, Default)]
pub struct FleetReplay {
    mode: &'static str,
    snapshots: u64,
    rows: Vec<FleetReplayRow>,
    unreadable: Vec<Unreadable>,
}

impl FleetReplay {
    /// Adds a snapshot.
    pub fn add(&mut self, report: &ReplayReport) {
        self.mode = report.mode;
        self.snapshots += 1;
        let traced = report.devices.iter().filter(|device| device.events.recorded > 0);
        self.rows.extend(traced.map(|device| FleetReplayRow::new(&report.path, device)));
    }

    /// True if no snapshot was added.
    pub fn is_empty(&self) -> bool {
        self.snapshots == 0
    }

    /// Adds a file without an answer.
    pub fn add_unreadable(&mut self, file: Unreadable) {
        self.unreadable.push(file);
    }

    /// The report on all of them.
    pub fn finish(mut self) -> FleetReplayReport {
        // Rows of equal rank keep the order of the files.
        self.rows.sort_by_key(|row| Reverse((row.exact == Some(false), row.ooms, row.peak_reserved_bytes)));
        let Self { mode, snapshots, rows, unreadable } = self;
        FleetReplayReport { mode, snapshots, rows, unreadable }
    }
}

impl FleetReplayRow {
    fn new(path: &str, device: &ReplayedDevice) -> Self {
        let recorded = device.recorded.as_deref().unwrap_or(device);
        Self {
            path: path.to_owned(),
            device: device.device,
            exact: recorded.exact,
            recorded_events: recorded.events.recorded as u64,
            matched_events: device.events.matched.map(|matched| matched as u64),
            why: recorded.first_divergence.as_ref().map(|divergence| divergence.why.clone()),
            recorded_ooms: recorded.ooms.len() as u64,
            ooms: device.ooms.len() as u64,
            then: device.then.clone(),
            recorded_peak_reserved_bytes: recorded.peak_reserved_bytes,
            peak_reserved_bytes: device.peak_reserved_bytes,
            peak_allocated_bytes: device.peak_allocated_bytes,
        }
    }
}
