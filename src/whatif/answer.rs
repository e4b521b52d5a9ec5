//! The answers: what stands in their JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use super::found::SettingsFrom;
use crate::base::summary::Summary;
use crate::base::warning::Warning;

/// The JSON of `oomscope replay`.
#[derive(Debug, Serialize)]
pub struct ReplayReport {
    /// `oomscope/replay/1`
    pub schema: &'static str,
    /// What it comes to.
    pub summary: Summary,
    /// As given.
    pub path: String,
    /// `verify` or `what-if`.
    pub mode: &'static str,
    /// The settings replayed under, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`; `None` where the
    /// release does not record them.
    pub settings_string: Option<String>,
    /// The releases whose rules were followed, such as `2.10-2.11`.
    pub torch_version: String,
    /// What was odd about the file.
    pub warnings: Vec<Warning>,
    /// Every device that has a segment or an entry.
    pub devices: Vec<ReplayedDevice>,
}

/// One device.
#[derive(Debug, Serialize)]
pub struct ReplayedDevice {
    /// Device number.
    pub device: u64,
    /// `empty` or `reconstructed`.
    pub start: &'static str,
    /// How many entries.
    pub events: EventCounts,
    /// Whether every recorded entry was reproduced; `None` in a what-if, and without a trace.
    pub exact: Option<bool>,
    /// Whether the model ended with the snapshot's segments and blocks; `None` in a what-if, and without a
    /// trace.
    pub end_state_exact: Option<bool>,
    /// Segments that differ at the end; `None` in a what-if.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_differences: Option<usize>,
    /// Where the model diverges from the recording.
    pub first_divergence: Option<DivergenceReport>,
    /// Calls whose circumstances the trace leaves open: counters such as `num_alloc_retries` may be
    /// off by as much.
    pub ambiguous_calls: usize,
    /// Under the keys of `torch.cuda.memory_stats()`; those that the trace alone tells, of a recorded run that
    /// the model does not reproduce.
    pub statistics: BTreeMap<String, i64>,
    /// The most that was held from the device.
    pub peak_reserved_bytes: u64,
    /// The most that the program held.
    pub peak_allocated_bytes: u64,
    /// Calls that took memory from the device.
    pub device_allocs: u64,
    /// Calls that gave memory back.
    pub device_frees: u64,
    /// Requests for which everything free was given back first.
    pub retries: u64,
    /// Requests that failed.
    pub ooms: Vec<FailedRequest>,
    /// Requests that failed when they were recorded, and did not in this what-if.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoided_ooms: Vec<FailedRequest>,
    /// What the file does not say and the replay found out or was told.
    pub assumed: Assumed,
    /// The recorded run, beside a what-if.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Box<ReplayedDevice>>,
}

/// Entries of one device.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct EventCounts {
    /// In the file.
    pub recorded: usize,
    /// Written by the model.
    pub predicted: usize,
    /// Equal, up to the first difference; `None` in a what-if.
    pub matched: Option<usize>,
}

/// A request that failed.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FailedRequest {
    /// Index of the recorded entry.
    pub event: usize,
    /// Rounded bytes.
    pub requested_bytes: u64,
}

/// What was taken for granted.
#[derive(Debug, Clone, Serialize)]
pub struct Assumed {
    /// Bytes of device memory within reach; `None` where nothing bounds them.
    pub capacity_bytes: Option<u64>,
    /// The most that the process may reserve, where something shows that there is a limit.
    pub limit_bytes: Option<u64>,
    /// Private pools whose blocks are handed out whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_split_pools: Vec<[u64; 2]>,
    /// Options that are in effect but not recorded, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// The settings from each change on, the first ones first, where the program changed them as it ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings_changes: Vec<SettingsFrom>,
}

/// The first difference.
#[derive(Debug, Serialize)]
pub struct DivergenceReport {
    /// Index of the entry in the device's trace.
    pub event: usize,
    /// What the model wrote.
    pub predicted: Option<EntryReport>,
    /// What was recorded.
    pub recorded: Option<EntryReport>,
    /// Which rule is in question.
    pub why: String,
}

/// A trace entry.
#[derive(Debug, Serialize)]
pub struct EntryReport {
    /// The trace's word.
    pub action: &'static str,
    /// Address; the device's free bytes of an `oom`.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// The stream's handle.
    pub stream: u64,
}

/// The JSON of `oomscope whatif`.
#[derive(Debug, Serialize)]
pub struct WhatIfReport {
    /// `oomscope/whatif/1`
    pub schema: &'static str,
    /// What it comes to.
    pub summary: Summary,
    /// As given.
    pub path: String,
    /// Bytes of device memory replayed on; `None` where nothing bounds them.
    pub capacity_bytes: Option<u64>,
    /// The releases whose rules were followed.
    pub torch_version: String,
    /// The GPU on which the costs of device calls were measured; `None` where none are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs_of: Option<String>,
    /// What was odd about the file.
    pub warnings: Vec<Warning>,
    /// How many rows there were before `top` left some out.
    pub rows_tried: usize,
    /// Of each device the recorded settings first, then the others, best first.
    pub rows: Vec<WhatIfRow>,
    /// The most that the program held at once, in rounded bytes: no setting needs less. The largest of
    /// all devices.
    pub lower_bound_bytes: u64,
    /// What bounds the rows of each device.
    pub devices: Vec<WhatIfDevice>,
}

/// What a device's rows are to be held against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhatIfDevice {
    /// Device number.
    pub device: u64,
    /// Bytes of its memory replayed on; `None` where nothing bounds them.
    pub capacity_bytes: Option<u64>,
    /// The most that the program held at once on it, in rounded bytes.
    pub lower_bound_bytes: u64,
    /// What was reserved before the first entry: no smaller device is said to be enough.
    pub reserved_before_bytes: u64,
    /// Whether the model reproduces the recording: every row is an estimate where it does not.
    pub exact: bool,
    /// Whether some setting that was replayed, the recorded ones included, serves every request.
    pub some_row_serves: bool,
}

/// One setting on one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhatIfRow {
    /// The options tried; empty for the recorded settings.
    pub settings: String,
    /// Device number.
    pub device: u64,
    /// Requests that fail.
    pub ooms: usize,
    /// Index of the first of them in the device's trace.
    pub first_oom_event: Option<usize>,
    /// Whether, although no request fails, one more step like the last would: of a recording that ends with a
    /// failure, where what came one step before shows what would come next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step_fails: Option<bool>,
    /// The most that is held from the device.
    pub peak_reserved_bytes: u64,
    /// The most that the program holds.
    pub peak_allocated_bytes: u64,
    /// Calls that take memory from the device.
    pub device_allocs: u64,
    /// Calls that give memory back.
    pub device_frees: u64,
    /// How long these calls take together; `None` where no costs are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_time_us: Option<u64>,
    /// Requests for which everything free is given back first.
    pub retries: u64,
    /// The smallest device on which no request fails, to within 2 MiB or 1/256; `None` where none is
    /// large enough.
    pub smallest_capacity_bytes: Option<u64>,
}
