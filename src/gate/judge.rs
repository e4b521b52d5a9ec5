//! All limits of a gate against one snapshot.

use super::baseline::{Baseline, Peaks, peaks};
use super::config::Config;
use super::finding::{CodeLine, Finding, Noted, Severity, holds, told_apart};
use super::limits::{Limit, Limits};
use super::measured::Measured;
use crate::analysis::{LineShare, remark_on_file};
use crate::failure::failures;
use crate::figures::{Amount, Figure};
use crate::frames::Origin;
use crate::model::{Inference, Inferred};
use crate::notice;
use crate::snapshot::Snapshot;
use crate::study::{Scope, Study, remark_on_trace};

/// Lines of code that a finding names.
const LINES: usize = 3;

/// What a snapshot has to keep to.
pub struct Gate<'a> {
    /// Limits of a file.
    pub config: &'a Config,
    /// Limits that win over those that fail in the file.
    pub flags: &'a Limits,
    /// Peaks to compare with.
    pub baseline: Option<&'a Baseline>,
    /// Whether there is one snapshot only, which is the baseline's whatever it is called.
    pub is_only: bool,
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
    /// Devices that have memory or a trace.
    pub devices: usize,
}

/// Holds `snapshot`, read from `path` and called `name` in baselines, against all limits. Only what they ask
/// for is worked out.
pub fn judge(snapshot: &Snapshot, path: &str, name: &str, gate: &Gate<'_>) -> Judged {
    let scope = Scope { device: gate.device, minor: gate.minor, ..Scope::default() };
    let study = Study::new(snapshot, scope);
    let mut warnings = snapshot.warnings.clone();
    let mut judged = Judged::default();
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
        remark_on_trace(device, &mut warnings);
        let baseline = gate.baseline.and_then(|b| b.of(name, gate.is_only, device.id()));
        let measured = Measured { device, name, baseline, failures };
        judged.findings.extend(gate.findings(&measured, path, &limits));
        judged.devices += 1;
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
    let note = |one: &Inferred<'_>| {
        let (device, at) = (one.device.id(), one.verification.matched);
        let message = format!(
            "device {device}: the model diverges from the recording at entry {at} of {}: peaks \
             replayed from an empty pool are estimates (see `oomscope replay`)",
            one.verification.recorded
        );
        Noted::new(path, notice::Code::ModelParted, &message)
    };
    parted.map(note).collect()
}

impl Gate<'_> {
    /// For a device of the snapshot at `path`: those that fail the gate, those that warn.
    fn limits(&self, path: &str, device: u64) -> [Limits; 2] {
        let [mut fail, warn] = self.config.limits(path, device);
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
        let reading = figure.read(of);
        let actual = reading.as_ref().ok().copied();
        let passed = holds(limit, actual);
        let (limit_told, actual_told) = told_apart(limit, actual);
        let message = match &reading {
            Ok(_) => {
                format!("{}; the limit is {limit_told}", of.sentence(figure, &actual_told))
            }
            Err(why) => format!("not known: {why}"),
        };
        Finding {
            code: figure,
            severity,
            path: path.to_owned(),
            device: of.device.id(),
            unit: figure.unit(),
            limit,
            actual,
            passed,
            message,
            lines: if passed || actual.is_none() { Vec::new() } else { self.lines(of, figure) },
        }
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
