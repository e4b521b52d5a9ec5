//! The report on one snapshot, and which process wrote it.

use std::hash::BuildHasher as _;

use rustc_hash::FxBuildHasher;
use serde::Serialize;
use serde_json::{Map, Value};

use super::device::{self, DeviceReport, Options};
use super::dry_run::{DryRunReport, dry_run};
use super::failure::SourceExcerpt;
use super::last_failure::explain_last_failure;
use crate::base::details::promised;
use crate::base::threads;
use crate::base::warning::{Code, Warning, Warnings};
use crate::replay::literal::warn_if_foreign;
use crate::snapshot::{Device, RecorderInfo, Snapshot};
use crate::study::memory::SizedCount;
use crate::study::{DeviceStudy, MemoryHistory, Study, warn_about_trace};
use crate::whatif::{inferred_options, settings_warning};

/// One snapshot.
#[derive(Debug, Clone, Serialize)]
#[serde(remote = "Self")]
pub struct SnapshotReport {
    /// Path as given on the command line.
    pub path: String,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Fingerprint of the process; `None` if no times were recorded.
    #[serde(skip)]
    pub process: Option<u64>,
    /// Number of trace entries of all devices.
    pub events: u64,
    /// Time of the last trace entry, in microseconds since the epoch; `None` if no times were recorded.
    #[serde(skip)]
    pub time_us: Option<u64>,
    /// The releases of PyTorch that write such a file, such as `2.10-2.11` or `2.14+`.
    pub torch_version: String,
    /// The recorded allocator settings that were in effect; empty before PyTorch 2.3.
    pub settings: Map<String, Value>,
    /// The recorded settings string; null before PyTorch 2.3.
    pub settings_string: Option<String>,
    /// Settings that a replay inferred, if the release records none; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub found_settings: Vec<String>,
    /// Whether memory was reserved before the trace of a device starts.
    pub truncated: bool,
    /// Warnings about the file and its traces.
    pub warnings: Vec<Warning>,
    /// Segments of pinned host memory; absent if none was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<SizedCount>,
    /// Facts that `oomscope run` recorded; absent in other recordings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<RecorderInfo>,
    /// Assumptions and unknowns of a dry run; absent in a run with a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<DryRunReport>,
    /// Every device that has a segment or a trace entry.
    pub devices: Vec<DeviceReport>,
}

promised! {
    SnapshotReport { path, torch_version, settings_string, events, truncated, warnings, recorder, dry_run, devices }
}

/// Analyzes `snapshot`, read from `path` of `size_bytes`.
pub fn analyze(snapshot: &Snapshot, path: &str, size_bytes: u64, options: Options<'_>) -> SnapshotReport {
    analyze_study(&Study::new(snapshot, options.scope), path, size_bytes, options)
}

/// Analyzes a snapshot within the scope of its study, in place of that of `options`.
pub fn analyze_study(study: &Study<'_>, path: &str, size_bytes: u64, options: Options<'_>) -> SnapshotReport {
    let snapshot = study.snapshot();
    let mut warnings = snapshot.warnings.clone();
    let studies: Vec<DeviceStudy<'_, '_>> = study.devices().collect();
    let reports = threads::map(&studies, |device| {
        let (mut report, warnings) = device::report(*device, options);
        explain_last_failure(&mut report, *device);
        (report, warnings)
    });
    let (mut devices, of_devices): (Vec<DeviceReport>, Vec<Warnings>) = reports.into_iter().unzip();
    warnings.extend(of_devices.iter().flat_map(Warnings::to_vec));
    warn_about_file(study, &mut warnings);
    let dry_run = dry_run(study, &devices, &mut warnings);
    // Stripped paths are for a page that others will see, and the text of a program is more private than its paths.
    if !study.scope().strip_paths {
        for oom in devices.iter_mut().filter_map(|device| device.ooms.last_mut()) {
            let frame = oom.location.frame.as_ref();
            oom.request.source = frame.and_then(|frame| SourceExcerpt::quote(frame, &snapshot.source));
        }
    }
    let mut host = SizedCount::default();
    snapshot.host_segments.iter().for_each(|bytes| host.add(*bytes));
    SnapshotReport {
        path: path.to_owned(),
        size_bytes,
        process: process(study),
        events: snapshot.entries.len() as u64,
        time_us: study.devices().filter_map(|device| last_us(device.device())).max(),
        torch_version: study.scope().minor.map_or_else(|| snapshot.torch_version(), |minor| format!("2.{minor}")),
        settings: snapshot.settings.as_ref().map(|raw| raw.effective.clone()).unwrap_or_default(),
        settings_string: snapshot.settings_string().map(str::to_owned),
        found_settings: inferred_options(snapshot, study.settings()),
        truncated: devices.iter().filter_map(|device| device.timeline.as_ref()).any(MemoryHistory::is_truncated),
        warnings: warnings.to_vec(),
        host: (host.count > 0).then_some(host),
        recorder: snapshot.recorder_info.clone(),
        dry_run,
        devices,
    }
}

