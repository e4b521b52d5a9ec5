//! The pages of `oomscope dry-run --try` and `fit -- COMMAND`: one table each, the best run first.

use itertools::Itertools as _;

use super::plan::with_room;
use crate::analysis::{SizeRunReport, SizeSearchReport, TrialOutcome, TrialReport, TrialsReport};
use crate::base::units::{count, counted, quote_shell_word, size};
use crate::output::document::{Cell, Document, Judgement, Table, TableOf, Text, code, strong};
use crate::output::wording::{format_requests, location_label};
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
    let requests = |run: &&TrialReport| {
        let serving = run.serving.as_ref();
        let requests = serving.and_then(|serving| serving.requests_at(serving.max_model_len));
        requests.map_or_else(|| describe_no_start(run.outcome, serving), format_requests)
    };
    let table = Table::from_rows(&report.runs)
        .text(format!("started on {}", report.gpu), |run| mark(run, describe_start(report, run)));
    with_room(table, |run| run.serving.as_ref()).number("requests at once", requests)
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
    let gpus = |run: &TrialReport| run.serving.as_ref().map(Serving::gpus);
    let others = gpus(run).filter(|_| gpus(run) != report.runs.first().and_then(gpus));
    let others = others.map_or_else(String::new, |gpus| format!(" on {}", counted(gpus, "GPU")));
    describe_remedy(run).and(others)
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
        let text = format!("{} = {}: {}", report.name, count(refused.size), refused.reason);
        document.warning("refused", text);
    }
    let (fitting, failing): (Vec<&SizeRunReport>, Vec<_>) = report.runs.iter().partition(|run| run.fits);
    let runs = fitting.iter().map(|run| quote_shell_word(&format!("{}={}", run.size, run.snapshot)));
    let runs: Vec<String> = runs.collect();
    let result = |run: &SizeRunReport| match (run.fits, run.fits_in_worst_case) {
        (true, true) => (Judgement::Good, "fits".into()),
        (true, false) => (Judgement::Perhaps, "fits, but not in the worst case".into()),
        (false, _) => (Judgement::Bad, describe_failure("fails", run.requested_bytes, run.location.as_ref())),
    };
    let table = Table::from_rows(fitting.into_iter().rev().chain(failing))
        .text(report.name.clone(), |run| Cell::marked(result(run).0, count(run.size)))
        .text("", |run| result(run).1)
        .number("peak reserved", |run| if run.fits { size(run.reserved_bytes) } else { String::new() });
    document.table(table.wide());
    if runs.len() > 1 {
        document.field("next", code(format!("oomscope fit {}", runs.join(" "))));
    }
    document
}
