//! The pages of `oomscope dry-run --try` and `fit -- COMMAND`: one table each, the best run first; and their summaries.

use itertools::Itertools as _;

use super::fit::describe_range_by_data;
use super::plan::with_room;
use crate::analysis::{SizeRunReport, SizeSearchReport, TrialOutcome, TrialReport, TrialsReport};
use crate::base::units::{count, counted, quote_shell_word, size};
use crate::output::document::{Cell, Document, Judgement, Table, TableOf, Text, code, strong};
use crate::output::wording::{Summary, format_requests, location_label};
use crate::snapshot::Serving;
use crate::stacks::frames::CodeLocation;

/// Lays out runs with remedies.
pub fn trials(report: &TrialsReport) -> Document {
    let summary = report.summary();
    let mut document = Document::with_headline(strong(summary.answer), "");
    let has_engine = report.runs.iter().any(|run| run.serving.is_some());
    document.table(if has_engine { engine_table(report) } else { job_table(report) }.wide());
    document.fields("copy", summary.copy.map(code));
    document
}

fn job_table(report: &TrialsReport) -> TableOf<&TrialReport> {
    Table::from_rows(report.runs.iter().sorted_by_key(|run| rank(run.outcome)))
        .text(format!("tried on {}", report.gpu), |run| mark(run, describe_remedy(run)))
        .text("the job then", |run| describe_trial(run))
        .number("headroom", |run| run.headroom_bytes.map_or_else(String::new, size))
}

/// The starts of a serving engine, in their order: each changes one option.
fn engine_table(report: &TrialsReport) -> TableOf<&TrialReport> {
    let table = Table::from_rows(&report.runs)
        .text(format!("started on {}", report.gpu), |run| mark(run, describe_start(report, run)));
    with_room(table, |run| run.serving.as_ref()).number("requests at once", |run| {
        let serving = run.serving.as_ref();
        let requests = serving.and_then(|serving| serving.requests_at(serving.max_model_len));
        requests.map_or_else(|| describe_no_start(run.outcome, serving), format_requests)
    })
}

/// `does not start`, and with which requests it should; an engine that ended for another reason than memory may start.
fn describe_no_start(outcome: TrialOutcome, serving: Option<&Serving>) -> String {
    if outcome == TrialOutcome::Unknown {
        return "not known".to_owned();
    }
    let length = serving.and_then(Serving::longest_len);
    length.map_or_else(|| "does not start".to_owned(), |length| format!("with max_model_len {}", count(length)))
}

/// The option, and the number of GPUs if it is another.
fn describe_start(report: &TrialsReport, run: &TrialReport) -> Text {
    let first = report.runs.first().and_then(|first| first.serving.as_ref());
    let gpus = run.serving.as_ref().map(Serving::gpus).filter(|gpus| Some(*gpus) != first.map(Serving::gpus));
    describe_remedy(run).and(gpus.map_or_else(String::new, |gpus| format!(" on {}", counted(gpus, "GPU"))))
}

fn describe_remedy(run: &TrialReport) -> Text {
    code(run.remedy.as_deref().unwrap_or("unchanged"))
}

fn mark(run: &TrialReport, label: Text) -> Cell {
    let mark = match run.outcome {
        TrialOutcome::Ends => Judgement::Good,
        TrialOutcome::MayEnd | TrialOutcome::Unknown => Judgement::Perhaps,
        TrialOutcome::Fails | TrialOutcome::FailsLater | TrialOutcome::NotInEffect => Judgement::Bad,
    };
    Cell::marked(mark, label)
}

/// The order of outcomes, the best first.
fn rank(outcome: TrialOutcome) -> usize {
    use TrialOutcome::{Ends, Fails, FailsLater, MayEnd, NotInEffect, Unknown};
    [Ends, MayEnd, Unknown, FailsLater, Fails, NotInEffect].iter().position(|other| *other == outcome).unwrap_or(0)
}

