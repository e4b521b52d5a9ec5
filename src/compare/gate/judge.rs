//! All limits of a gate against one snapshot.

use std::collections::{BTreeMap, BTreeSet};

use super::allow_missing::AllowMissing;
use super::baseline::{Baseline, Peaks, peaks};
use super::finding::{CodeLine, Finding, Noted, Severity, code_of, holds, told_apart};
use super::limits::{Limit, Limits};
use super::measured::Measured;
use super::rules::LimitRules;
use crate::analysis::failure::failures;
use crate::analysis::{LineShare, remark_on_file};
use crate::base::warning;
use crate::replay::model::{Inference, InferredDevice};
use crate::snapshot::Snapshot;
use crate::stacks::frames::Origin;
use crate::study::figures::{Amount, Figure, UnknownReason};
use crate::study::{Scope, Study, warn_about_trace};

/// Lines of code that a finding names.
const LINES: usize = 3;

/// What a snapshot has to keep to.
pub struct Gate<'a> {
    /// Limits of a file.
    pub rules: &'a LimitRules,
    /// Limits that win over those that fail in the file.
    pub flags: &'a Limits,
    /// Peaks to compare with.
    pub baseline: Option<&'a Baseline>,
    /// Whether there is one snapshot only, which is the baseline's whatever it is called.
    pub is_only: bool,
    /// Whether all snapshots of the baseline are to be there: not, where one of them was named.
    pub is_whole: bool,
    /// What may be missing.
    pub allow_missing: &'a AllowMissing,
    /// Only this device.
    pub device: Option<u64>,
    /// The minor release of PyTorch 2 that recorded, where it is known.
    pub minor: Option<u32>,
    /// Where a file that a stack names is in the repository, if it is.
    pub source: &'a (dyn Fn(&str) -> Option<String> + Sync),
}

/// What came of one snapshot.
#[derive(Debug, Default)]
pub struct Judged {
    /// Every limit against every device.
    pub findings: Vec<Finding>,
    /// Its peaks, where a limit needed them.
    pub replayed: Vec<Peaks>,
    /// What is odd about the file.
    pub warnings: Vec<Noted>,
    /// What it is called in baselines.
    pub name: String,
    /// Devices that have memory or a trace.
    pub devices: Vec<u64>,
}

/// Holds `snapshot`, read from `path` and called `name` in baselines, against all limits. Only what they ask
/// for is worked out.
pub fn judge(snapshot: &Snapshot, path: &str, name: &str, gate: &Gate<'_>) -> Judged {
    let scope = Scope { device: gate.device, minor: gate.minor, ..Scope::default() };
    let study = Study::new(snapshot, scope);
    let mut warnings = snapshot.warnings.clone();
    let mut judged = Judged { name: name.to_owned(), ..Judged::default() };
    let mut compares = false;
    for device in study.devices() {
        let limits = gate.limits(path, device.id());
        let asked: Vec<Figure> =
            limits.iter().flat_map(Limits::iter).flat_map(|(limit, _)| limit.figures()).collect();
        compares |= asked.iter().any(|figure| figure.needs_baseline());
        let failures = if asked.contains(&Figure::Ooms) {
            failures(device, &mut warnings)
        } else {
            Vec::new()
        };
        warn_about_trace(device, &mut warnings);
        let baseline = gate.baseline.and_then(|b| b.of(name, gate.is_only, device.id()));
        let measured = Measured { device, name, baseline, failures };
        judged.findings.extend(gate.findings(&measured, path, &limits));
        judged.devices.push(device.id());
    }
    remark_on_file(&study, &mut warnings);
    let noted = warnings.to_vec();
    judged.warnings = noted.iter().map(|w| Noted::new(path, w.code, &w.message)).collect();
    if compares {
        judged.replayed = peaks(&study, name);
        judged.warnings.extend(estimates(path, study.inference()));
    }
    judged
}

/// Where the replay from an empty pool rests on a model that the recording contradicts.
fn estimates(path: &str, inference: &Inference<'_>) -> Vec<Noted> {
    let parted = inference.devices.iter().filter(|one| !one.verification.is_exact());
    let note = |one: &InferredDevice<'_>| {
        let (device, at) = (one.device.id(), one.verification.matched);
        let message = format!(
            "device {device}: the model diverges from the recording at entry {at} of {}: peaks \
             replayed from an empty pool are estimates (see `oomscope replay`)",
            one.verification.recorded
        );
        Noted::new(path, warning::Code::ModelParted, &message)
    };
    parted.map(note).collect()
}

/// Why a figure has no value, and whether that is let pass.
fn not_known(why: Option<&UnknownReason>, is_allowed: bool) -> String {
    let why = why.map_or_else(String::new, ToString::to_string);
    let allowed = if is_allowed { " (allowed: --allow-missing)" } else { "" };
    format!("not known{allowed}: {why}")
}

