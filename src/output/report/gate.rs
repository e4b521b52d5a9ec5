//! The page of `oomscope check`, and its summary: one row a limit, those that do not hold first.

use itertools::Itertools as _;

use super::phrases::{Names, and_others};
use crate::analysis::{DryRunVerdict, group};
use crate::base::units::{count, counted, escape_text, size};
use crate::base::warning::{Code, RECORD_MORE_COMMAND, RECORD_TO_END_COMMAND};
use crate::compare::gate::{
    BaselineComparison, CheckReport, CheckedJob, CodeLine, FileWarning, Finding, Objection, ObjectionCode, Severity,
};
use crate::output::document::{Cell, Document, Judgement, Table, Text, alarm, code, faint, source_location, strong};
use crate::output::wording::{Summary, command_line};
use crate::stacks::frames::FrameReport;
use crate::study::figures::Figure;

/// Changes since a baseline on the first screen, and files that could not be checked, at most.
const MAX_CHANGES: usize = 8;
const MAX_FILES: usize = 3;
/// Limits described below the first screen, at most.
const MAX_FINDINGS: usize = 10;

/// Lays out `report`.
pub fn check(report: &CheckReport) -> Document {
    let verdict = report.verdict();
    let verdict = if report.passed { strong(verdict) } else { alarm(verdict) };
    let mut document = Document::with_headline(verdict, context(report));
    let kinds = limits_by_kind(report).into_iter();
    let kinds = kinds.sorted_by_key(|kind| (kind.worst.passed, kind.worst.severity)).collect_vec();
    document.table(limit_table(&kinds));
    // The changes since an entry of the baseline explain its limits better.
    match report.baseline.as_ref().filter(|baseline| !baseline.text.is_empty()) {
        Some(baseline) => changes(&mut document, baseline),
        None => document.fields("why", why(report)),
    }
    let not_checked = report.not_checked();
    let files = not_checked.iter().map(|(path, message)| code(&**path).and(format!(": {message}")));
    let others = and_others(not_checked.len(), MAX_FILES, "other", ": --format json").map(Text::from);
    document.fields("not checked", files.take(MAX_FILES).chain(others));
    if !report.passed {
        document.fields("do", report.summary().action);
        let worst = report.failed_findings().into_iter().find(|finding| finding.severity == Severity::Fail);
        let next = worst.and_then(|worst| command_line("analyze", &worst.path));
        document.fields("next", next.map(code));
    }
    document.with_sections(sections(report))
}

/// The GPU and the file, if there is only one; the configuration.
fn context(report: &CheckReport) -> Text {
    let one = report.findings.iter().map(|finding| (&finding.path, finding.device)).all_equal_value();
    let device = one.ok().map(|(_, device)| format!("GPU {device}"));
    faint(device.into_iter().chain(report.config.as_ref().map(|config| format!("limits from {config}"))).join(", "))
}

/// Why the job of a dry run does not pass, or why the worst figure is not known.
fn why(report: &CheckReport) -> Option<String> {
    let job = report.dry_run.as_ref().filter(|job| !job.passed).map(|job| job.reason.clone());
    job.or_else(|| {
        let worst = *report.failed_findings().first()?;
        (worst.actual.is_none() && worst.lines.is_empty()).then(|| worst.message.clone())
    })
}

