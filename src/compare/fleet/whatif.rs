//! Settings for all snapshots of a job: one counts only if it serves every device of every snapshot.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;
use serde::Serialize;

use crate::analysis::Unreadable;
use crate::whatif::{JobOutcome, NOTICEABLE_PARTS, WhatIfReport, WhatIfRow};

/// The JSON of `oomscope whatif` for several snapshots.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct FleetWhatIfReport {
    /// Number of snapshots with a trace.
    pub snapshots: u64,
    /// Number of devices with a trace, of all snapshots.
    pub devices: u64,
    /// Number of devices whose recording the model does not reproduce: their rows are estimates.
    pub inexact_devices: u64,
    /// The settings string of every snapshot; null if they differ, or before PyTorch 2.3.
    pub settings_string: Option<String>,
    /// One row per setting: first the recorded ones, then those that serve most devices.
    pub rows: Vec<FleetWhatIfRow>,
    /// The best setting that serves every device, and after which the fewest fail later; null if there is none, or if no
    /// request fails as recorded and none needs noticeably less.
    pub best: Option<FleetWhatIfRow>,
    /// Snapshots without an answer; absent if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

/// One setting, replayed on every device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FleetWhatIfRow {
    /// The options tried, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; empty for the recorded settings.
    pub settings: String,
    /// Number of devices on which every recorded request is served, but for failures that the program survived.
    pub served_devices: u64,
    /// Number of devices on which a request fails.
    pub failing_devices: u64,
    /// Number of devices on which the setting was not tried, because that release lacks it or it has no use there.
    pub untried_devices: u64,
    /// Number of served devices whose job is predicted to fail again after the recording.
    pub failing_later_devices: u64,
    /// Number of served devices for which the requests after the failed one are not known.
    pub unknown_later_devices: u64,
    /// Number of failed requests of all devices.
    pub ooms: u64,
    /// Highest peak of reserved bytes of a device.
    pub peak_reserved_bytes: u64,
    /// Device memory with which no request fails on any device; null if no device is large enough.
    pub smallest_capacity_bytes: Option<u64>,
    /// Highest number of device calls that allocate or map memory.
    pub device_allocs: u64,
    /// The device with most failed requests, else the one with the highest peak of reserved memory.
    pub worst: SnapshotDevice,
}

/// A device of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SnapshotDevice {
    /// Path of the snapshot, as given on the command line.
    pub path: String,
    /// Device index.
    pub device: u64,
}

impl FleetWhatIfRow {
    /// Whether the setting was tried and serves every request on all devices.
    pub fn serves_all(&self) -> bool {
        self.failing_devices == 0 && self.untried_devices == 0
    }

    /// Number of devices that fail later, then of those for which this is not known.
    fn later(&self) -> (u64, u64) {
        (self.failing_later_devices, self.unknown_later_devices)
    }
}

/// Adds up the what-ifs of the snapshots of a job.
#[derive(Debug, Default)]
pub struct FleetWhatIf {
    snapshots: u64,
    devices: u64,
    inexact_devices: u64,
    /// The settings string of the first snapshot, while all have the same.
    settings_string: Option<String>,
    tallies: Vec<Tally>,
    by_settings: HashMap<String, usize, FxBuildHasher>,
    unreadable: Vec<Unreadable>,
}

#[derive(Debug)]
struct Tally {
    row: FleetWhatIfRow,
    /// Failed requests and peak of the worst device.
    worst: (usize, u64),
    /// Whether the setting differs from the recorded ones on a device in a way that matters there.
    has_use: bool,
}

impl FleetWhatIf {
    /// Adds a snapshot, of which every setting was tried.
    pub fn add(&mut self, report: &WhatIfReport) {
        if self.snapshots == 0 {
            self.settings_string.clone_from(&report.recorded_settings);
        } else if self.settings_string != report.recorded_settings {
            self.settings_string = None;
        }
        self.snapshots += 1;
        self.devices += report.devices.len() as u64;
        self.inexact_devices += report.devices.iter().filter(|device| !device.exact).count() as u64;
        for row in &report.rows {
            self.add_row(&report.path, row);
        }
    }

    /// True if no snapshot was added.
    pub fn is_empty(&self) -> bool {
        self.snapshots == 0
    }

