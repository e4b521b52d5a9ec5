//! The JSON of `oomscope replay`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::outcome::JobOutcome;
use super::tried::TriedRow;
use crate::allocator::RunFigures;
use crate::allocator::conf::Settings;
use crate::base::warning::Warning;
use crate::replay::model::Hypothesis;
use crate::snapshot::Snapshot;

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
#[derive(Debug, Default, Serialize)]
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
    /// Peaks and numbers of device calls.
    #[serde(flatten)]
    pub figures: RunFigures,
    /// Requests that failed: those recorded, or the model's in a what-if.
    pub ooms: Vec<FailedRequest>,
    /// Requests that failed when recorded and are served in this what-if.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoided_ooms: Vec<FailedRequest>,
    /// The outcome of the job in a what-if; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<JobOutcome>,
    /// The same as a row of `oomscope whatif`, if settings are replaced.
    #[serde(skip)]
    pub(crate) tried: Option<TriedRow>,
    /// Conditions of the replay that the snapshot does not record, inferred or given.
    pub assumed: Assumed,
    /// The recorded run, in a what-if; the other figures are then those of the what-if.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Box<ReplayedDevice>>,
}

/// Numbers of trace entries of one device.
#[derive(Debug, Clone, Copy, Default, Serialize)]
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
#[derive(Debug, Clone, Default, Serialize)]
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
    /// The choices of the model and of PyTorch, in words.
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

/// Settings that took effect at one trace entry, of a program that changed them while it ran.
#[derive(Debug, Clone, Serialize)]
pub struct SettingsFrom {
    /// Index of the first trace entry under these settings; the number of entries if no request follows the change.
    pub event: usize,
    /// The options that are not at their defaults, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`.
    pub settings_string: String,
}

/// The first settings of `hypothesis`, then those after each change at run time; empty if nothing changed.
pub(super) fn settings_changes(hypothesis: &Hypothesis) -> Vec<SettingsFrom> {
    if hypothesis.settings_changes.is_empty() {
        return Vec::new();
    }
    let first = std::iter::once((0, &hypothesis.settings));
    let later = hypothesis.settings_changes.iter().map(|later| (later.first_entry, &later.settings));
    let report =
        |(event, settings): (usize, &Settings)| SettingsFrom { event, settings_string: settings.options().join(",") };
    first.chain(later).map(report).collect()
}

/// Inferred options that the file does not record, in the syntax of `PYTORCH_CUDA_ALLOC_CONF`. Expandable segments
/// are left out because the trace shows them anyway, and a garbage collection threshold because only its presence is
/// inferred, not its value.
pub(crate) fn inferred_options(snapshot: &Snapshot, inferred: &Settings) -> Vec<String> {
    if snapshot.settings.is_some() {
        return Vec::new();
    }
    let Settings { max_split_size, roundup_power2_divisions, .. } = *inferred;
    Settings { max_split_size, roundup_power2_divisions, ..Settings::default() }.options()
}
