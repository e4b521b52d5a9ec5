//! The report on all snapshots, the JSON of `oomscope check`; and whether they can be compared with an entry of a baseline:
//! every path through `check` asks [`objections`].

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

use super::changes::BaselineComparison;
use super::entries::BaselineEntry;
use super::finding::{AllowMissing, FileWarning, Finding, Objection, ObjectionCode, Severity};
use super::judge::JudgedSnapshot;
use crate::analysis::{DryRunReason, DryRunVerdict, JobVerdict, Unreadable};
use crate::stacks::frames::{CodeLocation, FrameReport};

/// The JSON of `oomscope check`.
#[derive(Debug, Default, Serialize)]
#[serde(remote = "Self")]
pub struct CheckReport {
    /// Whether all snapshots were read and all limits hold, except those that only warn.
    pub passed: bool,
    /// Path of the configuration file whose limits apply; null without one.
    pub config: Option<String>,
    /// Findings of every limit on every device, in the order of the snapshots.
    pub findings: Vec<Finding>,
    /// The comparison with an entry of a baseline; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<BaselineComparison>,
    /// The verdict of the dry run; absent if snapshots were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<CheckedJob>,
    /// Warnings about the files.
    pub warnings: Vec<FileWarning>,
    /// Files that could not be read; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
    /// Expected and checked number of ranks; absent without `--ranks` if all recorded ranks were checked. `passed` is
    /// false if they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RankCount>,
    /// Reasons why the comparison with the baseline cannot pass; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objections: Vec<Objection>,
}

/// Number of ranks of a job. A rank counts once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RankCount {
    /// Expected number of ranks.
    pub expected: usize,
    /// Number of ranks that were checked.
    pub checked: usize,
    /// The user gave the expected number; otherwise the recorder noted it.
    #[serde(skip)]
    pub is_given: bool,
    /// Snapshots that do not count, because another is of the same rank; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<RepeatedRank>,
}

/// A snapshot of a rank or process that another snapshot is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepeatedRank {
    /// Path of the snapshot, as given.
    pub path: String,
    /// Path of its first snapshot.
    pub same_as: String,
    /// The rank, if it was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<String>,
}

impl RankCount {
    /// The ranks of `judged`, of which the user wants `given`. Without that number all ranks of the recorded job must be
    /// there, and only a difference is reported.
    pub fn new(given: Option<usize>, judged: &[JudgedSnapshot]) -> Option<Self> {
        let expected = given.or_else(|| judged.iter().filter_map(|snapshot| snapshot.world_size).max())?;
        let mut first: BTreeMap<(Option<&str>, u64), &str> = BTreeMap::new();
        let mut repeated = Vec::new();
        for snapshot in judged {
            // Ranks have numbers; without one, the process is the key.
            let process = if snapshot.rank.is_some() { 0 } else { snapshot.process };
            let key = (snapshot.rank.as_deref(), process);
            if let Some(same_as) = first.get(&key).copied().map(str::to_owned) {
                let (path, rank) = (snapshot.path.clone(), snapshot.rank.clone());
                repeated.push(RepeatedRank { path, same_as, rank });
            } else {
                first.insert(key, &snapshot.path);
            }
        }
        let count = Self { expected, checked: first.len(), is_given: given.is_some(), repeated };
        (count.is_given || count.checked < expected).then_some(count)
    }
}

impl CheckReport {
    /// Adds the results of all snapshots to the other results of a check, which decide with them whether it passed.
    #[must_use]
    pub fn new(judged: Vec<JudgedSnapshot>, others: Self) -> Self {
        let (mut findings, mut warnings) = (Vec::new(), Vec::new());
        for snapshot in judged {
            findings.extend(snapshot.findings);
            warnings.extend(snapshot.warnings);
        }
        findings.extend(others.findings);
        warnings.extend(others.warnings);
        let passed = others.unreadable.is_empty()
            && others.ranks.as_ref().is_none_or(|ranks| ranks.expected == ranks.checked)
            && others.objections.iter().all(|objection| objection.allowed)
            && others.dry_run.as_ref().is_none_or(|job| job.passed)
            && violations(&findings, Severity::Fail) == 0;
        Self { passed, findings, warnings, ..others }
    }

    /// Adds the comparison with an entry of a baseline.
    #[must_use]
    pub fn with_baseline(self, baseline: Option<BaselineComparison>) -> Self {
        let passed = self.passed && baseline.as_ref().is_none_or(|baseline| baseline.not_written.is_none());
        Self { passed, baseline, ..self }
    }

    /// The violations: failing ones before warnings, worst first.
    pub fn failed_findings(&self) -> Vec<&Finding> {
        let mut failed: Vec<&Finding> = self.findings.iter().filter(|f| !f.passed).collect();
        failed.sort_by(|a, b| {
            let worse = b.excess().partial_cmp(&a.excess()).unwrap_or(Ordering::Equal);
            a.severity.cmp(&b.severity).then(worse)
        });
        failed
    }

    /// Number of violated limits of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        violations(&self.findings, severity)
    }
}

fn violations(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|f| !f.passed && f.severity == severity).count()
}

/// A dry run of a job, and whether its verdict passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckedJob {
    /// Name of the assumed GPU.
    pub gpu: String,
    /// The command and its arguments, for a shell.
    pub command: String,
    /// Whether the job would fit. Only `would-fit` passes, unless `--allow-missing` names the verdict.
    pub verdict: DryRunVerdict,
    /// Why, in a sentence.
    pub reason: String,
    /// Whether the verdict passes.
    pub passed: bool,
    /// The line that the reason names; null if it names none.
    pub line: Option<FrameReport>,
    /// Path of its file in the repository; null if it is not there.
    pub source: Option<String>,
}

