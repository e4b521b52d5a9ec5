//! One replay of a snapshot through the allocator model: `oomscope/replay/1`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rayon::prelude::*;

use super::emit::{Journal, ModelRun};
use super::forecast::{Forecast, ForecastLength};
use super::outcome::JobOutcome;
use super::overridden_run::OverriddenRun;
use super::overrides::Overrides;
use super::reports::{
    Assumed, DivergenceReport, EntryReport, EventCounts, FailedRequest, ReplayReport, ReplayedDevice, inferred_options,
    settings_changes,
};
use super::run_figures::{recorded_figures, statistics};
use super::tried::TriedOn;
use super::warnings::{divergence_warning, settings_changed_warning};
use crate::allocator::conf::{self, Settings, UnknownKeys};
use crate::allocator::{AllocatorEntry, CachingAllocator};
use crate::base::units::{counted, size};
use crate::base::warning::{Code, Warning};
use crate::replay::literal::{candidate_releases, warn_if_foreign};
use crate::replay::model::{
    Divergence, EntrySink, Hypothesis, Inference, InferredDevice, Simulation, Verification, count_end_differences,
};
use crate::snapshot::{Snapshot, TraceEntry};
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
            let mut push = |entry: &AllocatorEntry, time: u64| journal.push((*entry, time));
            let sink = keep_journal.then_some(&mut push as &mut EntrySink<'_>);
            let run = OverriddenRun::new(device, overrides, sink);
            let reach = ForecastLength::UntilFull(overrides.capacity);
            let (then, _) = run.fate(device, Forecast::from_device(device, reach).as_ref());
            let OverriddenRun { hypothesis, simulation } = run;
            let unchanged = Some(recorded.figures.peak_reserved_bytes);
            let unchanged = unchanged.filter(|_| JobOutcome::recorded(device, None).goes_on());
            let report = simulated_device(device.inferred(), &hypothesis, &simulation, recorded);
            let outcome = (&then, report.figures.peak_reserved_bytes);
            let tried = overrides
                .settings
                .as_ref()
                .map(|(_, string)| TriedOn::from_device(device).settings(string.clone(), outcome, unchanged));
            let report = ReplayedDevice { tried, then: Some(then), ..report };
            let Simulation { allocator, .. } = simulation;
            (report, ModelRun { device: device.id(), journal, allocator })
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
    let message = format!(
        "GPU {id}: does not fit: {} was reserved before the recording began, more than {}",
        size(reserved_before),
        size(capacity)
    );
    Some(Warning::new(Code::SmallCapacity, message))
}

fn release_range(snapshot: &Snapshot, inference: &Inference<'_>) -> String {
    // The file's own release, unless the allocator's decisions show others.
    if candidate_releases(&snapshot.torch) == inference.releases {
        return snapshot.torch_version();
    }
    describe_releases(&inference.releases)
}

pub(super) fn describe_releases(releases: &RangeInclusive<u32>) -> String {
    let (first, last) = (*releases.start(), *releases.end());
    if first == last { format!("2.{first}") } else { format!("2.{first}-2.{last}") }
}

fn verify_device(device: DeviceStudy<'_, '_>) -> ReplayedDevice {
    let inferred = device.inferred();
    let verification: &Verification = &inferred.verification;
    let differences = count_end_differences(inferred.device, &verification.allocator);
    let trace = inferred.device;
    let failed = trace.failed_requests().map(|event| failed_request(&(event, trace.entry(event).size)));
    let ooms: Vec<FailedRequest> = failed.collect();
    let divergence = verification.divergence.as_ref();
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
        events: EventCounts {
            recorded: verification.recorded,
            predicted: verification.predicted,
            matched: Some(verification.matched),
        },
        exact: is_traced.then(|| verification.is_exact()),
        end_state_exact: is_traced.then_some(differences == 0),
        end_differences: is_traced.then_some(differences),
        first_divergence: divergence.map(divergence_report),
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
            settings: if hypothesis.settings == inferred.hypothesis.settings {
                inferred_options(snapshot, &hypothesis.settings)
            } else {
                Vec::new()
            },
            settings_changes: settings_changes(hypothesis),
        },
        ..ReplayedDevice::default()
    }
}

/// The statistics under the keys of `torch.cuda.memory_stats()`.
fn memory_stats(snapshot: &Snapshot, hypothesis: &Hypothesis, allocator: &CachingAllocator) -> BTreeMap<String, i64> {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let figures = allocator.statistics.figures(hypothesis.minor, |pool| snapshot.pools.get(pool));
    let mut figures: BTreeMap<String, i64> = figures.into_iter().map(|(key, value)| (key, signed(value))).collect();
    // PyTorch reports no limit as -1.
    let limit = Some(allocator.settings.max_split_size).filter(|limit| *limit != u64::MAX);
    figures.insert("max_split_size".to_owned(), limit.map_or(-1, signed));
    figures
}

fn divergence_report(divergence: &Divergence) -> DivergenceReport {
    let recorded_entry = |event: TraceEntry| EntryReport {
        action: event.action.word(),
        addr: event.addr,
        size: event.size,
        stream: event.stream,
    };
    DivergenceReport {
        event: divergence.entry_index,
        predicted: divergence.predicted.map(entry_report),
        recorded: divergence.recorded.map(recorded_entry),
        why: divergence.describe(),
    }
}

pub(super) fn entry_report(entry: AllocatorEntry) -> EntryReport {
    EntryReport { action: entry.action.word(), addr: entry.addr, size: entry.size, stream: entry.stream }
}