    /// Adds a file without an answer.
    pub fn add_unreadable(&mut self, file: Unreadable) {
        self.unreadable.push(file);
    }

    fn add_row(&mut self, path: &str, row: &WhatIfRow) {
        let next = self.tallies.len();
        let index = *self.by_settings.entry(row.settings.clone()).or_insert(next);
        if index == next {
            self.tallies.push(Tally::new(path, row));
        }
        if let Some(tally) = self.tallies.get_mut(index) {
            tally.add(path, row);
        }
    }

    /// The report.
    pub fn finish(self) -> FleetWhatIfReport {
        let devices = self.devices;
        let is_useful = |tally: &Tally| tally.has_use || tally.row.settings.is_empty();
        let rows = self.tallies.into_iter().filter(is_useful).map(|tally| {
            let tried = tally.row.served_devices + tally.row.failing_devices;
            FleetWhatIfRow { untried_devices: devices - tried, ..tally.row }
        });
        let mut rows: Vec<FleetWhatIfRow> = rows.collect();
        rows.sort_by_key(|row| {
            let unserved = row.failing_devices + row.untried_devices;
            (!row.settings.is_empty(), unserved, row.later(), row.peak_reserved_bytes, row.device_allocs)
        });
        let best = best(&rows).cloned();
        FleetWhatIfReport {
            snapshots: self.snapshots,
            devices,
            inexact_devices: self.inexact_devices,
            settings_string: self.settings_string,
            rows,
            best,
            unreadable: self.unreadable,
        }
    }
}

impl Tally {
    fn new(path: &str, row: &WhatIfRow) -> Self {
        let row = FleetWhatIfRow {
            settings: row.settings.clone(),
            smallest_capacity_bytes: Some(0),
            worst: SnapshotDevice { path: path.to_owned(), device: row.device },
            ..FleetWhatIfRow::default()
        };
        Self { row, worst: (0, 0), has_use: false }
    }

    fn add(&mut self, path: &str, row: &WhatIfRow) {
        let sum = &mut self.row;
        if matches!(row.then, JobOutcome::RequestFails { .. }) {
            sum.failing_devices += 1;
        } else {
            sum.served_devices += 1;
            sum.failing_later_devices += u64::from(row.then.fails_again());
            sum.unknown_later_devices += u64::from(row.then.is_not_known());
        }
        sum.ooms += row.ooms as u64;
        sum.peak_reserved_bytes = sum.peak_reserved_bytes.max(row.figures.peak_reserved_bytes);
        sum.device_allocs = sum.device_allocs.max(row.figures.device_allocs);
        let capacities = sum.smallest_capacity_bytes.zip(row.smallest_capacity_bytes);
        sum.smallest_capacity_bytes = capacities.map(|(sum, row)| sum.max(row));
        if (row.ooms, row.figures.peak_reserved_bytes) > self.worst {
            self.worst = (row.ooms, row.figures.peak_reserved_bytes);
            sum.worst = SnapshotDevice { path: path.to_owned(), device: row.device };
        }
        self.has_use |= row.has_use;
    }
}

/// The best of `rows`, of which the first has the recorded settings: as for one snapshot, the simplest of those that need
/// about the same memory, and those that limit splits come last.
fn best(rows: &[FleetWhatIfRow]) -> Option<&FleetWhatIfRow> {
    let (recorded, others) = rows.split_first()?;
    let serving = || others.iter().filter(|row| row.serves_all());
    let fewest_later = serving().map(FleetWhatIfRow::later).min()?;
    let candidates = || serving().filter(|row| row.later() == fewest_later);
    let minimum = candidates().map(|row| row.peak_reserved_bytes).min()?;
    let noticeable = |bytes: u64| bytes.saturating_add(bytes / NOTICEABLE_PARTS);
    let best = candidates().min_by_key(|row| {
        let limits_splits = row.settings.contains("max_split_size_mb");
        let options = row.settings.matches(',').count();
        (limits_splits, row.peak_reserved_bytes > noticeable(minimum), options, row.peak_reserved_bytes)
    })?;
    let saves = noticeable(best.peak_reserved_bytes) < recorded.peak_reserved_bytes;
    (!recorded.serves_all() || saves).then_some(best)
}
