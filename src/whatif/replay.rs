//! What the replay of one snapshot through the allocator model says: `oomscope/replay/1`.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::answer::{
    Assumed, DivergenceReport, EntryReport, EventCounts, FailedRequest, ReplayReport,
    ReplayedDevice,
};
use super::cautions::{parted, reconfigured};
use super::change::{WhatIf, changed};
use super::emitted::{Emitted, Journal};
use super::found::{changes, found_settings};
use super::recorded::RecordedRun;
use super::smallest::too_small_for;
use super::summary::of_replay;
use crate::allocator::conf::{self, Settings, Unknown};
use crate::allocator::{CachingAllocator, Entry};
use crate::base::summary::Summary;
use crate::base::units::{counted, size};
use crate::base::warning::{Code, Warning};
use crate::replay::facts::{foreign, releases};
use crate::replay::model::{
    Divergence, Hypothesis, Inference, Inferred, Simulation, Sink, Verification, end_differences,
    simulate,
};
use crate::snapshot::{Device, Snapshot, TraceEntry};
use crate::study::{DeviceStudy, LostHistory, Study};

/// Holds the model against the recording.
pub fn verified(study: &Study<'_>, path: &str) -> ReplayReport {
    let (snapshot, inference) = (study.snapshot(), study.inference());
    let report = ReplayReport {
        schema: "oomscope/replay/1",
        summary: Summary::default(),
        path: path.to_owned(),
        mode: "verify",
        settings_string: snapshot.settings.as_ref().map(|raw| raw.string.clone()),
        torch_version: release_range(inference),
        warnings: warnings(snapshot, inference),
        devices: study.devices().map(verified_device).collect(),
    };
    ReplayReport { summary: of_replay(&report), ..report }
}

/// What is odd about the file, and what the replay cannot know.
fn warnings(snapshot: &Snapshot, inference: &Inference<'_>) -> Vec<Warning> {
    let mut warnings = snapshot.warnings.clone();
    let settings = snapshot.settings.as_ref();
    if let Some(raw) = settings {
        let newest = *inference.releases.end();
        let parsed = conf::parse(&raw.string, &Settings::default(), newest, Unknown::Warn);
        let passed_over = match parsed {
            Ok(parsed) => parsed.warnings,
            Err(error) => vec![format!("the settings string cannot be read: {error}")],
        };
        for message in passed_over {
            warnings.add(Code::UnknownSetting, message);
        }
    }
    if !releases(&snapshot.torch).contains(inference.releases.end()) {
        let message = format!(
            "replayed as PyTorch {}, though the lines of PyTorch's own code in the stacks are those of {}",
            release_range(inference),
            snapshot.torch
        );
        warnings.add(Code::ReleaseUnclear, message);
    }
    warnings.extend(foreign(snapshot));
    for one in &inference.devices {
        let (device, verification) = (one.device.id(), &one.verification);
        if verification.time_reversals > 0 {
            let entries = counted(verification.time_reversals as u64, "entry");
            warnings.add(
                Code::TimeReversed,
                format!(
                    "device {device}: {entries} earlier than the preceding entry; a ring buffer \
                     whose limit was changed is out of order"
                ),
            );
        }
        if verification.misfits > 0 {
            let blocks = counted(verification.misfits as u64, "block");
            warnings.add(
                Code::StartInconsistent,
                format!(
                    "device {device}: {blocks} from before the recording lie outside every segment \
                     or overlap"
                ),
            );
        }
    }
    warnings.to_vec()
}