impl Gate<'_> {
    /// For a device of the snapshot at `path`: those that fail the gate, those that warn.
    fn limits(&self, path: &str, device: u64) -> [Limits; 2] {
        let [mut fail, warn] = self.rules.limits(path, device);
        fail.overlay(self.flags);
        [fail, warn]
    }

    fn findings(&self, of: &Measured<'_, '_>, path: &str, limits: &[Limits; 2]) -> Vec<Finding> {
        let mut findings = Vec::new();
        for limit in Limit::all() {
            for (severity, limits) in [Severity::Fail, Severity::Warn].into_iter().zip(limits) {
                let Some(most) = limits.get(limit) else { continue };
                let figures = limit.figures();
                findings.extend(figures.map(|it| self.finding(of, path, it, severity, most)));
            }
        }
        findings
    }

    fn finding(
        &self,
        of: &Measured<'_, '_>,
        path: &str,
        figure: Figure,
        severity: Severity,
        limit: Amount,
    ) -> Finding {
        let (actual, why) = match figure.read(of) {
            Ok(actual) => (Some(actual), None),
            // What is seen of it is too much already.
            Err(why) => (
                why.lower_bound(figure.unit()).filter(|seen| !holds(limit, Some(*seen))),
                Some(why),
            ),
        };
        let missing = why.as_ref().map(code_of);
        let is_allowed =
            actual.is_none() && missing.is_some_and(|why| self.allow_missing.allows(figure, why));
        let passed = is_allowed || holds(limit, actual);
        let (limit_told, actual_told) = told_apart(limit, actual);
        let known = actual
            .map(|_| format!("{}; the limit is {limit_told}", of.sentence(figure, &actual_told)));
        let message = match (known, why) {
            (Some(known), None) => known,
            (Some(known), Some(why)) => format!("{known}; and that is not all: {why}"),
            (None, why) => not_known(why.as_ref(), is_allowed),
        };
        Finding {
            code: figure,
            severity,
            path: path.to_owned(),
            device: of.device.id(),
            unit: figure.unit(),
            limit,
            actual,
            missing,
            passed,
            message,
            lines: if passed || actual.is_none() { Vec::new() } else { self.lines(of, figure) },
        }
    }

    /// A finding for each limit on growth of each device that the baseline has and `judged` lacks: a rank that
    /// died leaves no file. Those of snapshots in `unreadable` are known to be missing.
    pub fn not_checked(&self, judged: &[Judged], unreadable: &BTreeSet<String>) -> Vec<Finding> {
        let Some(baseline) = self.baseline else { return Vec::new() };
        let is_any = self.is_only && baseline.is_single();
        let rows_of: BTreeMap<&str, &[u64]> =
            judged.iter().map(|one| (&*one.name, &*one.devices)).collect();
        let is_there = |row: &Peaks| match rows_of.get(&*row.snapshot) {
            Some(devices) => devices.contains(&row.device),
            None if is_any => judged.iter().any(|one| one.devices.contains(&row.device)),
            None => !self.is_whole || unreadable.contains(&row.snapshot),
        };
        let is_wanted = |row: &&Peaks| self.device.is_none_or(|only| only == row.device);
        let mut findings = Vec::new();
        for row in baseline.rows().filter(is_wanted).filter(|row| !is_there(row)) {
            let why = UnknownReason::MissingSnapshot {
                device: row.device,
                snapshot: row.snapshot.clone(),
            };
            let limits = self.limits(&row.snapshot, row.device);
            for (severity, limits) in [Severity::Fail, Severity::Warn].into_iter().zip(&limits) {
                for (limit, most) in limits.iter().filter(|(limit, _)| limit.needs_baseline()) {
                    findings.extend(limit.figures().map(|figure| {
                        let passed = self.allow_missing.allows(figure, code_of(&why));
                        Finding {
                            code: figure,
                            severity,
                            path: row.snapshot.clone(),
                            device: row.device,
                            unit: figure.unit(),
                            limit: most,
                            actual: None,
                            missing: Some(code_of(&why)),
                            passed,
                            message: not_known(Some(&why), passed),
                            lines: Vec::new(),
                        }
                    }));
                }
            }
        }
        findings
    }

    fn lines(&self, of: &Measured<'_, '_>, figure: Figure) -> Vec<CodeLine> {
        let (lines, what) = of.lines(figure, LINES);
        lines.into_iter().map(|line| self.line(line, what)).collect()
    }

    fn line(&self, LineShare { frame, bytes }: LineShare, what: &'static str) -> CodeLine {
        let is_users = frame.origin() == Origin::User;
        let source = if is_users { (self.source)(&frame.file) } else { None };
        CodeLine { frame, source, bytes, what }
    }
}
