//! How much of the stacks of one snapshot a report has room for. A file of a few kilobytes can refer to one stack of
//! millions of frames from thousands of failed requests: without bounds, its report would have gigabytes.

use super::frame::FrameReport;
use crate::snapshot::Snapshot;

/// Bytes of JSON for all stacks of a report.
const REPORT_BYTES: usize = 24 << 20;
/// Bytes of a frame in JSON, without its text.
const FRAME_BYTES: usize = 112;
/// Stacks of each device in a report that belong to no failed request: those that hold most memory.
const STACKS_OF_DEVICE: usize = 16;
/// Stacks of a failed request in a report: its own, and those of the blocks beside free memory.
const STACKS_OF_FAILURE: usize = 6;
/// Failed requests in a report.
const FAILURES: usize = 4000;
/// The same for each device: minimum and maximum.
const FAILURES_OF_DEVICE: [usize; 2] = [16, 1000];

/// The room in a report of one snapshot.
#[derive(Debug, Clone, Copy)]
pub struct ReportBounds {
    /// Bytes of JSON for each stack.
    pub(super) list_bytes: usize,
    /// Failed requests of each device.
    pub failures: usize,
}

impl ReportBounds {
    pub(super) fn from_snapshot(snapshot: &Snapshot) -> Self {
        let [minimum, maximum] = FAILURES_OF_DEVICE;
        let devices = snapshot.devices().count();
        let failures = (FAILURES / devices.max(1)).clamp(minimum, maximum);
        let described =
            |failed: usize| STACKS_OF_DEVICE + failed.min(failures) + failed.min(minimum) * STACKS_OF_FAILURE;
        let stacks: usize = snapshot.devices().map(|device| described(device.failed_requests().count())).sum();
        Self { list_bytes: REPORT_BYTES / stacks.max(1), failures }
    }
}

/// About as many bytes as `frame` has in JSON.
pub(super) fn frame_bytes(frame: &FrameReport) -> usize {
    FRAME_BYTES + frame.file.len() + frame.name.len()
}
