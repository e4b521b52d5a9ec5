//! The JSON of `oomscope replay` and `oomscope whatif`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::forecast::ForecastVerdict;
use super::inferred_settings::SettingsFrom;
use super::outcome::JobOutcome;
use super::program::ProgramDevice;
use super::tried::TriedRow;
use crate::base::warning::Warning;
use crate::study::LostHistory;

/// The JSON of `oomscope replay`.
#[derive(Debug, Serialize)]
#[serde(remote = "Self")]
pub struct ReplayReport {
    /// Path of the snapshot, as given on the command line.
    pub path: String,
    /// `verify` or `what-if`.
    pub mode: &'static str,
    /// The settings of the replay, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; null if the release does not record
    /// them.
    pub settings_string: Option<String>,
    /// The PyTorch releases whose rules the replay followed, such as `2.10-2.11`.
    pub torch_version: String,
    /// Problems of the snapshot, and limits of the replay.
    pub warnings: Vec<Warning>,
    /// Every device with a segment or a trace entry.
    pub devices: Vec<ReplayedDevice>,
}

/// The replay of one device.
#[derive(Debug, Serialize)]
pub struct ReplayedDevice {
    /// Device index.
    pub device: u64,
    /// State from which the replay starts: `empty`, or `reconstructed` if memory was reserved before the trace begins.
    /// Totals, peaks and `statistics` then count from the start of the recording.
    pub start: &'static str,
    /// Numbers of trace entries.
    pub events: EventCounts,
    /// Whether the model reproduced every recorded entry; null in a what-if, and if there is no trace to reproduce.
    pub exact: Option<bool>,
    /// Whether the model ended with the snapshot's segments and blocks; null in a what-if, and if there is no trace to
    /// reproduce.
    pub end_state_exact: Option<bool>,
    /// Number of segments that differ from the snapshot at the end; absent in a what-if.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_differences: Option<usize>,
    /// The first entry at which the model diverges from the recording; null if there is none.
    pub first_divergence: Option<DivergenceReport>,
    /// Number of calls whose details the trace leaves open; counters such as `num_alloc_retries` may be off by this
    /// many.
    pub ambiguous_calls: usize,
    /// Statistics under the keys of `torch.cuda.memory_stats()`; only those that the trace alone shows if the model
    /// does not reproduce the recording. `num_sync_all_streams`, `num_device_alloc` and `num_device_free` exist since
    /// PyTorch 2.3, `num_oom_rejections` since 2.12, `reserved_bytes_by_private_pools` since 2.13. `max_split_size` is
    /// -1 if unlimited.
    pub statistics: BTreeMap<String, i64>,
    /// Peak of reserved bytes.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Number of device calls that allocate or map memory.
    pub device_allocs: u64,
    /// Number of device calls that free or unmap memory.
    pub device_frees: u64,
    /// Number of requests that were retried after the allocator had released its cached blocks.
    pub retries: u64,
    /// Requests that failed: those recorded, or the model's in a what-if.
    pub ooms: Vec<FailedRequest>,
    /// Requests that failed when recorded and are served in this what-if.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoided_ooms: Vec<FailedRequest>,
    /// What the job does then; only in a what-if.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<JobOutcome>,
    /// Conditions of the replay that the snapshot does not record, inferred or given.
    pub assumed: Assumed,
    /// The recorded run, in a what-if; the other figures are then those of the what-if.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Box<ReplayedDevice>>,
}

/// Numbers of trace entries of one device.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct EventCounts {
    /// Entries in the recorded trace.
    pub recorded: usize,
    /// Entries that the model wrote, up to the end or the first divergence.
    pub predicted: usize,
    /// Entries that match before the first difference; null in a what-if.
    pub matched: Option<usize>,
}

/// A request that failed.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FailedRequest {
    /// Entry index of the request in the device's trace.
    pub event: usize,
    /// Requested bytes, rounded by the allocator.
    pub requested_bytes: u64,
}

/// Conditions of a replay that the snapshot does not record.
#[derive(Debug, Clone, Serialize)]
pub struct Assumed {
    /// Device memory available to the process: `--capacity` in a what-if, else what the recorded failures show to be
    /// within reach; null if unbounded.
    pub capacity_bytes: Option<u64>,
    /// The most bytes that the process may reserve; null if nothing shows a limit.
    pub limit_bytes: Option<u64>,
    /// Reserved bytes at which garbage collection starts, if neither its threshold nor the limit is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection_trigger_bytes: Option<u64>,
    /// Private pools whose blocks are never split.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_split_pools: Vec<[u64; 2]>,
    /// Inferred options that the snapshot does not record, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// The first settings, then those after each change, if the program changed them while it ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings_changes: Vec<SettingsFrom>,
}

