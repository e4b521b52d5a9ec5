//! All limits of a gate against one snapshot.

use super::baseline::{Baseline, Peaks, peaks};
use super::config::Config;
use super::figures::Measured;
use super::finding::{Finding, Line, Severity, holds, told_apart};
use super::limits::{Limit, Limits};
use super::verdict::Noted;
use crate::analysis::{Contribution, DeviceReport, LineShare, Options, analyze_study, lines};
use crate::figures::{Amount, Figure};
use crate::frames::Origin;
use crate::model::Inference;
use crate::notice;
use crate::snapshot::Snapshot;
use crate::study::Study;

/// Lines of code that a finding names. One more row is asked for: one may be of no line.
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

/// Holds `snapshot`, read from `path` and called `name` in baselines, against all limits.
pub fn judge(snapshot: &Snapshot, path: &str, name: &str, gate: &Gate<'_>) -> Judged {
    let options =
        Options { device: gate.device, top: LINES + 1, minor: gate.minor, ..Options::default() };
    let study = Study::new(snapshot, options.scope());
    let report = analyze_study(&study, path, 0, options);
    let by_device: Vec<(&DeviceReport, [Limits; 2])> =
        report.devices.iter().map(|device| (device, gate.limits(path, device.device))).collect();
    let any = |wanted: fn(Limit) -> bool| {
        by_device
            .iter()
            .any(|(_, [fail, warn])| fail.iter().chain(warn.iter()).any(|(limit, _)| wanted(limit)))
    };
    let compares = any(Limit::needs_baseline);
    let counts = any(|limit| limit.figures().any(|figure| figure == Figure::Retries));
    let inference = (compares || counts).then(|| study.inference());
    let replayed = if compares { peaks(&study, name) } else { Vec::new() };
    let mut warnings: Vec<Noted> =
        report.warnings.iter().map(|w| Noted::new(path, w.code, &w.message)).collect();
    if compares && let Some(inference) = inference {
        warnings.extend(estimates(path, inference));
    }
    let court = Court { study: &study, path, gate };
    let mut findings = Vec::new();
    for (device, limits) in by_device {
        let number = device.device;
        let in_inference = inference
            .and_then(|inference| inference.devices.iter().find(|one| one.device.id() == number));
        let measured = Measured {
            device,
            inferred: in_inference,
            now: replayed.iter().find(|row| row.device == number),
            before: gate.baseline.and_then(|b| b.of(name, gate.is_only, number)),
        };
        for limit in Limit::all() {
            for (severity, of) in [Severity::Fail, Severity::Warn].into_iter().zip(&limits) {
                let Some(most) = of.get(limit) else { continue };
                let figures = limit.figures();
                findings.extend(figures.map(|it| court.finding(&measured, it, severity, most)));
            }
        }
    }
    Judged { findings, replayed, warnings, devices: report.devices.len() }
}

impl Gate<'_> {
    fn limits(&self, path: &str, device: u64) -> [Limits; 2] {
        let [mut fail, warn] = self.config.limits(path, device);
        fail.overlay(self.flags);
        [fail, warn]
    }
}

/// Where the replay from an empty pool rests on a model that the recording contradicts.
fn estimates(path: &str, inference: &Inference<'_>) -> Vec<Noted> {
    let parted = inference.devices.iter().filter(|one| !one.verification.is_exact());
    let note = |one: &crate::model::Inferred<'_>| {
        let (device, at) = (one.device.id(), one.verification.matched);
        let message = format!(
            "device {device}: the model and the recording part at entry {at} of {}: peaks replayed from \
             an empty pool are estimates (see `oomscope replay`)",
            one.verification.recorded
        );
        Noted::new(path, notice::Code::ModelParted, &message)
    };
    parted.map(note).collect()
}

/// The snapshot, and what is made of it only when a limit does not hold.
struct Court<'s, 'a> {
    study: &'s Study<'a>,
    path: &'s str,
    gate: &'s Gate<'s>,
}

impl Court<'_, '_> {
    fn finding(
        &self,
        measured: &Measured<'_>,
        figure: Figure,
        severity: Severity,
        limit: Amount,
    ) -> Finding {
        let reading = figure.read(measured);
        let actual = reading.as_ref().ok().copied();
        let passed = holds(limit, actual);
        let (limit_told, actual_told) = told_apart(limit, actual);
        let message = match &reading {
            Ok(_) => {
                let sentence = measured.sentence(figure, &actual_told);
                format!("{sentence}; the limit is {limit_told}")
            }
            Err(why) => format!("cannot be told: {why}"),
        };
        Finding {
            code: figure,
            severity,
            path: self.path.to_owned(),
            device: measured.device.device,
            unit: figure.unit(),
            limit,
            actual,
            passed,
            message,
            lines: if passed || actual.is_none() {
                Vec::new()
            } else {
                self.lines(measured, figure)
            },
        }
    }

    fn lines(&self, measured: &Measured<'_>, figure: Figure) -> Vec<Line> {
        let known = measured.known_lines(figure);
        let found = known.or_else(|| {
            let (of, what) = measured.contribution(figure)?;
            Some((self.added_up(measured, of), what))
        });
        let (lines, what) = found.unwrap_or_default();
        lines.into_iter().take(LINES).map(|line| self.line(line, what)).collect()
    }

    fn added_up(&self, measured: &Measured<'_>, of: Contribution) -> Vec<LineShare> {
        let device = self.study.device(measured.device.device);
        device.map(|device| lines(device, of, LINES)).unwrap_or_default()
    }

    fn line(&self, LineShare { frame, bytes }: LineShare, what: &'static str) -> Line {
        let is_users = frame.origin() == Origin::User;
        let source = if is_users { (self.gate.source)(&frame.file) } else { None };
        Line { frame, source, bytes, what }
    }
}
