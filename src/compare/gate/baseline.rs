//! Peaks to compare with: a small file, fit for committing.

use serde::{Deserialize, Serialize};

use crate::study::{DeviceStudy, PeaksFromEmpty, Study};

/// The schema of what `oomscope check --save-baseline` writes.
const SCHEMA: &str = "oomscope/baseline/1";
/// Reports of `oomscope check` have the same rows.
const REPORT: &str = "oomscope/check/1";

/// Peaks of one device of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Peaks {
    /// Device number.
    pub device: u64,
    /// The most that the program holds, replayed from an empty pool.
    pub replayed_peak_allocated_bytes: u64,
    /// The most that is held from the device, replayed from an empty pool.
    pub replayed_peak_reserved_bytes: u64,
    /// The snapshot's name: of one that was found in a directory, its path there.
    pub snapshot: String,
}

/// What to compare with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// By snapshot and device. A report that compared no growth has none.
    #[serde(default)]
    replayed: Vec<Peaks>,
    /// `oomscope/baseline/1`
    schema: String,
}

/// The peaks of the snapshot called `name`: those of devices that have a trace.
pub fn peaks(study: &Study<'_>, name: &str) -> Vec<Peaks> {
    let row = |one: &PeaksFromEmpty| Peaks {
        device: one.device,
        replayed_peak_allocated_bytes: one.peak_allocated_bytes,
        replayed_peak_reserved_bytes: one.peak_reserved_bytes,
        snapshot: name.to_owned(),
    };
    study.devices().filter_map(DeviceStudy::peaks_from_empty).map(row).collect()
}

impl Baseline {
    /// Of these peaks.
    pub fn new(mut replayed: Vec<Peaks>) -> Self {
        replayed.sort_by(|a, b| (&a.snapshot, a.device).cmp(&(&b.snapshot, b.device)));
        Self { replayed, schema: SCHEMA.to_owned() }
    }

    /// Whether `text` is a report of this program, as opposed to a snapshot: its schema.
    pub fn schema_of(text: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        serde_json::from_str::<Head>(text).ok().map(|head| head.schema)
    }

    /// Reads what `--save-baseline` or `--format json` wrote.
    ///
    /// # Errors
    /// One sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(schema) = Self::schema_of(text).filter(|s| s != SCHEMA && s != REPORT) {
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

    /// All that is in it.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Peaks> {
        self.replayed.iter()
    }

    /// Whether it is of one snapshot only.
    pub fn is_single(&self) -> bool {
        let one = self.replayed.first().map(|first| first.snapshot.as_str());
        self.replayed.iter().all(|row| Some(row.snapshot.as_str()) == one)
    }

    /// The peaks to compare device `device` of the snapshot called `name` with. A baseline of a single
    /// snapshot is one for a single snapshot, whatever it is called.
    pub fn of(&self, name: &str, is_only: bool, device: u64) -> Option<&Peaks> {
        let same_name = |row: &&Peaks| row.snapshot == name;
        let mut rows = self.replayed.iter().filter(|row| row.device == device);
        if is_only && self.is_single() { rows.next() } else { rows.find(same_name) }
    }
}
