//! Baselines: peaks to compare with, in a small file that can be committed.

use serde::{Deserialize, Serialize};

use crate::study::{DeviceStudy, PeaksFromEmpty, Study};

/// The schema of what `oomscope check --save-baseline` writes.
const SCHEMA: &str = "oomscope/baseline/1";
/// The schema of a baseline with entries by name.
pub(super) const ENTRIES_SCHEMA: &str = "oomscope/baseline/2";
/// The schema of `oomscope check` reports, which have the same rows.
const REPORT_SCHEMA: &str = "oomscope/check/1";

/// The peaks of one device of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BaselinePeaks {
    /// Device number.
    pub device: u64,
    /// Peak of allocated bytes in a replay from an empty pool.
    pub replayed_peak_allocated_bytes: u64,
    /// Peak of reserved bytes in a replay from an empty pool.
    pub replayed_peak_reserved_bytes: u64,
    /// Name of the snapshot; its path in the directory if it was found in one.
    pub snapshot: String,
}

/// A set of peaks to compare with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// Sorted by snapshot and device. Empty in a report that compared no growth.
    #[serde(default)]
    replayed: Vec<BaselinePeaks>,
    /// `oomscope/baseline/1`
    schema: String,
}

/// The peaks of the snapshot named `name`, of each device with a trace.
pub fn peaks(study: &Study<'_>, name: &str) -> Vec<BaselinePeaks> {
    let row = |peaks: &PeaksFromEmpty| BaselinePeaks {
        device: peaks.device,
        replayed_peak_allocated_bytes: peaks.peak_allocated_bytes,
        replayed_peak_reserved_bytes: peaks.peak_reserved_bytes,
        snapshot: name.to_owned(),
    };
    study.devices().filter_map(DeviceStudy::peaks_from_empty).map(row).collect()
}

impl Baseline {
    /// Sorts the peaks, so that equal baselines are equal files.
    pub fn new(mut replayed: Vec<BaselinePeaks>) -> Self {
        replayed.sort_by(|a, b| (&a.snapshot, a.device).cmp(&(&b.snapshot, b.device)));
        Self { replayed, schema: SCHEMA.to_owned() }
    }

    /// The schema of `text`, if it is a report of this program rather than a snapshot.
    pub fn schema_of(text: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        serde_json::from_str::<Head>(text).ok().map(|head| head.schema)
    }

    /// Parses the output of `--save-baseline` or `--format json`.
    ///
    /// # Errors
    /// A sentence fragment that follows the file's name.
    pub fn parse(text: &str) -> Result<Self, String> {
        if Self::schema_of(text).as_deref() == Some(ENTRIES_SCHEMA) {
            return Err("has entries by name: give one with --entry NAME".to_owned());
        }
        if let Some(schema) = Self::schema_of(text).filter(|s| s != SCHEMA && s != REPORT_SCHEMA) {
            return Err(format!(
                "is {schema}, which has no peaks to compare with: give a snapshot, or what \
                 `oomscope check --save-baseline` wrote"
            ));
        }
        let read = serde_json::from_str::<Self>(text);
        let baseline = read.map_err(|error| format!("is not a baseline: {error}"))?;
        if baseline.replayed.is_empty() {
            return Err("has no peaks to compare with: save it again with `oomscope check \
                        --save-baseline`"
                .to_owned());
        }
        Ok(baseline)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &BaselinePeaks> {
        self.replayed.iter()
    }

    /// Whether all rows are of one snapshot.
    pub fn has_single_snapshot(&self) -> bool {
        let name = self.replayed.first().map(|first| first.snapshot.as_str());
        self.replayed.iter().all(|row| Some(row.snapshot.as_str()) == name)
    }

    /// The peaks to compare with, for `device` of the snapshot named `name`. If both the check and the baseline have a
    /// single snapshot (`is_only`), names need not match.
    pub fn peaks_for(&self, name: &str, is_only: bool, device: u64) -> Option<&BaselinePeaks> {
        let same_name = |row: &&BaselinePeaks| row.snapshot == name;
        let mut rows = self.replayed.iter().filter(|row| row.device == device);
        if is_only && self.has_single_snapshot() { rows.next() } else { rows.find(same_name) }
    }
}