/// One row per limit, and below one that does not hold the line that holds most; with several devices, of the worst.
fn limit_table(kinds: &[LimitKind<'_>]) -> impl Into<Table> {
    let are_several = kinds.iter().any(|kind| kind.all > 1);
    let names = Names::from_paths(kinds.iter().map(|kind| &*kind.worst.path));
    let rows = kinds.iter().flat_map(|kind| {
        let below = Some(below(kind.worst, are_several.then_some(&names))).filter(|below| !below.is_empty());
        [(Some(kind), marked_name(kind))].into_iter().chain(below.map(|below| (None, Cell::indented(1, below))))
    });
    let actual = if are_several { "worst" } else { "actual" };
    // The line below a limit has no figures.
    Table::from_rows(rows)
        .text("limit", |(_, name)| name.clone())
        .number(actual, |(kind, _)| kind.map_or_else(String::new, |kind| kind.worst.format_figures().1))
        .number("limit", |(kind, _)| kind.map_or_else(String::new, |kind| kind.worst.format_figures().0))
        .number("not held on", |(kind, _)| {
            kind.map_or_else(String::new, |kind| format!("{} of {}", count(kind.failing), count(kind.all)))
        })
        .only_if(are_several)
        .wide()
}

/// The text below a limit that does not hold: the worst of several devices, and the line that holds most.
fn below(worst: &Finding, names: Option<&Names>) -> Text {
    if worst.passed {
        return Text::default();
    }
    let device = names.map(|names| code(format!("{} GPU {}", names.shorten(&worst.path), worst.device)));
    match (device, worst.lines.first().map(line_label)) {
        (Some(device), Some(line)) => device.and(": ").and(line),
        (device, line) => device.or(line).unwrap_or_default(),
    }
}

fn marked_name(kind: &LimitKind<'_>) -> Cell {
    let worst = kind.worst;
    let (mark, effect) = match (worst.passed, worst.severity) {
        (true, _) if worst.actual.is_none() => (Judgement::Perhaps, "  allowed"),
        (true, _) => (Judgement::Good, ""),
        (false, Severity::Warn) => (Judgement::Perhaps, "  warns"),
        (false, Severity::Fail) => (Judgement::Bad, ""),
    };
    Cell::marked(mark, Text::from(worst.code.word()).and(faint(effect)))
}

/// `app/train.py:12 step  1.11 GiB held at the peak`
fn line_label(line: &CodeLine) -> Text {
    let place = source_location(line.file(), &format!(":{} {}", line.frame.line, line.frame.name));
    place.and(format!("  {} {}", size(line.bytes), line.what))
}

/// The changes since the baseline.
fn changes(document: &mut Document, baseline: &BaselineComparison) {
    document.subheading(Text::from("changes since ").and(code(&*baseline.path)).and(", ").and(code(&*baseline.entry)));
    let others = and_others(baseline.text.len(), MAX_CHANGES, "other", "");
    document.list(baseline.text.iter().take(MAX_CHANGES).cloned().chain(others));
}

/// Each limit that does not hold with its lines, and the notes on the files.
fn sections(report: &CheckReport) -> Document {
    let mut document = Document::default();
    let lost = report.failed_findings();
    for finding in lost.iter().take(MAX_FINDINGS) {
        let title = format!("{} of GPU {} of ", finding.code.word(), finding.device);
        document.subheading(Text::from(title).and(code(&*finding.path)));
        document.paragraph(&*finding.message);
        // The first line is in the table.
        document.list(finding.lines.iter().skip(1).map(line_label));
    }
    if let Some(more @ 1..) = lost.len().checked_sub(MAX_FINDINGS) {
        document.paragraph(format!("{} more do not hold: --format json", count(more as u64)));
    }
    let notes = warnings_by_code(report).into_iter();
    let notes =
        notes.map(|(noted, others)| code(&*noted.path).and(format!(": {}{others} [{}]", noted.message, noted.code)));
    document.list_under("Notes", notes);
    document
}

/// `train.py:12 in step`, with the path in the repository if known.
fn location_label(line: &CodeLine) -> String {
    let file = escape_text(line.file());
    format!("{} in {}", FrameReport { file, ..line.frame.clone() }.file_line(), line.frame.name)
}

/// `20 MiB held at the snapshot`
pub(crate) fn bytes_label(line: &CodeLine) -> String {
    format!("{} {}", size(line.bytes), line.what)
}

/// As CI systems call it.
pub(crate) fn level(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Fail => "error",
        Severity::Warn => "warning",
    }
}

/// The lines of code of `finding`, one below the other.
pub(crate) fn finding_lines(finding: &Finding) -> String {
    finding.lines.iter().map(|line| format!("\n{}: {}", location_label(line), bytes_label(line))).join("")
}

/// A limit over all devices.
struct LimitKind<'a> {
    worst: &'a Finding,
    /// Number of devices that exceed it.
    failing: u64,
    /// Number of devices that it applies to.
    all: u64,
}

/// Groups the findings by limit.
fn limits_by_kind(report: &CheckReport) -> Vec<LimitKind<'_>> {
    let groups = group(&report.findings, |a, b| (a.code, a.severity) == (b.code, b.severity));
    let kinds = groups.into_iter().filter_map(|findings| {
        let failing = findings.iter().filter(|finding| !finding.passed).count() as u64;
        let all = findings.len() as u64;
        let worst = findings.into_iter().reduce(|a, b| if b.excess() > a.excess() { b } else { a });
        Some(LimitKind { worst: worst?, failing, all })
    });
    kinds.collect()
}