/// The first difference between the model and the recording.
#[derive(Debug, Serialize)]
pub struct DivergenceReport {
    /// Entry index in the device's trace.
    pub event: usize,
    /// The entry that the model wrote; null if it wrote none.
    pub predicted: Option<EntryReport>,
    /// The recorded entry; null if there is none.
    pub recorded: Option<EntryReport>,
    /// The allocator rule that is in question.
    pub why: String,
}

/// A trace entry.
#[derive(Debug, Serialize)]
pub struct EntryReport {
    /// The trace's name of the action, such as `segment_alloc`.
    pub action: &'static str,
    /// Address; for an `oom` entry the free bytes of the device.
    pub addr: u64,
    /// Size in bytes.
    pub size: u64,
    /// Handle of the stream.
    pub stream: u64,
}

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
    /// The GPU on which the costs of device calls were measured; absent if no costs are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs_of: Option<String>,
    /// Problems of the snapshot, and limits of the replays.
    pub warnings: Vec<Warning>,
    /// Number of rows before `--top` removed some.
    pub rows_tried: usize,
    /// One row for each device and setting: for each device the recorded settings first, which without `--capacity`
    /// have the figures of the recording. The others are sorted by `ooms`, `peak_reserved_bytes` and `device_allocs`.
    pub rows: Vec<WhatIfRow>,
    /// Peak of the live bytes, each request rounded, the largest of all devices: no setting needs less.
    pub lower_bound_bytes: u64,
    /// Bounds of the rows of each device.
    pub devices: Vec<WhatIfDevice>,
    /// The changes to the program of each device, as in `oomscope whatif --program`; absent if only settings were tried,
    /// and without devices whose trace is too long to try them by default.
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
    /// Peak of the live bytes, each request rounded: no setting needs less.
    pub lower_bound_bytes: u64,
    /// Bytes reserved before the first trace entry: no smaller device is claimed to be enough.
    pub reserved_before_bytes: u64,
    /// Whether the model reproduces the recording; if not, every row is an estimate.
    pub exact: bool,
    /// Whether at least one setting, possibly the recorded ones, serves every request.
    pub some_row_serves: bool,
    /// Settings and changes to the program in one list, the best first; at most `--top`.
    pub tried: Vec<TriedRow>,
    /// Whether changes to the program were not tried, because the trace is long; absent if false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skips_program: bool,
    /// The result of all rows, for the summary.
    #[serde(skip)]
    pub verdict: SettingsVerdict,
}

/// The verdict of all rows of a device, those that `--top` removes included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsVerdict {
    /// The best row with which the last failed request is served, other than the recorded settings.
    pub best: Option<WhatIfRow>,
    /// The best of the settings and changes of the program, if anything helps or may help.
    pub best_tried: Option<TriedRow>,
    /// Number of rows.
    pub rows: usize,
    /// The least number of failed requests in a row.
    pub fewest_ooms: usize,
    /// The needs of the program if requests fail in every row.
    pub requirement: Requirement,
    /// Why the start of the recording is missing.
    pub lost: Option<LostHistory>,
}

/// The needs of a program if requests fail under all settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
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
    /// Whether a request fails in the rest of the failed iteration or in one more; present if the recording ends with a
    /// failure that this row avoids and earlier iterations show which requests would follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step_fails: Option<bool>,
    /// The fate of the program after the failed request; present if the recording ends with a failure that this
    /// row avoids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<ForecastVerdict>,
    /// What the job does under these settings.
    pub then: JobOutcome,
    /// Peak of reserved bytes.
    pub peak_reserved_bytes: u64,
    /// Peak of allocated bytes.
    pub peak_allocated_bytes: u64,
    /// Number of device calls that allocate or map memory.
    pub device_allocs: u64,
    /// Number of device calls that free or unmap memory.
    pub device_frees: u64,
    /// Total duration of these calls, in microseconds; absent if no costs are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_time_us: Option<u64>,
    /// Number of requests that are retried after the allocator has released its cached blocks.
    pub retries: u64,
    /// Smallest device memory with which no request fails, to within 2 MiB or 1/256; null if no device is large enough.
    pub smallest_capacity_bytes: Option<u64>,
    /// Whether the settings differ from the recorded ones in a way that matters for the recorded requests.
    #[serde(skip)]
    pub has_use: bool,
}
