//! One replay of a snapshot through the allocator model: the JSON of `oomscope replay`, and what it is made from.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rayon::prelude::*;
use serde::Serialize;

use super::emit::{Journal, ModelRun};
use super::forecast::{Forecast, ForecastLength};
use super::outcome::{JobOutcome, TriedOn, TriedRow, growth_to_end};
use super::overrides::Overrides;
use super::run::{OverriddenRun, recorded_figures, statistics};
use super::warnings::{divergence_warning, settings_changed_warning};
use crate::allocator::conf::{self, Settings, UnknownKeys};
use crate::allocator::{AllocatorEntry, CachingAllocator, RunFigures};
use crate::base::units::{counted, size};
use crate::base::warning::{Code, Warning};
use crate::replay::literal::{candidate_releases, warn_if_foreign};
use crate::replay::model::{
    Divergence, EntrySink, Hypothesis, Inference, InferredDevice, Simulation, Verification, count_end_differences,
};
use crate::snapshot::Snapshot;
use crate::study::{DeviceStudy, LostHistory, Study};

/// Verifies the model against the recording.
pub fn verify_study(study: &Study<'_>, path: &str) -> ReplayReport {
    let (snapshot, inference) = (study.snapshot(), study.inference());
    ReplayReport {
        path: path.to_owned(),
        mode: "verify",
        settings_string: snapshot.settings.as_ref().map(|raw| raw.string.clone()),
        torch_version: release_range(study.snapshot(), inference),
        warnings: warnings(snapshot, inference),
        devices: study.devices().map(verify_device).collect(),
    }
}

/// Problems of the snapshot, and limits of its replay.
fn warnings(snapshot: &Snapshot, inference: &Inference<'_>) -> Vec<Warning> {
    let mut warnings = snapshot.warnings.clone();
    if let Some(raw) = &snapshot.settings {
        let newest = *inference.releases.end();
        let parsed = conf::parse(&raw.string, &Settings::default(), newest, UnknownKeys::Warn);
        let ignored = match parsed {
            Ok(parsed) => parsed.warnings,
            Err(error) => vec![format!("the settings string cannot be read: {error}")],
        };
        for message in ignored {
            warnings.add(Code::UnknownSetting, message);
        }
    }
    if !candidate_releases(&snapshot.torch).contains(inference.releases.end()) {
        let message = format!(
            "replayed as PyTorch {}, although the source lines of PyTorch's own code in the stacks are those of {}",
            release_range(snapshot, inference),
            snapshot.torch
        );
        warnings.add(Code::ReleaseUnclear, message);
    }
    warnings.extend(warn_if_foreign(snapshot));
    for inferred in &inference.devices {
        let (device, verification) = (inferred.device.id(), &inferred.verification);
        if verification.time_reversals > 0 {
            let entries = counted(verification.time_reversals as u64, "entry");
            let cause = "as in a ring buffer whose limit was changed";
            let message = format!("GPU {device}: {entries} earlier than the preceding entry, {cause}");
            warnings.add(Code::TimeReversed, message);
        }
        if verification.misplaced_blocks > 0 {
            let blocks = counted(verification.misplaced_blocks as u64, "block");
            let message =
                format!("GPU {device}: {blocks} from before the recording lie outside every segment or overlap");
            warnings.add(Code::StartInconsistent, message);
        }
    }
    warnings.to_vec()
}

