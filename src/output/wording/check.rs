//! The summary of a check.

use super::Summary;
use super::summary::command_line;
use crate::analysis::DryRunVerdict;
use crate::base::units::{count, counted, size};
use crate::base::warning::{Code, RECORD_COMMAND, RECORD_MORE_COMMAND};
use crate::compare::gate::{CheckReport, CheckedJob, CodeLine, Finding, Objection, ObjectionCode, Severity};
use crate::study::figures::Figure;
use itertools::Itertools as _;

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
        let place = |line: &CodeLine| format!("{}:{}", line.file(), line.frame.line);
        let first = worst.lines.first();
        let who =
            first.map(|line| format!("{} in {}: {} {}", place(line), line.frame.name, size(line.bytes), line.what));
        let (action, copy) = match (first, worst.missing) {
            (Some(_), _) if worst.code == Figure::Ooms => {
                ("see why the request failed, and what helps".to_owned(), command_line("analyze", path))
            }
            (Some(line), _) => {
                let place = place(line);
                (format!("request or keep less at {place}"), Some(place))
            }
            (None, Some(Code::HistoryLost)) => {
                ("record the job again with more trace entries".to_owned(), Some(RECORD_MORE_COMMAND.to_owned()))
            }
            (None, Some(Code::NoTrace | Code::Truncated)) => {
                ("record the job with its history, from its start".to_owned(), Some(RECORD_COMMAND.to_owned()))
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
        let failed = self.count(Severity::Fail) as u64;
        let warned = self.count(Severity::Warn) as u64;
        let is_unknown =
            |finding: &&Finding| !finding.passed && finding.severity == Severity::Fail && finding.actual.is_none();
        let unknown = self.findings.iter().filter(is_unknown).count() as u64;
        let broken = failed - unknown;
        let mut result = match (failed, all) {
            (_, 0) if self.dry_run.is_some() => String::new(),
            (_, 0) => "no limit was checked".to_owned(),
            (0, 1) if warned == 0 => "the limit holds".to_owned(),
            (0, _) if warned == 0 => format!("all {} limits hold", count(all)),
            (0, _) => "no limit fails".to_owned(),
            (1, 1) if broken == 1 => "the limit does not hold".to_owned(),
            (1, 1) => "the figure of the limit is not known".to_owned(),
            _ if broken == 0 => format!("{} of {} limits not known", count(unknown), count(all)),
            _ => format!(
                "{} of {} limits {} not hold",
                count(broken),
                count(all),
                if broken == 1 { "does" } else { "do" }
            ),
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