fn describe_trial(run: &TrialReport) -> Text {
    let reason = run.reason.as_deref().unwrap_or_default();
    match run.outcome {
        TrialOutcome::Ends => "runs to its end".into(),
        TrialOutcome::MayEnd => format!("may run to its end: {reason}").into(),
        TrialOutcome::Fails => describe_failure("fails", run.requested_bytes, run.location.as_ref()),
        TrialOutcome::FailsLater => describe_failure("fails later", run.requested_bytes, run.location.as_ref()),
        TrialOutcome::Unknown => format!("not known: {reason}").into(),
        TrialOutcome::NotInEffect => "not in effect: the program sets its own".into(),
    }
}

fn describe_failure(verb: &str, requested_bytes: Option<u64>, location: Option<&CodeLocation>) -> Text {
    let requested = requested_bytes.map_or_else(String::new, |bytes| format!(": {} requested", size(bytes)));
    let place = location.map_or_else(Text::default, |location| Text::from(", ").and(location_label(location)));
    Text::from(format!("{verb}{requested}")).and(place)
}

/// Lays out runs at several sizes.
pub fn size_search(report: &SizeSearchReport) -> Document {
    let mut document = Document::with_headline(strong(report.summary().answer), "");
    if report.is_memory_unknown {
        document.warning("unknown-memory", "some memory is unknown without a GPU, so the largest size may be less");
    }
    for refused in &report.refused {
        document.warning("refused", format!("{} = {}: {}", report.name, count(refused.size), refused.reason));
    }
    let (fitting, failing): (Vec<&SizeRunReport>, Vec<_>) = report.runs.iter().partition(|run| run.fits);
    let runs = fitting.iter().map(|run| quote_shell_word(&format!("{}={}", run.size, run.snapshot)));
    let runs: Vec<String> = runs.collect();
    let rows = fitting.into_iter().rev().chain(failing).map(|run| match (run.fits, run.fits_in_worst_case) {
        (true, true) => (run, Judgement::Good, "fits".into()),
        (true, false) => (run, Judgement::Perhaps, "fits, but not in the worst case".into()),
        (false, _) => (run, Judgement::Bad, describe_failure("fails", run.requested_bytes, run.location.as_ref())),
    });
    let table = Table::from_rows(rows)
        .text(report.name.clone(), |(run, mark, _)| Cell::marked(*mark, count(run.size)))
        .text("", |(.., result)| result.clone())
        .number("peak reserved", |(run, ..)| if run.fits { size(run.reserved_bytes) } else { String::new() });
    document.table(table.wide());
    document.fields("next", (runs.len() > 1).then(|| code(format!("oomscope fit {}", runs.join(" ")))));
    document
}

impl TrialsReport {
    /// The first remedy with which the job ends, or how the first run ends.
    pub fn summary(&self) -> Summary {
        let gpu = &self.gpu;
        let Some((first, others)) = self.runs.split_first() else {
            return Summary::from_answer(format!("nothing was run on {gpu} (dry run)"));
        };
        if first.serving.is_some() {
            return self.summary_of_engine();
        }
        if first.outcome.is_end() {
            return Summary::from_answer(format!("the job runs to its end on {gpu} (dry run)"));
        }
        if !matches!(first.outcome, TrialOutcome::Fails | TrialOutcome::FailsLater) {
            let reason = first.reason.as_deref().unwrap_or_default();
            return Summary::from_answer(format!("how the job ends on {gpu} (dry run) is not known: {reason}"));
        }
        let ending = others.iter().find(|run| run.outcome == TrialOutcome::Ends);
        let ending = ending.or_else(|| others.iter().find(|run| run.outcome.is_end()));
        let Some((ending, remedy)) = ending.and_then(|run| Some((run, run.remedy.as_ref()?))) else {
            let tried = if others.is_empty() { "no remedy was tried" } else { "no remedy that was tried helps" };
            return Summary::from_answer(format!("{tried} on {gpu} (dry run)"));
        };
        let answer = format!("with {remedy} the job runs to its end on {gpu} (dry run)");
        Summary { action: Some(remedy.clone()), copy: ending.copy.clone(), ..Summary::from_answer(answer) }
    }