fn last_us(device: Device<'_>) -> Option<u64> {
    device.time_us(device.len().checked_sub(1)?)
}

/// All warnings about a file and its traces.
pub fn warnings_of(study: &Study<'_>) -> Vec<Warning> {
    let mut warnings = study.snapshot().warnings.clone();
    for device in study.devices() {
        warn_about_trace(device, &mut warnings);
    }
    warn_about_file(study, &mut warnings);
    warnings.to_vec()
}

/// Adds warnings about the file as a whole.
pub fn warn_about_file(study: &Study<'_>, warnings: &mut Warnings) {
    if study.devices().next().is_none() {
        let message = match study.scope().device {
            Some(device) => format!("no memory and no trace of GPU {device}"),
            None => "the allocator held no memory and recorded nothing".to_owned(),
        };
        warnings.add(Code::NoDevice, message);
    }
    let snapshot = study.snapshot();
    if snapshot.entries.is_empty() {
        warnings.add(
            Code::NoTrace,
            "no history was recorded, so there is no peak, no timeline and no failed request to \
             show: call torch.cuda.memory._record_memory_history() before the work",
        );
    } else if snapshot.stacks.is_empty() {
        warnings.add(
            Code::NoStacks,
            "no stacks were recorded, so source lines are unknown: record with context='all' and \
             stacks='python'",
        );
    }
    warnings.extend(warn_if_foreign(snapshot));
    // The program may have set a limit at run time, which is not recorded.
    warnings.extend(settings_warning(study.settings(), true));
}

impl SnapshotReport {
    /// The rank of the process, as the recorder saw it.
    pub(super) fn recorded_rank(&self) -> Option<&str> {
        self.recorder.as_ref()?.rank.as_deref()
    }
}

/// Entries of a fingerprint. A single time may coincide: a thousand ranks start within a second.
const FINGERPRINT_ENTRIES: usize = 16;

/// Fingerprint of the process: the start of its trace, with times. `None` if no times were recorded. The processes of a
/// dry run may make only a few requests; they are distinguished by process id, as are short traces.
fn process(study: &Study<'_>) -> Option<u64> {
    let is_dry_run = study.snapshot().recorder_info.as_ref().is_some_and(|info| info.dry_run.is_some());
    let of_trace = study.devices().find_map(|device| start_of_trace(device.device()));
    let of_recorder = recorded_process(study);
    if is_dry_run { of_recorder.or(of_trace) } else { of_trace.or(of_recorder) }
}

fn recorded_process(study: &Study<'_>) -> Option<u64> {
    let info = study.snapshot().recorder_info.as_ref()?;
    let process = (info.host.as_ref()?, info.pid?);
    // Numbers of processes repeat, so the first time counts as well.
    let devices = study.devices().map(DeviceStudy::device);
    let first_us = devices.map(|device| if device.is_empty() { None } else { device.time_us(0) }).min();
    Some(FxBuildHasher.hash_one((process, first_us)))
}

/// Fingerprint of the process, or else of everything in the snapshot that differs between processes. Two files with the
/// same fingerprint count as one.
pub fn process_or_contents(study: &Study<'_>) -> u64 {
    process(study).unwrap_or_else(|| contents(study.snapshot()))
}

fn start_of_trace(device: Device<'_>) -> Option<u64> {
    if device.len() < FINGERPRINT_ENTRIES {
        return None;
    }
    let times = (0..FINGERPRINT_ENTRIES).map(|entry| device.time_us(entry)).collect::<Option<Vec<u64>>>()?;
    Some(FxBuildHasher.hash_one((device.entry(0).addr, times)))
}

fn contents(snapshot: &Snapshot) -> u64 {
    let process = snapshot.recorder_info.as_ref().map(|info| (&info.rank, &info.host, info.pid));
    snapshot.devices().fold(FxBuildHasher.hash_one(process), |hash, device| {
        let hash = (0..device.len()).fold(hash, |hash, index| hash_entry(hash, device, index));
        let hash = device.segments().fold(FxBuildHasher.hash_one((hash, device.id())), |hash, segment| {
            FxBuildHasher.hash_one((hash, segment.address, segment.total_size, segment.stream))
        });
        device
            .blocks()
            .fold(hash, |hash, block| FxBuildHasher.hash_one((hash, block.address, block.size, block.requested_size)))
    })
}

fn hash_entry(hash: u64, device: Device<'_>, index: usize) -> u64 {
    let entry = device.entry(index);
    FxBuildHasher.hash_one((hash, entry.action.word(), entry.addr, entry.size, entry.stream, entry.time_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_is_summed() {
        for (host_segments, host) in [(vec![], None), (vec![512, 1024], Some(SizedCount { count: 2, bytes: 1536 }))] {
            let snapshot = Snapshot { host_segments, ..Snapshot::default() };
            assert_eq!(analyze(&snapshot, "", 0, Options::default()).host, host);
        }
    }
}