/// Replays otherwise than it was recorded, beside what was.
pub fn what_if(
    study: &Study<'_>,
    path: &str,
    change: &WhatIf,
    keep: bool,
) -> (ReplayReport, Vec<Emitted>) {
    let mut report = verified(study, path);
    report.mode = "what-if";
    // What the figures are worth comes before them.
    let parted = study.devices().filter_map(parted);
    let reconfigured = study.devices().filter_map(reconfigured);
    let lacking = study.devices().filter_map(|device| does_not_fit(device, change.capacity));
    report.warnings = parted
        .chain(reconfigured)
        .chain(lacking)
        .chain(std::mem::take(&mut report.warnings))
        .collect();
    if let Some((_, string)) = &change.settings {
        report.settings_string = Some(string.clone());
    }
    if let Some(minor) = change.minor {
        report.torch_version = format!("2.{minor}");
    }
    let devices: Vec<_> = study.devices().zip(std::mem::take(&mut report.devices)).collect();
    let simulated: Vec<(ReplayedDevice, Emitted)> = devices
        .into_par_iter()
        .map(|(device, recorded)| {
            let hypothesis = changed(device, change);
            let mut journal = Journal::new();
            let mut push = |entry: &Entry, time: u64| journal.push((*entry, time));
            let keep = keep.then_some(&mut push as &mut Sink<'_>);
            let mut simulation = simulate(device.program(), &hypothesis, keep);
            let too_small = change.capacity.and_then(|bytes| too_small_for(device, bytes, change));
            simulation.fails_at(too_small);
            let report = simulated_device(device.inferred(), &hypothesis, &simulation, recorded);
            let Simulation { allocator, .. } = simulation;
            (report, Emitted { device: device.id(), journal, allocator })
        })
        .collect();
    let (devices, emitted) = simulated.into_iter().unzip();
    report.devices = devices;
    report.summary = of_replay(&report);
    (report, emitted)
}

/// What `device` held before the recording stays in every replay: a smaller device never held it.
fn does_not_fit(device: DeviceStudy<'_, '_>, capacity: Option<u64>) -> Option<Warning> {
    let (held, id) = (device.reserved_before(), device.id());
    let capacity = capacity.filter(|capacity| *capacity < held)?;
    let message = format!(
        "device {id}: does not fit: {} was reserved before the recording, more than {}",
        size(held),
        size(capacity)
    );
    Some(Warning::new(Code::SmallCapacity, message))
}

fn release_range(inference: &Inference<'_>) -> String {
    let (first, last) = (*inference.releases.start(), *inference.releases.end());
    if first == last { format!("2.{first}") } else { format!("2.{first}-2.{last}") }
}

fn verified_device(device: DeviceStudy<'_, '_>) -> ReplayedDevice {
    let one = device.inferred();
    let verification: &Verification = &one.verification;
    let differences = end_differences(one.device, &verification.allocator);
    let ooms = recorded_ooms(one.device);
    let divergence = verification.divergence.as_ref();
    // Nothing is vouched for that was not seen.
    let is_too_little =
        verification.is_exact() && device.lost_history() == Some(LostHistory::RingOfOne);
    let is_traced = !one.device.is_empty() && !is_too_little;
    let report = device_report(one, &one.hypothesis, &verification.allocator);
    let report = if verification.is_exact() { report } else { as_recorded(device, report) };
    ReplayedDevice {
        events: EventCounts {
            recorded: verification.recorded,
            predicted: verification.predicted,
            matched: Some(verification.matched),
        },
        exact: is_traced.then(|| verification.is_exact()),
        end_state_exact: is_traced.then_some(differences == 0),
        end_differences: is_traced.then_some(differences),
        first_divergence: divergence.map(divergence_report),
        ambiguous_calls: verification.ambiguous,
        ooms,
        ..report
    }
}

/// A recorded run of which the model reproduces only a part: figures of all of it, applied literally.
fn as_recorded(device: DeviceStudy<'_, '_>, report: ReplayedDevice) -> ReplayedDevice {
    let run = RecordedRun::of(device);
    ReplayedDevice {
        statistics: run.statistics(),
        peak_reserved_bytes: run.peak_reserved,
        peak_allocated_bytes: run.peak_allocated,
        device_allocs: run.device_allocs,
        device_frees: run.device_frees,
        retries: run.retries,
        ..report
    }
}

fn simulated_device(
    one: &Inferred<'_>,
    hypothesis: &Hypothesis,
    simulation: &Simulation,
    recorded: ReplayedDevice,
) -> ReplayedDevice {
    ReplayedDevice {
        events: EventCounts {
            recorded: recorded.events.recorded,
            predicted: simulation.predicted,
            matched: None,
        },
        ooms: simulation.ooms.iter().map(failed).collect(),
        avoided_ooms: simulation.avoided.iter().map(failed).collect(),
        recorded: Some(Box::new(recorded)),
        ..device_report(one, hypothesis, &simulation.allocator)
    }
}

pub(super) fn failed((event, requested_bytes): &(usize, u64)) -> FailedRequest {
    FailedRequest { event: *event, requested_bytes: *requested_bytes }
}

/// What verification and what-if have in common.
fn device_report(
    one: &Inferred<'_>,
    hypothesis: &Hypothesis,
    allocator: &CachingAllocator,
) -> ReplayedDevice {
    let (snapshot, statistics) = (one.device.snapshot(), allocator.statistics());
    ReplayedDevice {
        device: one.device.id(),
        start: if one.verification.starts_empty { "empty" } else { "reconstructed" },
        events: EventCounts { recorded: 0, predicted: 0, matched: None },
        exact: None,
        end_state_exact: None,
        end_differences: None,
        first_divergence: None,
        ambiguous_calls: 0,
        statistics: figures(snapshot, hypothesis, allocator),
        peak_reserved_bytes: statistics.reserved_bytes.all.peak,
        peak_allocated_bytes: statistics.allocated_bytes.all.peak,
        device_allocs: statistics.num_device_alloc,
        device_frees: statistics.num_device_free,
        retries: statistics.num_alloc_retries,
        ooms: Vec::new(),
        avoided_ooms: Vec::new(),
        assumed: Assumed {
            capacity_bytes: hypothesis.capacity,
            limit_bytes: hypothesis.limit,
            no_split_pools: hypothesis.no_split.iter().map(|p| snapshot.pools.get(*p)).collect(),
            settings: if hypothesis.settings == one.hypothesis.settings {
                found_settings(snapshot, &hypothesis.settings)
            } else {
                Vec::new()
            },
            settings_changes: changes(hypothesis),
        },
        recorded: None,
    }
}

/// The figures as `torch.cuda.memory_stats()` gives them.
fn figures(
    snapshot: &Snapshot,
    hypothesis: &Hypothesis,
    allocator: &CachingAllocator,
) -> BTreeMap<String, i64> {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let figures = allocator.statistics().figures(hypothesis.minor, |pool| snapshot.pools.get(pool));
    let mut figures: BTreeMap<String, i64> =
        figures.into_iter().map(|(key, value)| (key, signed(value))).collect();
    // Unlimited is -1.
    let limit = Some(allocator.settings().max_split_size).filter(|limit| *limit != u64::MAX);
    figures.insert("max_split_size".to_owned(), limit.map_or(-1, signed));
    figures
}

fn recorded_ooms(device: Device<'_>) -> Vec<FailedRequest> {
    let failed = device.failed().map(|event| (event, device.entry(event)));
    failed.map(|(event, entry)| FailedRequest { event, requested_bytes: entry.size }).collect()
}

fn divergence_report(divergence: &Divergence) -> DivergenceReport {
    let recorded = |event: TraceEntry| EntryReport {
        action: event.action.word(),
        addr: event.addr,
        size: event.size,
        stream: event.stream,
    };
    DivergenceReport {
        event: divergence.event,
        predicted: divergence.predicted.map(entry_report),
        recorded: divergence.recorded.map(recorded),
        why: divergence.why(),
    }
}

pub(super) fn entry_report(entry: Entry) -> EntryReport {
    EntryReport {
        action: entry.action.word(),
        addr: entry.addr,
        size: entry.size,
        stream: entry.stream,
    }
}