/// Replays the trace of every device with `overrides`, and verifies the recorded run for comparison. Also returns the
/// run of each device, with the entries that the model wrote if `keep_journal`.
pub fn replay_with(
    study: &Study<'_>,
    path: &str,
    overrides: &Overrides,
    keep_journal: bool,
) -> (ReplayReport, Vec<ModelRun>) {
    let mut report = verify_study(study, path);
    report.mode = "what-if";
    // Warnings that limit all figures come first.
    let divergences = study.devices().filter_map(divergence_warning);
    let reconfigured = study.devices().filter_map(settings_changed_warning);
    let too_small = study.devices().filter_map(|device| capacity_warning(device, overrides.capacity));
    report.warnings =
        divergences.chain(reconfigured).chain(too_small).chain(std::mem::take(&mut report.warnings)).collect();
    if let Some((_, string)) = &overrides.settings {
        report.settings_string = Some(string.clone());
    }
    if let Some(minor) = overrides.minor {
        report.torch_version = format!("2.{minor}");
    }
    let devices: Vec<_> = study.devices().zip(std::mem::take(&mut report.devices)).collect();
    let simulated: Vec<(ReplayedDevice, ModelRun)> = devices
        .into_par_iter()
        .map(|(device, recorded)| {
            let mut journal = Journal::new();
            let sink: &mut EntrySink<'_> = &mut |entry, time| journal.push((*entry, time));
            let run = OverriddenRun::new(device, overrides, keep_journal.then_some(sink));
            let reach = ForecastLength::UntilFull(overrides.capacity);
            let (then, _) = run.fate(device, Forecast::from_device(device, reach).as_ref());
            let OverriddenRun { hypothesis, simulation } = run;
            let unchanged = Some(recorded.figures.peak_reserved_bytes);
            let unchanged = unchanged.filter(|_| JobOutcome::recorded(device, None).goes_on());
            let report = simulated_device(device.inferred(), &hypothesis, &simulation, recorded);
            let outcome = (&then, report.figures.peak_reserved_bytes);
            let string = overrides.settings.as_ref().map(|(_, string)| string.clone());
            let tried = string.map(|string| TriedOn::from_device(device).settings(string, outcome, unchanged));
            let report =
                ReplayedDevice { tried, then: Some(then), growth_bytes_per_step: growth_to_end(device), ..report };
            (report, ModelRun { device: device.id(), journal, allocator: simulation.allocator })
        })
        .collect();
    let (devices, runs) = simulated.into_iter().unzip();
    report.devices = devices;
    (report, runs)
}

/// Warns if more than `capacity` was reserved before the recording: every replay keeps that memory.
pub(super) fn capacity_warning(device: DeviceStudy<'_, '_>, capacity: Option<u64>) -> Option<Warning> {
    let (reserved_before, id) = (device.reserved_before(), device.id());
    let capacity = capacity.filter(|capacity| *capacity < reserved_before)?;
    let [reserved, capacity] = [reserved_before, capacity].map(size);
    let message =
        format!("GPU {id}: does not fit: {reserved} was reserved before the recording began, more than {capacity}");
    Some(Warning::new(Code::SmallCapacity, message))
}

fn release_range(snapshot: &Snapshot, inference: &Inference<'_>) -> String {
    // The file's own release, unless the allocator's decisions show others.
    let is_confirmed = candidate_releases(&snapshot.torch) == inference.releases;
    if is_confirmed { snapshot.torch_version() } else { describe_releases(&inference.releases) }
}

pub(super) fn describe_releases(releases: &RangeInclusive<u32>) -> String {
    let (first, last) = (*releases.start(), *releases.end());
    if first == last { format!("2.{first}") } else { format!("2.{first}-2.{last}") }
}

fn verify_device(device: DeviceStudy<'_, '_>) -> ReplayedDevice {
    let inferred = device.inferred();
    let verification: &Verification = &inferred.verification;
    let Verification { recorded, predicted, matched, .. } = *verification;
    let differences = count_end_differences(inferred.device, &verification.allocator);
    let trace = inferred.device;
    let failed = trace.failed_requests().map(|event| failed_request(&(event, trace.entry(event).size)));
    let ooms: Vec<FailedRequest> = failed.collect();
    // A single entry shows no decision of the allocator, so there is nothing to call exact.
    let shows_no_decision = verification.is_exact() && device.lost_history() == Some(LostHistory::RingOfOne);
    let is_traced = !inferred.device.is_empty() && !shows_no_decision;
    let report = device_report(inferred, &inferred.hypothesis, &verification.allocator);
    // The model may reproduce only a part of the recorded run.
    let figures = recorded_figures(device);
    let statistics = if verification.is_exact() { report.statistics } else { statistics(figures, ooms.len()) };
    ReplayedDevice {
        statistics,
        figures,
        events: EventCounts { recorded, predicted, matched: Some(matched) },
        exact: is_traced.then(|| verification.is_exact()),
        end_state_exact: is_traced.then_some(differences == 0),
        end_differences: is_traced.then_some(differences),
        first_divergence: verification.divergence.as_ref().map(divergence_report),
        ambiguous_calls: verification.ambiguous_ops,
        ooms,
        ..report
    }
}

