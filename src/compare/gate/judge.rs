//! Checks one snapshot against all limits.

use std::collections::{BTreeMap, BTreeSet};

use super::changes::DeviceChange;
use super::entries::{BaselineEntry, MeasuredDevice};
use super::finding::{AllowMissing, CodeLine, FileWarning, Finding, Severity, format_distinguishably, holds};
use super::limits::{Limit, LimitRules, Limits, add_defaults_for_entry};
use super::measure::measure;
use super::measured::GatedDevice;
use super::unknown::UnknownReason;
use crate::analysis::failure::failures;
use crate::analysis::{process_or_contents, warn_about_file};
use crate::base::warning;
use crate::replay::model::Inference;
use crate::snapshot::Snapshot;
use crate::stacks::frames::Origin;
use crate::study::figures::{Amount, Figure};
use crate::study::{Scope, Study, warn_about_trace};

/// A check: its limits, and what it compares with.
pub struct Gate<'a> {
    /// Limits of the configuration file.
    pub rules: &'a LimitRules,
    /// Limits given as flags, which override the failing limits of the file.
    pub flags: &'a Limits,
    /// The entry to compare with.
    pub entry: Option<NamedEntry<'a>>,
    /// Measure each device for an entry.
    pub is_measured: bool,
    /// The check has a single snapshot, which matches the entry's whatever its name.
    pub is_only: bool,
    /// Figures that may be unknown.
    pub allow_missing: &'a AllowMissing,
    /// Check only this device.
    pub device: Option<u64>,
    /// Finds a source file of a stack in the repository.
    pub source: &'a (dyn Fn(&str) -> Option<String> + Sync),
}

/// An entry of a baseline.
#[derive(Debug, Clone, Copy)]
pub struct NamedEntry<'a> {
    /// Its name.
    pub name: &'a str,
    /// `None` if the baseline lacks it.
    pub entry: Option<&'a BaselineEntry>,
}

/// The result for one snapshot.
#[derive(Debug, Default)]
pub struct JudgedSnapshot {
    /// Findings of every limit on every device.
    pub findings: Vec<Finding>,
    /// Warnings about the file.
    pub warnings: Vec<FileWarning>,
    /// Name in baselines.
    pub name: String,
    /// Devices with memory or a trace.
    pub devices: Vec<u64>,
    /// Path of the snapshot, as given.
    pub path: String,
    /// Fingerprint of the process that wrote it.
    pub process: u64,
    /// Its rank, if the recorder noted it and the others ran as well.
    pub rank: Option<String>,
    /// Number of ranks of that job.
    pub world_size: Option<usize>,
    /// Its devices, if they were measured for an entry.
    pub measured: Vec<MeasuredDevice>,
    /// Why an entry would lack part of a device.
    pub incomplete: Option<UnknownReason>,
    /// Name of the GPU, if recorded.
    pub gpu: Option<String>,
    /// `torch.__version__`, or the releases that write such files.
    pub torch: Option<String>,
}