/// The first warning of each code, and a note on how many other files have it.
pub(crate) fn warnings_by_code(report: &CheckReport) -> Vec<(&FileWarning, String)> {
    let groups = group(&report.warnings, |a, b| a.code == b.code);
    let warnings = groups.iter().filter_map(|warnings| {
        let (first, others) = warnings.split_first()?;
        let note = (!others.is_empty()).then(|| format!(" (also in {})", counted(others.len() as u64, "other")));
        Some((*first, note.unwrap_or_default()))
    });
    warnings.collect()
}

impl CheckedJob {
    /// `would fit on NVIDIA L4 (dry run)`
    pub(crate) fn describe(&self) -> String {
        format!("{} on {} (dry run)", self.verdict.phrase(), self.gpu)
    }

    /// The verdict with its reason.
    pub(crate) fn message(&self) -> String {
        format!("{}: {}", self.describe(), self.reason)
    }

    /// The place of the line that the reason names.
    pub(crate) fn place(&self) -> Option<String> {
        let line = self.line.as_ref()?;
        Some(format!("{}:{}", self.source.as_deref().unwrap_or(&line.file), line.line))
    }

    /// The summary of a check that fails by its verdict.
    fn summary(&self, answer: &str) -> Summary {
        let place = self.place();
        let action = match self.verdict {
            DryRunVerdict::WouldNotFit if self.line.is_none() => "use less memory, or more GPUs",
            DryRunVerdict::WouldNotFit => "request or keep less at that line; oomscope dry-run --try shows what helps",
            DryRunVerdict::MayFit => {
                "give the value that decides with --value, or accept it with --allow-missing may-fit"
            }
            _ => "see the command's own output above",
        };
        let who = self.line.as_ref().zip(place.as_ref()).map(|(line, place)| format!("{place} in {}", line.name));
        let answer = format!("{answer}: {}", self.reason);
        Summary { answer, who, variable: None, action: Some(action.to_owned()), copy: place }
    }
}

impl CodeLine {
    /// The file: its path in the repository, if known.
    pub(crate) fn file(&self) -> &str {
        self.source.as_deref().unwrap_or(&self.frame.file)
    }

    fn place(&self) -> String {
        format!("{}:{}", self.file(), self.frame.line)
    }
}

impl CheckReport {
    /// The verdict; the worst finding names a source line or the missing data.
    pub fn summary(&self) -> Summary {
        let answer = self.verdict();
        if let Some(job) = self.dry_run.as_ref().filter(|job| !job.passed) {
            return job.summary(&answer);
        }
        let failed = self.failed_findings();
        let Some(worst) = failed.first() else { return Summary::from_answer(answer) }; // no finding
        let (code, device, path) = (worst.code.word(), worst.device, &worst.path);
        let baseline = self.baseline.as_ref().filter(|_| worst.code.needs_baseline());
        let answer = match baseline.and_then(|baseline| baseline.headline.as_ref()) {
            Some(changes) => format!("{answer}: {changes}"),
            None => format!("{answer}: {code} of GPU {device} of {path}: {}", worst.message),
        };
        let first = worst.lines.first();
        let who = first.map(|line| format!("{} in {}: {}", line.place(), line.frame.name, bytes_label(line)));
        let (action, copy) = match (first, worst.missing) {
            (Some(_), _) if worst.code == Figure::Ooms => {
                ("see why the request failed, and what helps".to_owned(), command_line("analyze", path))
            }
            (Some(line), _) => (format!("request or keep less at {}", line.place()), Some(line.place())),
            (None, Some(Code::HistoryLost)) => {
                ("record the job again with more trace entries".to_owned(), Some(RECORD_MORE_COMMAND.to_owned()))
            }
            (None, Some(Code::NoTrace | Code::Truncated)) => {
                ("record the job with its history, from its start".to_owned(), Some(RECORD_TO_END_COMMAND.to_owned()))
            }
            (None, _) => {
                ("see what holds the memory, and which requests failed".to_owned(), command_line("analyze", path))
            }
        };
        Summary { answer, who, variable: None, action: Some(action), copy }
    }