fn simulated_device(
    inferred: &InferredDevice<'_>,
    hypothesis: &Hypothesis,
    simulation: &Simulation,
    recorded: ReplayedDevice,
) -> ReplayedDevice {
    ReplayedDevice {
        events: EventCounts { recorded: recorded.events.recorded, predicted: simulation.predicted, matched: None },
        ooms: simulation.ooms.iter().map(failed_request).collect(),
        avoided_ooms: simulation.avoided.iter().map(failed_request).collect(),
        recorded: Some(Box::new(recorded)),
        ..device_report(inferred, hypothesis, &simulation.allocator)
    }
}

pub(super) fn failed_request((event, requested_bytes): &(usize, u64)) -> FailedRequest {
    FailedRequest { event: *event, requested_bytes: *requested_bytes }
}

/// The parts of the report that a verification and a what-if share.
fn device_report(
    inferred: &InferredDevice<'_>,
    hypothesis: &Hypothesis,
    allocator: &CachingAllocator,
) -> ReplayedDevice {
    let snapshot = inferred.device.snapshot();
    let trigger = hypothesis.inferred_collection_trigger();
    let is_recorded = hypothesis.settings == inferred.hypothesis.settings;
    ReplayedDevice {
        device: inferred.device.id(),
        start: if inferred.verification.starts_empty { "empty" } else { "reconstructed" },
        statistics: memory_stats(snapshot, hypothesis, allocator),
        figures: allocator.statistics.run_figures(),
        assumed: Assumed {
            capacity_bytes: hypothesis.capacity,
            limit_bytes: hypothesis.limit.filter(|_| trigger.is_none()),
            collection_trigger_bytes: trigger,
            no_split_pools: hypothesis.no_split.iter().map(|p| snapshot.pools.get(*p)).collect(),
            settings: if is_recorded { inferred_options(snapshot, &hypothesis.settings) } else { Vec::new() },
            settings_changes: settings_changes(hypothesis),
        },
        ..ReplayedDevice::default()
    }
}

/// The statistics under the keys of `torch.cuda.memory_stats()`.
fn memory_stats(snapshot: &Snapshot, hypothesis: &Hypothesis, allocator: &CachingAllocator) -> BTreeMap<String, i64> {
    let figures = allocator.statistics.figures(hypothesis.minor, |pool| snapshot.pools.get(pool));
    let limit = ("max_split_size".to_owned(), allocator.settings.max_split_size);
    let figures =
        figures.into_iter().chain([limit]).map(|(key, value)| (key, i64::try_from(value).unwrap_or(i64::MAX)));
    let mut figures: BTreeMap<String, i64> = figures.collect();
    if allocator.settings.max_split_size == u64::MAX {
        figures.insert("max_split_size".to_owned(), -1); // as PyTorch reports no limit
    }
    figures
}

fn divergence_report(divergence: &Divergence) -> DivergenceReport {
    DivergenceReport {
        event: divergence.entry_index,
        predicted: divergence.predicted.map(entry_report),
        recorded: divergence.recorded.map(|event| EntryReport {
            action: event.action.word(),
            addr: event.addr,
            size: event.size,
            stream: event.stream,
        }),
        why: divergence.describe(),
    }
}

pub(super) fn entry_report(entry: AllocatorEntry) -> EntryReport {
    EntryReport { action: entry.action.word(), addr: entry.addr, size: entry.size, stream: entry.stream }
}

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
    /// Bytes by which memory grows in each step up to the end of the recording; absent if it does not, and after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth_bytes_per_step: Option<u64>,
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
fn settings_changes(hypothesis: &Hypothesis) -> Vec<SettingsFrom> {
    if hypothesis.settings_changes.is_empty() {
        return Vec::new();
    }
    let first = std::iter::once((0, &hypothesis.settings));
    let later = hypothesis.settings_changes.iter().map(|later| (later.first_entry, &later.settings));
    let all = first.chain(later);
    all.map(|(event, settings)| SettingsFrom { event, settings_string: settings.options().join(",") }).collect()
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
