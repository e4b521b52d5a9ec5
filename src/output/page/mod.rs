//! `oomscope report`: one HTML file that holds an analysis and every allocation behind it.
//!
//! A page begins with the answer of `analyze`, laid out as on a terminal, which needs no script. Behind it lies the
//! analysis itself as JSON, and of every device its `data`: each allocation and each stretch of device memory from
//! its beginning to its end, as columns. The script in `web/` draws from these; it asks nothing of any server.
//!
//! [`write_fit`] writes the page of `oomscope fit`, which has no script.
//!
//! [`PageData::of`] packs one device; [`write()`] writes the file to any writer.

mod allocations;
mod base64;
mod budget;
mod columns;
mod data;
mod events;
mod fit;
mod header;
mod html;
mod names;
mod shown;
mod space;
mod stacks;
mod web;

use std::io;

use serde::Serialize;

pub use self::budget::budget;
pub use self::fit::write_fit;
pub use self::html::write;
use crate::analysis::DeviceReport;
use crate::study::{DeviceStudy, MemoryHistory, SERIES_ALLOCATED, SERIES_RESERVED};
use crate::whatif::WhatIfReport;

/// Buckets of the course of a device, beside the others'.
const COURSE: usize = 128;

/// What a page has of one snapshot, beside its analysis.
#[derive(Debug)]
pub struct SnapshotData {
    /// Its devices, in the order of the analysis.
    pub devices: Vec<PageData>,
    /// Its trace under other settings, if that was asked for.
    pub whatif: Option<WhatIfReport>,
}

/// One device of a page.
#[derive(Debug)]
pub struct PageData {
    device: u64,
    entries: u64,
    first_event: u64,
    peak_allocated_bytes: u64,
    peak_reserved_bytes: u64,
    failures: u64,
    course: Option<Course>,
    /// Its data, deflated.
    blob: Vec<u8>,
}

/// What was reserved and allocated over a trace, in thousandths of a scale.
#[derive(Debug, Serialize)]
struct Course {
    scale_bytes: u64,
    reserved: Vec<u64>,
    allocated: Vec<u64>,
}

impl PageData {
    /// Of `device`, whose analysis is `report`, in about `budget` bytes at most: see [`budget()`].
    ///
    /// # Errors
    /// Never: what is written lies in memory.
    pub fn of(
        device: DeviceStudy<'_, '_>,
        report: &DeviceReport,
        budget: usize,
    ) -> io::Result<Self> {
        let window = device.window();
        Ok(Self {
            device: device.id(),
            entries: window.len() as u64,
            first_event: window.start as u64,
            peak_allocated_bytes: report.peak.allocated_bytes,
            peak_reserved_bytes: report.peak.reserved_bytes,
            failures: report.oom_count,
            course: report.timeline.as_ref().map(Course::of),
            blob: data::pack(device, report, budget)?,
        })
    }
}

impl Course {
    fn of(over_time: &MemoryHistory) -> Self {
        let buckets = over_time.samples.buckets();
        let most = |series: usize| {
            let chunks = buckets.chunks(buckets.len().div_ceil(COURSE).max(1));
            let most = |chunk: &[crate::replay::literal::Bucket<3>]| {
                chunk.iter().map(|bucket| bucket.max[series]).max().unwrap_or(0)
            };
            chunks.map(most).collect::<Vec<u64>>()
        };
        let [reserved, allocated] = [SERIES_RESERVED, SERIES_ALLOCATED].map(most);
        let scale = reserved.iter().copied().max().unwrap_or(0).max(1);
        let thousandths = |values: Vec<u64>| {
            let part = |value: u64| u128::from(value) * 1000 / u128::from(scale);
            values.into_iter().map(|value| u64::try_from(part(value)).unwrap_or(1000)).collect()
        };
        Self {
            scale_bytes: scale,
            reserved: thousandths(reserved),
            allocated: thousandths(allocated),
        }
    }
}