    /// The verdict in one sentence.
    pub(crate) fn verdict(&self) -> String {
        let all = self.findings.len() as u64;
        let [failed, warned] = [Severity::Fail, Severity::Warn].map(|severity| self.count(severity) as u64);
        let failing = self.findings.iter().filter(|finding| !finding.passed && finding.severity == Severity::Fail);
        let unknown = failing.filter(|finding| finding.actual.is_none()).count() as u64;
        let broken = failed - unknown;
        let verb = if broken == 1 { "does" } else { "do" };
        let mut result = match (failed, all) {
            (_, 0) if self.dry_run.is_some() => String::new(),
            (_, 0) => "no limit was checked".to_owned(),
            (0, 1) if warned == 0 => "the limit holds".to_owned(),
            (0, _) if warned == 0 => format!("all {} limits hold", count(all)),
            (0, _) => "no limit fails".to_owned(),
            (1, 1) if broken == 1 => "the limit does not hold".to_owned(),
            (1, 1) => "the figure of the limit is not known".to_owned(),
            _ if broken == 0 => format!("{} of {} limits not known", count(unknown), count(all)),
            _ => format!("{} of {} limits {verb} not hold", count(broken), count(all)),
        };
        if unknown > 0 && broken > 0 {
            result = format!("{result}, {} not known", count(unknown));
        }
        if warned > 0 {
            let only = if failed > 0 { "more only" } else { "only" };
            result = format!("{result}, {} {only} {}", count(warned), if warned == 1 { "warns" } else { "warn" });
        }
        let verdict = self.dry_run.as_ref().map(CheckedJob::describe);
        let files = counted(self.unreadable.len() as u64, "file");
        let unreadable = (!self.unreadable.is_empty()).then(|| format!("{files} could not be checked"));
        let ranks = self.ranks.as_ref().filter(|ranks| ranks.checked != ranks.expected);
        let ranks = ranks.map(|ranks| format!("{} of {} ranks were checked", ranks.checked, ranks.expected));
        let is_other = self.objections.iter().any(|objection| !objection.allowed);
        let is_unwritten = self.baseline.as_ref().is_some_and(|baseline| baseline.not_written.is_some());
        let other = is_other.then(|| "the baseline is not comparable".to_owned());
        let unwritten = is_unwritten.then(|| "the baseline was not written".to_owned());
        let result = Some(result).filter(|result| !result.is_empty());
        let mut parts = [verdict, result, unreadable, ranks, other, unwritten].into_iter().flatten().collect_vec();
        // If only unreadable or missing files fail the check, name them first.
        if failed == 0 && !self.passed && self.dry_run.is_none() {
            parts.rotate_left(1);
        }
        format!("{}: {}", if self.passed { "passed" } else { "FAILED" }, parts.join(", "))
    }

    /// Files and ranks that could not be checked, each with the reason.
    pub fn not_checked(&self) -> Vec<(String, String)> {
        let unreadable = self.unreadable.iter().map(|file| (file.path.clone(), file.message.clone()));
        let wrong_count = self.ranks.as_ref().filter(|ranks| ranks.expected != ranks.checked).map(|ranks| {
            let checked = counted(ranks.checked as u64, "rank");
            let verb = if ranks.checked == 1 { "was" } else { "were" };
            let expected = ranks.expected;
            let repeated = ranks.repeated.first().map_or_else(String::new, |repeated| {
                let kind = repeated.rank.as_ref().map_or("process".to_owned(), |rank| format!("rank {rank}"));
                format!("; {} and {} are of the same {kind}", repeated.same_as, repeated.path)
            });
            if ranks.is_given {
                return ("--ranks".to_owned(), format!("{checked} {verb} checked; there must be {expected}{repeated}"));
            }
            let accepted = format!("--ranks {} accepts that", ranks.checked);
            ("ranks".to_owned(), format!("{checked} {verb} checked, of a job of {expected}{repeated}; {accepted}"))
        });
        let baseline = self.baseline.as_ref().map_or("", |baseline| &baseline.path);
        let refused = self.objections.iter().filter(|objection| !objection.allowed).map(|objection| {
            let code = objection.code.word();
            (baseline.to_owned(), format!("{}; --allow-missing {code} accepts that", objection.describe()))
        });
        let not_written = self.baseline.iter().filter_map(|baseline| Some((baseline, baseline.not_written.as_ref()?)));
        let not_written = not_written.map(|(baseline, why)| (baseline.path.clone(), format!("not written: {why}")));
        unreadable.chain(wrong_count).chain(refused).chain(not_written).collect()
    }
}

impl Objection {
    /// The difference in a sentence.
    fn describe(&self) -> String {
        let Self { code, before, after, .. } = self;
        let other = match code {
            ObjectionCode::OtherGpu => "GPU",
            ObjectionCode::OtherProgram => "program",
            ObjectionCode::OtherRelease => "PyTorch",
            ObjectionCode::RepeatedRank => return format!("{before} and {after} have the same name in it"),
        };
        format!("the baseline has another {other}: {before}, now {after}")
    }
}
