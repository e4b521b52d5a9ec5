//! The HTML file of `oomscope report`: an analysis and every allocation behind it.
//!
//! In: a finished analysis and the device studies behind it. Out: a file without external resources. It starts with
//! the page of `analyze`, which needs no script, followed by the analysis as JSON and by the `data` of each device: the
//! lifetime of every allocation and segment, as columns. The script in `web/` draws from these.
//!
//! [`write_viewer`] writes the page of `oomscope viewer`, which reads files that are dropped on it.
//!
//! [`PageData::from_study`] packs the devices of a snapshot; [`write()`] writes the file. Knows no command line and no
//! paths.

mod base64;
mod budget;
mod columns;
pub(crate) mod data;
mod events;
mod html;
mod picture;
mod screen;
mod stacks;
mod viewer;
mod web;

use std::io;

use serde_json::{Value, json};

pub use self::budget::budget;
pub use self::html::{PageOrder, write};
pub use self::viewer::write_viewer;
use crate::analysis::{DeviceReport, SnapshotReport};
use crate::study::{DeviceStudy, MemoryHistory, SERIES_ALLOCATED, SERIES_RESERVED, Study};

/// Number of buckets of a device's sparkline in the list of devices.
const SPARKLINE_BUCKETS: usize = 128;

/// The data of one device: header and columns, deflated.
#[derive(Debug)]
pub struct PageData(Vec<u8>);

impl PageData {
    /// Packs the devices of `study`, whose analysis is `report`, as one of `files` snapshots of a page. Takes their lifetimes.
    ///
    /// # Errors
    /// Never: the data is written to memory.
    pub fn from_study(study: &Study<'_>, report: &mut SnapshotReport, files: usize) -> io::Result<Vec<Self>> {
        let budget = budget(files * report.devices.len());
        let devices = study.devices().zip(&mut report.devices);
        devices.map(|(device, report)| Self::from_device(device, report, budget)).collect()
    }

    /// Packs `device`, whose analysis is `report`, into about `budget` bytes at most: see [`budget()`]. Takes its lifetimes.
    ///
    /// # Errors
    /// Never: the data is written to memory.
    pub fn from_device(device: DeviceStudy<'_, '_>, report: &mut DeviceReport, budget: usize) -> io::Result<Self> {
        data::pack(device, report, budget).map(Self)
    }
}

/// Reserved and allocated bytes over the trace, in thousandths of `scale_bytes`.
fn sparkline(over_time: &MemoryHistory) -> Value {
    let [reserved, allocated] =
        [SERIES_RESERVED, SERIES_ALLOCATED].map(|series| course(over_time, series, SPARKLINE_BUCKETS));
    let scale = reserved.iter().copied().fold(1, u64::max);
    let [reserved, allocated] = [reserved, allocated].map(|values| {
        let values = values.into_iter().map(|value| u128::from(value) * 1000 / u128::from(scale));
        values.map(|value| u64::try_from(value).unwrap_or(1000)).collect::<Vec<u64>>()
    });
    json!({ "scale_bytes": scale, "reserved": reserved, "allocated": allocated })
}

/// The maximum of a series in each of about `parts` parts of the trace.
fn course(over_time: &MemoryHistory, series: usize, parts: usize) -> Vec<u64> {
    let buckets = over_time.samples.buckets();
    let chunks = buckets.chunks(buckets.len().div_ceil(parts).max(1));
    chunks.map(|chunk| chunk.iter().map(|bucket| bucket.max[series]).fold(0, u64::max)).collect()
}