/// Checks `snapshot`, read from `path` and named `name` in baselines. Computes only the figures that limits need.
pub fn judge(snapshot: &Snapshot, path: &str, name: &str, gate: &Gate<'_>) -> JudgedSnapshot {
    let scope = Scope { device: gate.device, ..Scope::default() };
    let study = Study::new(snapshot, scope);
    let mut warnings = snapshot.warnings.clone();
    let mut judged = JudgedSnapshot {
        name: name.to_owned(),
        path: path.to_owned(),
        process: process_or_contents(&study),
        torch: Some(snapshot.torch_version()),
        ..JudgedSnapshot::default()
    };
    if let Some(recorder) = &snapshot.recorder_info {
        let assumed = recorder.dry_run.as_ref().map(|dry_run| dry_run.gpu.clone());
        judged.gpu = assumed.or_else(|| Some(recorder.devices.first()?.name.clone()));
        judged.torch = recorder.torch.clone().or(judged.torch);
        if !recorder.dry_run.as_ref().is_some_and(|dry_run| dry_run.is_alone) {
            judged.rank.clone_from(&recorder.rank);
            judged.world_size = recorder.world_size.as_ref().and_then(|text| text.parse().ok());
        }
    }
    let mut compares = false;
    for device in study.devices() {
        let limits = gate.limits(path, name, device.id());
        let figures: Vec<Figure> = limits.iter().flat_map(Limits::keys).flat_map(|limit| limit.figures()).collect();
        compares |= figures.iter().any(|figure| figure.needs_baseline());
        let failures = if figures.contains(&Figure::Ooms) { failures(device, &mut warnings) } else { Vec::new() };
        warn_about_trace(device, &mut warnings);
        let measured = if gate.is_measured { measure(device, name, gate.source) } else { None };
        let before = gate.before(name, device.id());
        let grown = measured.as_ref().map(|after| DeviceChange::new(before, after).changes).unwrap_or_default();
        judged.measured.extend(measured.map(MeasuredDevice::with_main_lines));
        let entry = gate.entry.map_or("", |entry| entry.name);
        let accepts_late_start = gate.allow_missing.contains(warning::Code::Truncated.word());
        let gated = GatedDevice { device, path, before, failures, accepts_late_start, entry, grown };
        if gate.is_measured && judged.incomplete.is_none() {
            let why = gated.check_complete(None).err();
            judged.incomplete = why.filter(|why| !gate.allow_missing.contains(why.code().word()));
        }
        judged.findings.extend(gate.findings(&gated, &limits));
        judged.devices.push(device.id());
    }
    warn_about_file(&study, &mut warnings);
    let noted = warnings.to_vec();
    judged.warnings = noted.iter().map(|w| FileWarning::new(path, w.code, &w.message)).collect();
    if compares {
        judged.warnings.extend(estimated_peaks_warnings(path, study.inference()));
    }
    judged
}

/// Warns about peaks replayed by a model that diverges from the recording.
fn estimated_peaks_warnings(path: &str, inference: &Inference<'_>) -> Vec<FileWarning> {
    let warnings = inference.devices.iter().filter(|device| !device.verification.is_exact()).map(|inferred| {
        let (device, at) = (inferred.device.id(), inferred.verification.matched);
        let message = format!(
            "GPU {device}: the model diverges from the recording at entry {at} of {}: peaks \
             replayed from an empty pool are estimates (see `oomscope replay`)",
            inferred.verification.recorded
        );
        FileWarning::new(path, warning::Code::ModelParted, &message)
    });
    warnings.collect()
}

/// The message of a finding without a value.
fn unknown_message(why: Option<&UnknownReason>, is_allowed: bool) -> String {
    let why = why.map_or_else(String::new, ToString::to_string);
    let allowed = if is_allowed { " (allowed: --allow-missing)" } else { "" };
    format!("not known{allowed}: {why}")
}