impl CheckedJob {
    /// Judges `verdict`. Without one, no process left a snapshot, and `no_verdict` says why.
    pub fn new(
        (gpu, command): (String, String),
        verdict: Option<&JobVerdict>,
        no_verdict: impl FnOnce() -> String,
        allow_missing: &AllowMissing,
        source: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let line = verdict.and_then(|job| location(&job.reason)?.frame.clone());
        let (verdict, reason) = match verdict {
            Some(job) => (job.verdict, job.reason.to_string()),
            None => (DryRunVerdict::NoVerdict, no_verdict()),
        };
        let passed = verdict == DryRunVerdict::WouldFit || allow_missing.contains(verdict.word());
        let source = line.as_ref().and_then(|line| source(&line.file));
        Self { gpu, command, verdict, reason, passed, line, source }
    }
}

/// The line of code that a reason is about.
fn location(reason: &DryRunReason) -> Option<&CodeLocation> {
    use DryRunReason as Reason;
    match reason {
        Reason::Failed(failed) | Reason::Retried(failed) | Reason::FailedAtMost(failed, _) => Some(&failed.location),
        Reason::Value(read) => Some(&read.location),
        Reason::ExitCode(_, location) => location.as_ref(),
        Reason::Error(error) => Some(&error.location),
        _ => None, // of a whole process, or of several
    }
}

/// The objections to comparing the snapshots `judged`, measured as `after`, with the entry `before`.
pub fn objections(
    before: &BaselineEntry,
    after: &BaselineEntry,
    judged: &[JudgedSnapshot],
    allow_missing: &AllowMissing,
) -> Vec<Objection> {
    use ObjectionCode::{OtherGpu, OtherProgram, OtherRelease, RepeatedRank};
    let gpu = before.gpu.as_deref().zip(after.gpu.as_deref()).filter(|(before, after)| before != after);
    let torch = before.torch.as_deref().zip(after.torch.as_deref()).filter(|(before, after)| differ(before, after));
    let shares_code = functions(before).any(|function| functions(after).any(|other| other == function));
    let program = first_file(before).zip(first_file(after)).filter(|_| !shares_code);
    let found =
        [(OtherProgram, program), (OtherGpu, gpu), (OtherRelease, torch), (RepeatedRank, repeated_rank(judged))];
    let objections = found.into_iter().filter_map(|(code, pair)| {
        let (before, after) = pair?;
        let allowed = allow_missing.contains(code.word());
        Some(Objection { code, before: before.to_owned(), after: after.to_owned(), allowed })
    });
    objections.collect()
}

/// The first two snapshots that would be the same row of an entry.
pub fn repeated_rank(judged: &[JudgedSnapshot]) -> Option<(&str, &str)> {
    let mut first: BTreeMap<(&str, u64), &str> = BTreeMap::new();
    let mut rows = judged.iter().flat_map(|snapshot| snapshot.devices.iter().map(move |device| (snapshot, *device)));
    rows.find_map(|(snapshot, device)| {
        let same = first.insert((&snapshot.name, device), &snapshot.path)?;
        Some((same, &*snapshot.path))
    })
}

/// The functions that hold memory at the peak. Lines move, and functions rarely do.
fn functions(entry: &BaselineEntry) -> impl Iterator<Item = (&str, &str)> {
    let lines = entry.devices.iter().flat_map(|device| &device.lines).filter(|line| line.line > 0);
    lines.map(|line| (&*line.file, &*line.function))
}

fn first_file(entry: &BaselineEntry) -> Option<&str> {
    functions(entry).next().map(|(file, _)| file)
}

/// Whether two descriptions of a release exclude each other: `2.15.0+cu128` as recorded, whose build does not matter, or
/// what a file shows, such as `2.10-2.11` and `2.14+`.
fn differ(before: &str, after: &str) -> bool {
    if let [Some(before), Some(after)] = [before, after].map(exact_release) {
        return before != after;
    }
    minors(before).zip(minors(after)).is_some_and(|(before, after)| before.1 < after.0 || after.1 < before.0)
}

fn exact_release(version: &str) -> Option<&str> {
    release(version).filter(|release| release.split('.').count() > 2 && !release.contains('-'))
}

fn release(version: &str) -> Option<&str> {
    version.split('+').next()
}

/// The first and the last minor release.
fn minors(version: &str) -> Option<(u32, u32)> {
    if let Some(first) = version.strip_suffix('+') {
        return Some((minor(first)?, u32::MAX));
    }
    let release = release(version)?;
    let (first, last) = release.split_once('-').unwrap_or((release, release));
    Some((minor(first)?, minor(last)?))
}

fn minor(release: &str) -> Option<u32> {
    release.split('.').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::differ;

    #[test]
    fn releases_differ_only_if_they_exclude_each_other() {
        for (before, after) in [("2.9.1+cu128", "2.10.0"), ("2.9.0", "2.9.1"), ("2.10-2.11", "2.14+"), ("2.8", "2.9.1")]
        {
            assert!(differ(before, after) && differ(after, before), "{before} {after}");
        }
        for (before, after) in [("2.9.1+cu128", "2.9.1+cpu"), ("2.10-2.11", "2.11.0"), ("2.3+", "2.14+"), ("?", "2.8")]
        {
            assert!(!differ(before, after) && !differ(after, before), "{before} {after}");
        }
    }
}
