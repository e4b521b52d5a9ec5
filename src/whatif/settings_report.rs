//! The JSON of `oomscope whatif`.

use serde::Serialize;

use super::outcome::JobOutcome;
use super::program::ProgramDevice;
use super::tried::TriedRow;
use crate::allocator::RunFigures;
use crate::base::warning::Warning;
use crate::study::LostHistory;

/// The JSON of `oomscope whatif`.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct WhatIfReport {
    /// Path of the snapshot, as given on the command line.
    pub path: String,
    /// The recorded settings string; `None` if the release does not record it.
    #[serde(skip)]
    pub recorded_settings: Option<String>,
    /// Device memory of the replays, the largest of all devices: `--capacity`, else what a failed request shows to be
    /// within reach; null if none failed.
    pub capacity_bytes: Option<u64>,
    /// The PyTorch releases whose rules the replay followed.
    pub torch_version: String,
    /// Problems of the snapshot, and limits of the replays.
    pub warnings: Vec<Warning>,
    /// One row for each device and setting: for each device the recorded settings first, which without `--capacity`
    /// have the figures of the recording. The others are sorted by `ooms`, `peak_reserved_bytes` and `device_allocs`.
    pub rows: Vec<WhatIfRow>,
    /// Peak of the live bytes, each request rounded, the largest of all devices: no setting needs less.
    pub lower_bound_bytes: u64,
    /// Bounds of the rows of each device.
    pub devices: Vec<WhatIfDevice>,
    /// The changes to the program of each device; absent if only settings were tried, and without devices whose trace is too
    /// long to try them by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<Vec<ProgramDevice>>,
}

/// Bounds of the rows of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhatIfDevice {
    /// Device index.
    pub device: u64,
    /// Device memory of the replays, in bytes; null if unbounded.
    pub capacity_bytes: Option<u64>,
    /// Bytes that the process may reserve of it; absent if nothing shows a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Peak of the live bytes, each request rounded: no setting needs less. Up to the end of one more iteration if a failure
    /// ended the recording and the job goes on.
    pub lower_bound_bytes: u64,
    /// Bytes reserved before the first trace entry: no smaller device is claimed to be enough.
    pub reserved_before_bytes: u64,
    /// Whether the model reproduces the recording; if not, every row is an estimate.
    pub exact: bool,
    /// Whether at least one setting, possibly the recorded ones, serves every request.
    pub some_row_serves: bool,
    /// Settings and changes to the program in one list, the best first.
    pub tried: Vec<TriedRow>,
    /// Whether changes to the program were not tried, because the trace is long; absent if false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skips_program: bool,
    /// The result of all rows, for the summary.
    #[serde(skip)]
    pub verdict: SettingsVerdict,
}

/// The verdict of all rows of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsVerdict {
    /// The best row with which the last failed request is served, other than the recorded settings.
    pub best: Option<WhatIfRow>,
    /// The best of the settings and changes of the program, if anything helps or may help.
    pub best_tried: Option<TriedRow>,
    /// The needs of the program if requests fail in every row.
    pub requirement: Requirement,
    /// Why the start of the recording is missing.
    pub lost: Option<LostHistory>,
    /// Whether a replay under the recorded settings serves the last failed request.
    pub is_unreplayable: bool,
}

/// The needs of a program if requests fail under all settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// A higher limit of the process: on the device, this many bytes are enough.
    HigherLimit(u64),
    /// Less live memory, or a larger device: live memory alone exceeds the device.
    LessMemory,
    /// A recording that starts earlier: more was reserved before this one than the device has.
    EarlierRecording,
    /// A device with this many bytes available.
    Capacity(u64),
    /// Other settings: under these, no device is large enough.
    OtherSettings,
}

/// The replay of one device under one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhatIfRow {
    /// The options tried, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; empty for the recorded settings.
    pub settings: String,
    /// Device index.
    pub device: u64,
    /// Number of requests that fail.
    pub ooms: usize,
    /// Entry index of the first failed request in the device's trace; null if none fails.
    pub first_oom_event: Option<usize>,
    /// The outcome of the job under these settings.
    pub then: JobOutcome,
    /// Peaks and numbers of device calls.
    #[serde(flatten)]
    pub figures: RunFigures,
    /// The peak of reserved bytes up to the end of one more iteration, if a failure ended the recording and the job goes on: what changes of
    /// the program are compared with.
    #[serde(skip)]
    pub continued_peak_bytes: u64,
    /// Smallest device memory with which no request fails, to within 2 MiB or 1/256; null if no device is large enough.
    pub smallest_capacity_bytes: Option<u64>,
}