impl Gate<'_> {
    /// Limits that fail the check and limits that warn, for a device of the snapshot at `path`.
    fn limits(&self, path: &str, name: &str, device: u64) -> [Limits; 2] {
        let [mut fail, mut warn] = self.rules.limits(path, device);
        fail.extend(self.flags);
        if self.entry.is_some() {
            let step_growth = self.before(name, device).map_or(0, |before| before.totals.growth_per_step_bytes);
            add_defaults_for_entry(&mut fail, step_growth);
        } else if self.is_measured {
            // The entry is written, so there is nothing to compare with.
            for limits in [&mut fail, &mut warn] {
                limits.retain(|limit, _| !limit.needs_baseline());
            }
        }
        [fail, warn]
    }

    /// The device in the entry of the baseline.
    fn before(&self, name: &str, device: u64) -> Option<&MeasuredDevice> {
        self.entry?.entry?.device(name, self.is_only, device)
    }

    fn findings(&self, device: &GatedDevice<'_, '_>, limits: &[Limits; 2]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for limit in Limit::all() {
            for (severity, limits) in [Severity::Fail, Severity::Warn].into_iter().zip(limits) {
                let Some(&most) = limits.get(&limit) else { continue }; // not limited
                let figures = limit.figures();
                findings.extend(figures.map(|figure| self.finding(Ok(device), figure, severity, most)));
            }
        }
        findings
    }

    /// The finding on a device, or on a row of the baseline whose device is missing.
    fn finding(
        &self,
        device: Result<&GatedDevice<'_, '_>, &MeasuredDevice>,
        figure: Figure,
        severity: Severity,
        limit: Amount,
    ) -> Finding {
        let read =
            device.map_err(|row| UnknownReason::MissingSnapshot { device: row.device, snapshot: row.process.clone() });
        let (actual, why) = match read.and_then(|device| device.read(figure)) {
            Ok(actual) => (Some(actual), None),
            // An incomplete figure may violate the limit already.
            Err(why) => (why.lower_bound(figure.unit()).filter(|seen| !holds(limit, Some(*seen))), Some(why)),
        };
        let missing = why.as_ref().map(UnknownReason::code);
        let is_allowed = actual.is_none()
            && missing.is_some_and(|why| {
                [why.word(), figure.word()].into_iter().any(|word| self.allow_missing.contains(word))
            });
        let passed = is_allowed || holds(limit, actual);
        let (limit_text, actual_text) = format_distinguishably(limit, actual);
        let sentence = device.ok().filter(|_| actual.is_some()).map(|device| device.sentence(figure, &actual_text));
        let known = sentence.map(|sentence| format!("{sentence}; the limit is {limit_text}"));
        let message = match (known, why) {
            (Some(known), None) => known,
            (Some(known), Some(why)) => format!("{known}; and that is only a lower bound: {why}"),
            (None, why) => unknown_message(why.as_ref(), is_allowed),
        };
        let (path, id) =
            device.map_or_else(|row| (&*row.process, row.device), |device| (device.path, device.device.id()));
        let exceeding = device.ok().filter(|_| !passed && actual.is_some());
        Finding {
            code: figure,
            severity,
            path: path.to_owned(),
            device: id,
            unit: figure.unit(),
            limit,
            actual,
            missing,
            passed,
            message,
            lines: exceeding.map(|device| self.lines(device, figure)).unwrap_or_default(),
        }
    }

    /// A finding for each growth limit on each device of the baseline that `judged` lacks, because a rank that died
    /// leaves no file. Snapshots in `unreadable` are reported elsewhere.
    pub fn missing_findings(&self, judged: &[JudgedSnapshot], unreadable: &BTreeSet<String>) -> Vec<Finding> {
        let Some(entry) = self.entry.and_then(|named| named.entry) else { return Vec::new() }; // nothing was expected
        let is_any = self.is_only && entry.has_single_process();
        let rows_of: BTreeMap<&str, &[u64]> =
            judged.iter().map(|snapshot| (&*snapshot.name, &*snapshot.devices)).collect();
        let rows = entry.devices.iter().filter(|row| self.device.is_none_or(|only| only == row.device));
        let mut findings = Vec::new();
        for row in rows {
            let is_there = match rows_of.get(&*row.process) {
                Some(devices) => devices.contains(&row.device),
                None if is_any => judged.iter().any(|other| other.devices.contains(&row.device)),
                None => unreadable.contains(&row.process),
            };
            if is_there {
                continue;
            }
            let limits = self.limits(&row.process, &row.process, row.device);
            for (severity, limits) in [Severity::Fail, Severity::Warn].into_iter().zip(&limits) {
                for (limit, most) in limits.iter().filter(|(limit, _)| limit.needs_baseline()) {
                    findings.extend(limit.figures().map(|figure| self.finding(Err(row), figure, severity, *most)));
                }
            }
        }
        findings
    }

    fn lines(&self, device: &GatedDevice<'_, '_>, figure: Figure) -> Vec<CodeLine> {
        let (lines, what) = device.lines(figure);
        let code_lines = lines.into_iter().map(|(frame, bytes)| {
            let source = if frame.origin == Origin::User { (self.source)(&frame.file) } else { None };
            CodeLine { frame, source, bytes, what }
        });
        code_lines.collect()
    }
}