    /// The start with most tokens of KV cache.
    fn summary_of_engine(&self) -> Summary {
        if let [Some(first), Some(later)] = *self.runs.iter().map(|run| run.serving.as_ref()).collect_vec()
            && first.compiled
            && !later.compiled
            && let Some((first, later)) = first.kv_cache_tokens.zip(later.kv_cache_tokens)
        {
            let (gpu, first, later) = (&self.gpu, count(first), count(later));
            let answer = format!("{first} tokens at the first start on {gpu} (dry run), which compiles; {later} later");
            return Summary::from_answer(answer);
        }
        let engine = self.runs[0].serving.as_ref().map_or("it", |serving| &*serving.engine);
        let tried = self.runs.iter().filter_map(|run| run.remedy.as_deref()).join(" or ");
        let starts = self.runs.iter().filter(|run| run.outcome.is_end());
        let Some(best) = starts.max_by_key(|run| run.serving.as_ref().and_then(|one| one.kv_cache_tokens)) else {
            let also = if tried.is_empty() { String::new() } else { format!(", nor with {tried}") };
            return Summary::from_answer(format!("{engine} does not start on {} (dry run){also}", self.gpu));
        };
        let (gpus, tokens) = best.serving.as_ref().map_or((1, None), |one| (one.gpus(), one.kv_cache_tokens));
        let on = if gpus > 1 { format!("{gpus} x {}", self.gpu) } else { self.gpu.clone() };
        let most = count(tokens.unwrap_or(0));
        let starts_unchanged = self.runs[0].outcome.is_end() || best.remedy.is_none();
        let verb = if starts_unchanged { "has most room" } else { "starts" };
        let how = best.remedy.as_ref().map_or_else(|| "unchanged".to_owned(), |option| format!("with {option}"));
        let answer = format!("{engine} {verb} on {on} (dry run) {how}: {most} tokens");
        Summary { action: best.remedy.clone(), copy: best.copy.clone(), ..Summary::from_answer(answer) }
    }
}

impl SizeRunReport {
    /// `completes with 20 GiB reserved`
    pub fn describe(&self) -> String {
        if self.fits {
            return format!("completes with {} reserved", size(self.reserved_bytes));
        }
        let line = self.location.as_ref().map_or_else(|| "an unknown line".to_owned(), CodeLocation::label);
        format!("fails at {line} ({} requested)", size(self.requested_bytes.unwrap_or_default()))
    }
}

impl SizeSearchReport {
    /// The largest size that fits.
    pub fn summary(&self) -> Summary {
        Summary::from_answer(self.describe_answer())
    }

    fn describe_answer(&self) -> String {
        let (name, gpu) = (&self.name, &self.gpu);
        let kind = self.only.as_ref().map_or_else(String::new, |only| format!(" ({only})"));
        let Some(run) = self.largest_run() else {
            let tried = if self.is_exact { "" } else { " that was tried" };
            return format!("no {name}{kind}{tried} fits on {gpu} (dry run)");
        };
        if self.every_size_fits {
            let largest = count(run.size);
            return format!(
                "every {name} should fit on {gpu} (dry run): its memory does not grow up to {largest}; none above was run"
            );
        }
        let largest = self.largest.unwrap_or(run.size);
        let adjective = if self.is_exact { "largest" } else { "largest tried" };
        let at_best = count(largest);
        let answer = match self.runs.iter().rfind(|run| run.fits_in_worst_case) {
            Some(worst) if worst.size < largest => {
                format!("{} in the worst case, otherwise {at_best}", count(worst.size))
            }
            Some(_) => at_best,
            None => format!("{at_best}, but no size that was run fits in the worst case"),
        };
        let unknown = match self.fails {
            _ if self.is_exact => String::new(),
            Some(fails) => format!("; {} fails, none between was run", count(fails)),
            None => match self.refused.iter().map(|refused| refused.size).filter(|size| *size > largest).min() {
                Some(refused) => format!("; {} ends with an error of the program", count(refused)),
                None => "; none above was run".to_owned(),
            },
        };
        let by_data = self.by_data.map_or_else(String::new, describe_range_by_data);
        format!("{adjective} {name}{kind} on {gpu} (dry run): {answer}{unknown}{by_data}")
    }
}
