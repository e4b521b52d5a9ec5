//! Everything about one snapshot.

use std::hash::BuildHasher as _;

use rustc_hash::FxBuildHasher;
use serde::Serialize;
use serde_json::{Map, Value};

use super::advice::{Known, against};
use super::device::{self, DeviceReport};
use super::dry_run::{DryRunReport, dry_run};
use super::options::Options;
use crate::base::warning::{Code, Warning, Warnings};
use crate::replay::literal::warn_if_foreign;
use crate::snapshot::{Device, RecorderInfo, Snapshot};
use crate::study::memory::SizedCount;
use crate::study::{DeviceStudy, Study, warn_about_trace};
use crate::whatif::inferred_options;
use crate::whatif::{ineffective_options, settings_warning};

/// Pinned host memory, where it was recorded.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct HostReport {
    /// Host segments.
    pub segments: SizedCount,
}

/// One snapshot.
#[derive(Debug, Clone, Serialize)]
pub struct SnapshotReport {
    /// As given.
    pub path: String,
    /// Size of the file.
    pub size_bytes: u64,
    /// What tells this process from others, and its snapshots have in common: how its trace begins. `None` where
    /// no times were recorded.
    #[serde(skip)]
    pub process: Option<u64>,
    /// Trace entries of all devices.
    pub events: u64,
    /// The releases that write these keys, such as `2.10-2.11` or `2.14+`.
    pub torch_version: String,
    /// The allocator settings in effect, as recorded; empty before 2.3.
    pub settings: Map<String, Value>,
    /// The string they were parsed from; `None` before 2.3.
    pub settings_string: Option<String>,
    /// Options that a replay found to be in effect, where the release records none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub found_settings: Vec<String>,
    /// Whether a device's trace does not start at an empty allocator.
    pub truncated: bool,
    /// What is odd about the file.
    pub warnings: Vec<Warning>,
    /// Pinned host memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostReport>,
    /// What the recorder of `oomscope run` knew besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<RecorderInfo>,
    /// What a run without a GPU assumed, and what it could not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<DryRunReport>,
    /// Every device that has a segment or an entry.
    pub devices: Vec<DeviceReport>,
}

/// Analyzes `snapshot`, read from `path` of `size_bytes`.
pub fn analyze(
    snapshot: &Snapshot,
    path: &str,
    size_bytes: u64,
    options: Options<'_>,
) -> SnapshotReport {
    analyze_study(&Study::new(snapshot, options.scope()), path, size_bytes, options)
}

/// The same of a snapshot under study, within whose scope the `options` are.
pub fn analyze_study(
    study: &Study<'_>,
    path: &str,
    size_bytes: u64,
    options: Options<'_>,
) -> SnapshotReport {
    let snapshot = study.snapshot();
    let mut warnings = snapshot.warnings.clone();
    let devices: Vec<DeviceReport> =
        study.devices().map(|device| advised(device, options, &mut warnings)).collect();
    remark_on_file(study, &mut warnings);
    let dry_run = dry_run(study, &devices, &mut warnings);
    let raw = snapshot.settings.clone();
    let host = snapshot.host_segments.iter().fold(SizedCount::default(), |sum, bytes| SizedCount {
        count: sum.count + 1,
        bytes: sum.bytes.saturating_add(*bytes),
    });
    SnapshotReport {
        path: path.to_owned(),
        size_bytes,
        process: study.devices().find_map(|device| process(device.device())),
        events: snapshot.entries.len() as u64,
        torch_version: options
            .minor
            .map_or_else(|| snapshot.torch_version(), |minor| format!("2.{minor}")),
        settings: raw.as_ref().map(|raw| raw.effective.clone()).unwrap_or_default(),
        settings_string: snapshot.settings_string().map(str::to_owned),
        found_settings: inferred_options(snapshot, study.settings()),
        truncated: devices.iter().any(|d| d.truncated),
        warnings: warnings.to_vec(),
        host: (host.count > 0).then_some(HostReport { segments: host }),
        recorder: snapshot.recorder_info.clone(),
        dry_run,
        devices,
    }
}

/// Everything about `device`, and what to do about its last failure.
fn advised(
    device: DeviceStudy<'_, '_>,
    options: Options<'_>,
    warnings: &mut Warnings,
) -> DeviceReport {
    let mut report = device::report(device, options, warnings);
    let known = Known {
        recorded: device.snapshot().settings.as_ref().map(|raw| raw.string.as_str()),
        is_device_known: device.capacity().is_some(),
    };
    let advised = report.ooms.last().map(|oom| against(oom, &report, known)).unwrap_or_default();
    (report.advice, report.copy) = (advised.texts, advised.copy);
    report
}

/// How the trace of `device` begins: the times of a few entries, in microseconds, are never those of another
/// process.
fn process(device: Device<'_>) -> Option<u64> {
    /// One alone may be: a thousand ranks begin within a second.
    const FEW: usize = 16;
    if device.len() < FEW {
        return None;
    }
    let times = (0..FEW).map(|entry| device.time_us(entry)).collect::<Option<Vec<u64>>>()?;
    Some(FxBuildHasher.hash_one((device.entry(0).addr, times)))
}

/// What is odd about a file and its traces.
pub fn remarks(study: &Study<'_>) -> Vec<Warning> {
    let mut warnings = study.snapshot().warnings.clone();
    for device in study.devices() {
        warn_about_trace(device, &mut warnings);
    }
    remark_on_file(study, &mut warnings);
    warnings.to_vec()
}

/// Adds to `warnings` what is odd about a file as a whole.
pub fn remark_on_file(study: &Study<'_>, warnings: &mut Warnings) {
    if study.devices().next().is_none() {
        let message = match study.scope().device {
            Some(device) => format!("no memory and no trace of device {device}"),
            None => "the allocator held no memory and recorded nothing".to_owned(),
        };
        warnings.add(Code::NoDevice, message);
    }
    add_gaps(study.snapshot(), warnings);
    // Whether the program set a limit itself is not recorded: it may have.
    warnings.extend(settings_warning(study.settings(), true));
}

/// Adds to `warnings` what the file leaves out that its reader would want, and how to record it; settings
/// that were asked for and are not in effect.
fn add_gaps(snapshot: &Snapshot, warnings: &mut Warnings) {
    if snapshot.entries.is_empty() {
        warnings.add(
            Code::NoTrace,
            "no history was recorded, so there is no peak, no timeline and no failed request to \
             show: call torch.cuda.memory._record_memory_history() before the work",
        );
    } else if snapshot.stacks.is_empty() {
        warnings.add(
            Code::NoStacks,
            "no stack was recorded, so no line of code can be named: record with context='all' and \
             stacks='python'",
        );
    }
    for option in ineffective_options(snapshot) {
        warnings.add(Code::SettingsNotInEffect, option);
    }
    warnings.extend(warn_if_foreign(snapshot));
}
